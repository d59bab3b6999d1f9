"""slslab: what runs the functions of serverless training, and tells what they cost."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slslab.emulator import Emulator as Emulator

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # On demand: the commands that need no emulator should not wait for its imports.
    if name == "Emulator":
        from slslab.emulator import Emulator

        return Emulator
    raise AttributeError(f"module 'slslab' has no attribute {name!r}")
