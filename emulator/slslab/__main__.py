"""`python -m slslab` is the command `slslab`."""

import os
import signal

if __name__ == "__main__":
    # Until `main` handles it, Ctrl-C would print a traceback.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    from slslab.cli.main import main

    main()
