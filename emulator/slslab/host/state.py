"""Find the directory where a user's commands keep the running service, the started stack and its keys."""

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
    """Return the directory, creating it if needed. Raises HostError if another user owns it or it can't be made."""
    directory = state_directory()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = directory.stat().st_uid
    except OSError as error:
        raise unusable(error) from error
    if owner != os.getuid():
        raise HostError(f"The state directory {directory} belongs to another user.", "set SLSLAB_STATE to another one.")
    return directory


def unusable(error: OSError) -> HostError:
    """Return the error for a state directory that can't be used."""
    return HostError(
        f"The state directory {state_directory()} cannot be used: {error.strerror}.",
        "set SLSLAB_STATE to another one.",
    )


def only_owner(path: str, flags: int) -> int:
    """Open a file that only this user may read; an `opener` for `open`."""
    return os.open(path, flags, 0o600)
