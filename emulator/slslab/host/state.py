"""Where a user's commands keep what they must find again: the running service, the stack that was started, its keys."""

import os
import tempfile
from pathlib import Path

from slslab.errors import HostError


def state_directory() -> Path:
    """Return this user's directory: $SLSLAB_STATE, or one in the runtime directory."""
    if directory := os.environ.get("SLSLAB_STATE"):
        return Path(directory)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime, "slslab") if runtime else Path(tempfile.gettempdir(), f"slslab-{os.getuid()}")


def make_state_directory() -> Path:
    """Return the directory, made if it is missing. Raises HostError if it is another user's or cannot be made."""
    directory = state_directory()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = directory.stat().st_uid
    except OSError as error:
        raise unusable(error) from error
    if owner != os.getuid():
        raise HostError(f"The state directory {directory} belongs to another user.", "name one in SLSLAB_STATE.")
    return directory


def unusable(error: OSError) -> HostError:
    """Return the error of a state directory that cannot be used."""
    return HostError(
        f"The state directory {state_directory()} cannot be used: {error.strerror}.",
        "name another one in SLSLAB_STATE.",
    )


def only_owner(path: str, flags: int) -> int:
    """Open a file of the state, which nobody else may read; an `opener` of `open`."""
    return os.open(path, flags, 0o600)
