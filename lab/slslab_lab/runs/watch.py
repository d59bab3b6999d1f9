"""Stop a run as soon as it can't continue, instead of after all clients of an ended server have given up."""

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from slslab.host.interrupts import Interrupts
from slslab.host.server_process import ServerProcess
from slslab_workers.architecture import RunFailed

LOOK_S = 0.05


class Watch:
    """Interrupts the driver if another thread reports a failure, or a server that the run needs ends.

    `logs` is the folder for an ended server's output.
    """

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._within = False
        self._interrupts = Interrupts()
        self._failure: RunFailed | None = None

    def fail(self, failure: RunFailed) -> None:
        """Interrupt the driver, from any thread; the first failure counts."""
        self._failure = self._failure or failure

    def check(self, **_: Any) -> None:
        """Raise the failure, if there is one; also a handler of botocore's events."""
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def watched(self, servers: Mapping[str, ServerProcess]) -> Iterator[None]:
        """Interrupt the block and raise RunFailed after a failure; use it on the main thread."""
        before = signal.signal(signal.SIGUSR1, self._interrupt)
        watcher = threading.Thread(target=self._look, args=(servers,), name="watch", daemon=True)
        try:
            self._within = True
            watcher.start()
            yield
        finally:
            self._within = False
            watcher.join()
            signal.signal(signal.SIGUSR1, before)
            self.check()

    def _look(self, servers: Mapping[str, ServerProcess]) -> None:
        """Look until the end of the block, and once more: what failed last may be why it ended."""
        within = True
        while within:
            within = self._within
            for name, server in servers.items():
                if self._failure is None and (end := server.end()) is not None:
                    with suppress(OSError):  # the disk may be full, which may be why it ended
                        (self.logs / f"{name}.log").write_text(server.output())
                    self.fail(RunFailed("StackFailed", f"the {name.replace('_', ' ')} ended ({end})"))
            if within:
                if self._failure is not None:
                    # Every time: a signal doesn't wake the main thread if it arrives just before that begins to wait,
                    # and has no effect where nothing may be raised.
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
                time.sleep(LOOK_S)

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        if self._within and self._interrupts.may_raise(frame):
            self._within = False
            raise KeyboardInterrupt
