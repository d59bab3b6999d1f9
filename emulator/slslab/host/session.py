"""Clean up after a command, however it ends."""

import fcntl
import os
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from slslab.errors import HostError
from slslab.host import reaper
from slslab.host.managed import Managed
from slslab_workers.trace.appending import append

HOME = "slslab-"
JOURNAL = "session"


class Session(Managed):
    """A temporary home, and a reaper process that removes what a command made, even after `kill -9`.

    The reaper finds the command's processes by the environment variable `mark`. If the reaper is killed, too, the next
    session cleans up. Raises HostError where the temporary folder can't be written.
    """

    def __init__(self) -> None:
        self.id = f"{os.getpid()}-{secrets.token_hex(4)}"
        self.mark = {reaper.MARK: self.id}
        self._reaper: subprocess.Popen[bytes] | None = None

    def _enter(self, stack: ExitStack) -> None:
        try:
            folder = Path(tempfile.gettempdir()).absolute()  # TMPDIR may be `.`, which differs by process
            sweep(folder)
            self.home = folder / f"{HOME}{self.id}"
            stack.callback(self._end)
            self.home.mkdir(mode=0o700)
            unlocked = self.home / f".{JOURNAL}"
            self._journal = stack.enter_context(unlocked.open("ab", buffering=0))
            fcntl.flock(self._journal, fcntl.LOCK_EX)
            # Only now, because an unlocked journal means a killed command.
            journal = unlocked.rename(self.home / JOURNAL)
        except OSError as error:
            raise _unwritable(error) from error
        # In a session of its own, so that Ctrl-C in the terminal reaches only the command.
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", reaper.__file__, self.id, journal],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def _end(self) -> None:
        if self._reaper is None:
            shutil.rmtree(self.home, ignore_errors=True)
            return
        self._journal.close()
        if self._reaper.wait() not in (0, 1):  # it has been killed
            sweep(self.home.parent)

    def watch_cgroup(self, path: Path) -> None:
        """Have this control group and the groups in it removed at the end, and their processes killed."""
        self._note(f"cgroup {path}")

    def watch_containers(self, there_are: bool) -> None:
        """Have the engine's containers with this command's mark removed at the end; False once they are gone."""
        self._note(f"containers {'yes' if there_are else 'no'}")

    def _note(self, line: str) -> None:
        try:
            append(self._journal.fileno(), os.fsencode(f"{line}\n"))
        except OSError as error:
            raise _unwritable(error) from error


def sweep(folder: Path) -> None:
    """Remove what killed sessions below this folder have left, if their reapers were killed, too.

    Such a session's journal isn't locked any more. In a folder that others may write to, only homes of this user
    count: others can't have made or changed them.
    """
    for home in folder.glob(f"{HOME}*"):
        try:
            made = home.lstat()
            if not stat.S_ISDIR(made.st_mode) or made.st_uid != os.geteuid() or made.st_mode & 0o077:
                continue
            with (home / JOURNAL).open("rb") as journal:
                fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
                reaper.reap(home.name.removeprefix(HOME), journal)
        except OSError:  # not a session's, or its command is alive, or another sweep is at work
            continue


def _unwritable(error: OSError) -> HostError:
    return HostError(
        f"The temporary folder cannot be written: {error.strerror}.", "make room in it, or set TMPDIR to another one."
    )
