"""What a command makes must be gone when it ends, in whatever way."""

import os
import secrets
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from slslab.reaper import MARK, Reaper


class Session:
    """What must be gone when a command ends, in whatever way: a temporary home, and a reaper that outlives a kill."""

    def __init__(self) -> None:
        self.id = f"{os.getpid()}-{secrets.token_hex(4)}"

    def __enter__(self) -> Self:
        self.home = Path(tempfile.mkdtemp(prefix=f"slslab-{self.id}-"))
        self._reaper = Reaper(self.id)
        self._reaper.watch(self.home)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._reaper.finish()

    @property
    def mark(self) -> dict[str, str]:
        """The environment variable by which the reaper knows this command's processes."""
        return {MARK: self.id}

    def watch(self, path: Path) -> None:
        """Have the reaper remove this file or directory in the end."""
        self._reaper.watch(path)

    def watch_cgroup(self, path: Path) -> None:
        """Have the reaper remove this control group in the end, and kill what is in it."""
        self._reaper.watch_cgroup(path)

    def watch_containers(self) -> None:
        """Have the reaper remove the engine's containers with this command's mark in the end."""
        self._reaper.watch_containers()

    def forget_containers(self) -> None:
        """They are gone already."""
        self._reaper.forget_containers()
