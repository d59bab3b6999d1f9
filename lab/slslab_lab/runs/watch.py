"""Stop a run as soon as it can't continue, instead of after all clients of an ended server have given up."""

import os
import select
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from slslab.host.interrupts import Interrupts
from slslab.host.managed import Managed
from slslab.host.server_process import ServerProcess
from slslab_workers.architecture import RunFailed

REPEAT_S = 0.05


class Watch(Managed):
    """Interrupts the driver if another thread reports a failure, or a server that the run needs ends.

    `logs` is the folder for an ended server's output.
    """

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._within = False
        self._interrupts = Interrupts()
        self._failure: RunFailed | None = None

    def _enter(self, stack: ExitStack) -> None:
        self._wake = os.eventfd(0)
        stack.callback(os.close, self._wake)

    def fail(self, failure: RunFailed) -> None:
        """Interrupt the driver, from any thread; the first failure counts."""
        self._failure = self._failure or failure
        os.eventfd_write(self._wake, 1)

    def check(self, **_: Any) -> None:
        """Raise the failure, if there is one; also a handler of botocore's events."""
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def watched(self, servers: Mapping[str, ServerProcess]) -> Iterator[None]:
        """Interrupt the block and raise RunFailed after a failure; use it on the main thread."""
        with ExitStack() as undo:
            exits: dict[int, str] = {}
            for name, server in servers.items():
                descriptor = os.pidfd_open(server.pid)  # becomes readable when the server ends
                undo.callback(os.close, descriptor)
                exits[descriptor] = name
            undo.callback(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, self._interrupt))
            watcher = threading.Thread(target=self._await_failure, args=(servers, exits), name="watch", daemon=True)
            try:
                self._within = True
                watcher.start()
                yield
            finally:
                self._within = False
                os.eventfd_write(self._wake, 1)
                watcher.join()
                self.check()

    def _await_failure(self, servers: Mapping[str, ServerProcess], exits: Mapping[int, str]) -> None:
        poll = select.poll()
        for descriptor in (*exits, self._wake):
            poll.register(descriptor, select.POLLIN)
        ended = [descriptor for descriptor, _ in poll.poll() if descriptor in exits]
        if ended:
            name = exits[ended[0]]
            with suppress(OSError):  # the disk may be full, which may be why it ended
                (self.logs / f"{name}.log").write_text(servers[name].output())
            self._failure = RunFailed("StackFailed", f"the {name.replace('_', ' ')} ended ({servers[name].end()})")
        if self._failure is not None:
            # Repeat the signal: it doesn't wake the main thread if it arrives just before that begins to wait, and has
            # no effect where nothing may be raised.
            while self._within:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
                time.sleep(REPEAT_S)

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        if self._within and self._interrupts.may_raise(frame):
            self._within = False
            raise KeyboardInterrupt
