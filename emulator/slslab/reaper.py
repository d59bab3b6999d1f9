"""Ends what a killed command left behind: a small process that outlives its emulator and cleans up after it.

It reads lines on its standard input, `path PATH`, `cgroup PATH` and `containers yes` (or `no`, when they are gone);
when the input closes, the emulator has ended in whatever way (also `kill -9`), and every process that carries the
emulator's mark in its environment is killed, the control groups, containers, files and directories removed. Run as a
script, so that it starts without the package's imports; the engine's client is imported where there are containers.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

MARK = "SLSLAB_EMULATOR"
ENGINE = "slslab.environments.engine"


class Reaper:
    """The emulator's side: starts the reaper process and tells it what there is to clean."""

    def __init__(self, emulator_id: str) -> None:
        # A session of its own, so that Ctrl-C in the terminal reaches the command alone.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, emulator_id],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
        )

    def watch(self, path: Path) -> None:
        """Have this file or directory removed in the end."""
        self._tell(f"path {path}")

    def watch_cgroup(self, path: Path) -> None:
        """Have this control group removed in the end, and those in it."""
        self._tell(f"cgroup {path}")

    def watch_containers(self) -> None:
        """Have the engine's containers with this mark removed in the end."""
        self._tell("containers yes")

    def forget_containers(self) -> None:
        """They are gone already."""
        self._tell("containers no")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def finish(self) -> None:
        """Close the input and wait until everything is clean."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def marked_processes(emulator_id: str) -> list[int]:
    """Processes whose environment carries this emulator's mark."""
    needle = f"{MARK}={emulator_id}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if needle in variables:
                found.append(int(entry))
    return found


def clean(emulator_id: str, cgroups: list[str], paths: list[str], patience_s: float = 10.0) -> bool:
    """Kill, then remove; True when nothing is left."""
    deadline = time.monotonic() + patience_s
    left = True
    while left and time.monotonic() < deadline:
        pids = marked_processes(emulator_id)
        groups = [nested for group in cgroups for nested, _, _ in os.walk(group, topdown=False)]
        for group in groups:
            try:
                pids += [int(pid) for pid in Path(group, "cgroup.procs").read_text().split()]
            except OSError:
                continue
        for group in groups:
            try:  # what cgroup v1 has frozen does not hear a kill
                Path(group, "freezer.state").write_text("THAWED")
            except OSError:
                continue
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for group in groups:
            try:
                os.rmdir(group)
            except OSError:
                continue
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
            if not os.path.isdir(path) and os.path.exists(path):
                os.unlink(path)
        left = bool(pids) or any(os.path.exists(path) for path in cgroups + paths)
        if left:
            time.sleep(0.005)  # there is no event to wait for when a killed process has left its group
    return not left


def _main(emulator_id: str, lines: IO[str]) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watched: dict[str, list[str]] = {"cgroup": [], "path": [], "containers": []}
    for line in lines:
        kind, _, path = line.rstrip("\n").partition(" ")
        watched[kind].append(path)
    if watched["containers"][-1:] == ["yes"]:
        # They first: what they share with the emulator lies below its paths.
        subprocess.run([sys.executable, "-m", ENGINE, emulator_id], check=False)
    return 0 if clean(emulator_id, watched["cgroup"], watched["path"]) else 1


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], sys.stdin))
