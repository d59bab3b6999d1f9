"""Read the processes and threads of one environment again and again, cheaply."""

import os
from collections.abc import Callable

from slslab.host.procfs import ThreadTimes, schedstats, thread_times

KEPT = 64


class KeptFiles:
    """Files of processes in /proc. They stay open, because opening one takes several times as long as reading it."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def read(self, path: str) -> bytes:
        """Return a file's content; empty if its process or thread has exited."""
        try:
            return os.pread(self._descriptor(path, os.O_RDONLY), 8192, 0)
        except OSError:
            self._forget(path)
            return b""

    def write(self, path: str, data: bytes) -> None:
        """Write to a file, unless its process has exited."""
        try:
            os.pwrite(self._descriptor(path, os.O_WRONLY), data, 0)
        except OSError:
            self._forget(path)

    def close(self) -> None:
        """Close all files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor(self, path: str, flags: int) -> int:
        descriptor = self._open.get(path)
        if descriptor is None:
            if len(self._open) >= KEPT:  # some may be of processes that have exited
                self.close()
            descriptor = self._open[path] = os.open(path, flags | os.O_CLOEXEC)
        return descriptor

    def _forget(self, path: str) -> None:
        if path in self._open:
            os.close(self._open.pop(path))


class Tasks:
    """The processes and threads of one environment at the last reading: `pids`, and the `times` of each thread.

    `find` lists the processes, and `count` returns the number of threads, where that is known. While that number stays
    the same and no thread has exited, nothing is listed again. `files` keeps the open files.
    """

    def __init__(self, find: Callable[[], list[int]], count: Callable[[], int | None]) -> None:
        self.pids: list[int] = []
        self.times: dict[int, ThreadTimes] = {}
        self.files = KeptFiles()
        self._find = find
        self._count = count
        self._schedstats: dict[int, str] = {}

    def read(self) -> None:
        """Read them now."""
        if self._count() == len(self._schedstats):
            self.times = thread_times(self._schedstats, self.files.read)
            if len(self.times) == len(self._schedstats):
                return
        self.pids = self._find()
        self._schedstats = schedstats(self.pids)
        self.times = thread_times(self._schedstats, self.files.read)
