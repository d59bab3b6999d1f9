"""slslab: an emulator that runs the functions of serverless training, and computes what they cost."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slslab.installation import __version__ as __version__
    from slslab.lambda_.emulator import Emulator as Emulator

# It is relative if PATH has a relative folder. Child processes start in other folders.
if sys.executable:
    sys.executable = os.path.abspath(sys.executable)


def __getattr__(name: str) -> object:
    # On demand: commands without an emulator should not wait for its imports, and Ctrl-C may come during imports.
    if name == "__version__":
        from slslab.installation import __version__

        return __version__
    if name == "Emulator":
        from slslab.lambda_.emulator import Emulator

        return Emulator
    raise AttributeError(f"module 'slslab' has no attribute {name!r}")
