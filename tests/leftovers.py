"""What a command leaves behind when it ends wrongly."""

import os
import tempfile
from pathlib import Path

from slslab.host.cgroups import detect
from slslab.host.reaper import MARK


def leftovers(pid: int) -> list[str]:
    """Return processes, control groups and files of the command with this process id."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                variables = Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue
            if f"{MARK}={pid}-".encode() in variables:
                found.append(entry)
    groups = [str(g) for parent in detect().parents.values() for g in parent.glob(f"slslab-{pid}-*")]
    homes = [str(home) for home in Path(tempfile.gettempdir()).glob(f"slslab-{pid}-*")]
    return found + groups + homes
