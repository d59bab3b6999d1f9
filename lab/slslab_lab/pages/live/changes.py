"""Report when runs change: their files, by the kernel's notifications, and the ends of their commands."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from watchfiles import Change, awatch

from slslab.run.directory import DOCUMENT, LOCK, PLAN, RunDirectory, list_runs
from slslab.run.log import LOG

FILES = frozenset({PLAN, LOG, LOCK, DOCUMENT})
# Report successive changes together, so that watching a run costs it little.
TOGETHER_MS = 1000
QUIET_MS = 100


class Changes:
    """Reports changes to subscribers of a run, by its directory's name, or of all runs ("")."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._subscribers: dict[asyncio.Event, str] = {}
        self._ends: dict[str, int] = {}
        self._over = asyncio.Event()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch during the block; at its end wake all subscribers, with `over` true."""
        for run in list_runs(self._folder):
            self._await_end(run)
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self.end()
            await task
            for name in list(self._ends):
                self._forget(name)

    @property
    def over(self) -> bool:
        """Return whether no more changes will be reported."""
        return self._over.is_set()

    def end(self) -> None:
        """Stop reporting, and wake all subscribers."""
        self._over.set()
        for event in self._subscribers:
            event.set()

    @contextmanager
    def subscribe(self, name: str = "") -> Iterator[asyncio.Event]:
        """Yield an event that is set when the run changes, and when watching ends."""
        event = asyncio.Event()
        self._subscribers[event] = name
        try:
            yield event
        finally:
            del self._subscribers[event]

    def _report(self, name: str) -> None:
        for event, subject in self._subscribers.items():
            if subject in ("", name):
                event.set()

    async def _watch(self) -> None:
        async for changes in awatch(
            self._folder,
            watch_filter=self._matters,
            debounce=TOGETHER_MS,
            step=QUIET_MS,
            stop_event=self._over,
            rust_timeout=0,
        ):
            for name in sorted({Path(path).relative_to(self._folder).parts[0] for _, path in changes}):
                self._await_end(RunDirectory(self._folder / name))
                self._report(name)

    def _matters(self, _: Change, path: str) -> bool:
        parts = Path(path).relative_to(self._folder).parts
        return len(parts) == 1 or (len(parts) == 2 and parts[1] in FILES)

    def _await_end(self, run: RunDirectory) -> None:
        """Report the end of a run's command by its process, since a killed command changes no file."""
        name = run.path.name
        if name in self._ends or (process := run.process()) is None:
            return
        self._ends[name] = process
        asyncio.get_running_loop().add_reader(process, self._ended, name)

    def _ended(self, name: str) -> None:
        self._forget(name)
        self._report(name)

    def _forget(self, name: str) -> None:
        process = self._ends.pop(name)
        asyncio.get_running_loop().remove_reader(process)
        os.close(process)
