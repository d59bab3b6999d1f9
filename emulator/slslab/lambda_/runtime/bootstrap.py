"""Start the runtime, as `python3 /var/runtime/bootstrap.py` does on Lambda."""

from importlib import import_module

import_module("slslab_runtime").main()  # next to it in /var/runtime
