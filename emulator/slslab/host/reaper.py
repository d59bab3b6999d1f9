"""Remove what a killed command left behind: a small process that outlives its emulator.

A session (`slslab.host.session`) keeps a journal in its home, with lines `cgroup PATH` and `containers yes` (or `no`
after their removal). It locks the journal as long as its process lives. The reaper waits for this lock, so it wakes
when the emulator has ended in any way, including `kill -9`. It isn't the emulator's child, because a program that kills
the emulator may kill its children, too (Ray does). The reaper kills every process with the emulator's mark in its
environment, then removes the control groups, the containers and the home. It runs as a script, so that it starts
without importing the package; it imports the engine's client only if containers exist.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

MARK = "SLSLAB_EMULATOR"
ENGINE = "slslab.host.docker_engine"


def marked_processes(emulator_id: str) -> list[int]:
    """Return the ids of other processes that have this emulator's mark in their environment."""
    mark = f"{MARK}={emulator_id}".encode()
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # the process has exited, or belongs to another user
            if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                pids.append(int(name))
    return [pid for pid in pids if pid != os.getpid()]


def clean(emulator_id: str, cgroups: list[str], paths: list[str], patience_s: float = 10.0) -> bool:
    """Kill the processes and remove the groups and paths; return True when nothing is left."""
    deadline = time.monotonic() + patience_s
    left = True
    while left and time.monotonic() < deadline:
        pids = marked_processes(emulator_id)
        groups = [nested for group in cgroups for nested, _, _ in os.walk(group, topdown=False)]
        for group in groups:
            with suppress(OSError):
                pids += map(int, Path(group, "cgroup.procs").read_text().split())
            with suppress(OSError):  # cgroup v1 delivers a kill to a frozen process only after a thaw
                Path(group, "freezer.state").write_text("THAWED")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for group in groups:
            with suppress(OSError):
                os.rmdir(group)
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
        left = bool(pids) or any(os.path.exists(path) for path in cgroups + paths)
        if left:
            time.sleep(0.005)  # no event reports that a killed process has left its group
    return not left


def reap(emulator_id: str, journal: BinaryIO) -> bool:
    """Remove what a journal names, and its directory; return True when nothing is left."""
    home = os.path.dirname(journal.name)
    watched: dict[str, list[str]] = {"cgroup": [], "containers": []}
    # The last line is empty, or cut off by a full disk.
    for line in journal.read().split(b"\n")[:-1]:
        kind, _, path = os.fsdecode(line).partition(" ")
        # Other versions may have recorded further kinds.
        watched.setdefault(kind, []).append(path)
    if watched["containers"][-1:] == ["yes"]:
        # Before the home, which holds the directories that containers share with the emulator.
        subprocess.run([sys.executable, "-P", "-m", ENGINE, emulator_id], check=False)
    # The home last: as long as something is left, the next session finds the journal in it.
    return clean(emulator_id, watched["cgroup"], []) and clean(emulator_id, [], [home])


def _main(emulator_id: str, path: str) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if reaping := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(reaping, 0)[1])
    with suppress(FileNotFoundError), open(path, "rb") as journal:  # the session may have ended already
        fcntl.flock(journal, fcntl.LOCK_EX)
        return 0 if reap(emulator_id, journal) else 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
