"""Remove network namespaces and what runs in them: `python namespace_reaper.py FOLDER NAMESPACE…`.

It does so once its standard input ends, which happens however the process that started it ends. It also removes the
folder, and what slslab's sessions on the nodes have left.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from slslab.host.session import sweep

LIMIT_S = 60


def main(folder: str, *spaces: str) -> None:
    """Wait for the end of standard input, and clean up."""
    sys.stdin.buffer.read()
    for space in spaces:
        kill(space)
    sweep(Path(tempfile.gettempdir()))
    for space in spaces:
        # It may not have been made yet.
        subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def kill(space: str) -> None:
    """Kill everything in a namespace, as if its machine lost its power."""
    deadline = time.monotonic() + LIMIT_S
    while (found := pids(space)) and time.monotonic() < deadline:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def pids(space: str) -> list[int]:
    """Return all processes in a namespace."""
    listed = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False)
    return [int(pid) for pid in listed.stdout.split()]


if __name__ == "__main__":
    main(*sys.argv[1:])
