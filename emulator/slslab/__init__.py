"""slslab: an emulator that runs the functions of serverless training, and computes what they cost."""

from typing import TYPE_CHECKING

from slslab.installation import __version__ as __version__

if TYPE_CHECKING:
    from slslab.lambda_.emulator import Emulator as Emulator


def __getattr__(name: str) -> object:
    # On demand: commands without an emulator should not wait for its imports.
    if name == "Emulator":
        from slslab.lambda_.emulator import Emulator

        return Emulator
    raise AttributeError(f"module 'slslab' has no attribute {name!r}")
