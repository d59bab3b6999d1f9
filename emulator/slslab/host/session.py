"""What a command makes and must not leave behind, in whatever way it ends."""

import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from slslab.host import reaper


class Session:
    """A temporary home, and a reaper process that removes what a command made, also after `kill -9`.

    `mark` is the environment variable by which the reaper knows the command's processes.
    """

    def __init__(self) -> None:
        self.id = f"{os.getpid()}-{secrets.token_hex(4)}"
        self.mark = {reaper.MARK: self.id}

    def __enter__(self) -> Self:
        # TMPDIR may be `.`, and what is started and the reaper have other working directories.
        self.home = Path(tempfile.mkdtemp(prefix=f"slslab-{self.id}-")).absolute()
        # In a session of its own, so that Ctrl-C in the terminal reaches the command alone.
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", reaper.__file__, self.id],
            stdin=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            cwd="/",
        )
        self.watch(self.home)
        return self

    def __exit__(self, *_error: object) -> None:
        self._reaper.communicate()  # closes its input and waits until everything is removed

    def watch(self, path: Path) -> None:
        """Have this file or directory removed at the end."""
        self._send(f"path {path}")

    def watch_cgroup(self, path: Path) -> None:
        """Have this control group removed at the end, with the groups in it, and their processes killed."""
        self._send(f"cgroup {path}")

    def watch_containers(self, there_are: bool) -> None:
        """Have the engine's containers with this command's mark removed at the end; none, when none is left."""
        self._send(f"containers {'yes' if there_are else 'no'}")

    def _send(self, line: str) -> None:
        assert self._reaper.stdin is not None
        self._reaper.stdin.write(f"{line}\n".encode())
