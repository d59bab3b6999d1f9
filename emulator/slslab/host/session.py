"""What a command makes and must not leave behind, in whatever way it ends."""

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
    """A temporary home, and a reaper process that removes what a command made, also after `kill -9`.

    `mark` is the environment variable by which the reaper knows the command's processes. If the reaper is killed, too,
    the next session removes what is left. Raises HostError where the temporary folder cannot be written.
    """

    def __init__(self) -> None:
        self.id = f"{os.getpid()}-{secrets.token_hex(4)}"
        self.mark = {reaper.MARK: self.id}
        self._reaper: subprocess.Popen[bytes] | None = None

    def _enter(self, stack: ExitStack) -> None:
        try:
            folder = Path(tempfile.gettempdir()).absolute()  # TMPDIR may be `.`, and others have other directories
            sweep(folder)
            self.home = folder / f"{HOME}{self.id}"
            stack.callback(self._end)
            self.home.mkdir(mode=0o700)
            unlocked = self.home / f".{JOURNAL}"
            self._journal = stack.enter_context(unlocked.open("ab", buffering=0))
            fcntl.flock(self._journal, fcntl.LOCK_EX)
            # Only now, as a journal that is not locked is that of a command that was killed.
            journal = unlocked.rename(self.home / JOURNAL)
        except OSError as error:
            raise _unwritable(error) from error
        # In a session of its own, so that Ctrl-C in the terminal reaches the command alone.
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
        """Have this control group removed at the end, with the groups in it, and their processes killed."""
        self._note(f"cgroup {path}")

    def watch_containers(self, there_are: bool) -> None:
        """Have the engine's containers with this command's mark removed at the end; none, when none is left."""
        self._note(f"containers {'yes' if there_are else 'no'}")

    def _note(self, line: str) -> None:
        try:
            append(self._journal.fileno(), os.fsencode(f"{line}\n"))
        except OSError as error:
            raise _unwritable(error) from error


def sweep(folder: Path) -> None:
    """Remove what sessions below this folder have left whose commands were killed together with their reapers.

    Such a session is known by its journal, which nobody holds the lock of any more. In a folder that others may write
    to, only homes of this user count, which nobody else can have made or changed.
    """
    for home in folder.glob(f"{HOME}*"):
        try:
            made = home.lstat()
            if not stat.S_ISDIR(made.st_mode) or made.st_uid != os.geteuid() or made.st_mode & 0o077:
                continue
            with (home / JOURNAL).open("rb") as journal:
                fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
                reaper.reap(home.name.removeprefix(HOME), journal)
        except OSError:  # it is not a session's, or its command lives, or another one sweeps
            continue


def _unwritable(error: OSError) -> HostError:
    return HostError(
        f"The temporary folder cannot be written: {error.strerror}.", "make room in it, or name another in TMPDIR."
    )
