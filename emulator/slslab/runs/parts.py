"""End a run at once when a part of its stack has ended, instead of when all who ask that part have given up."""

import os
import select
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from slslab.host.server_process import ServerProcess
from slslab_workers.architecture import RunFailed


class Parts:
    """The servers of a stack, by name, of which all are needed; `logs` is where one that ends leaves its output."""

    def __init__(self, servers: Mapping[str, ServerProcess], logs: Path) -> None:
        self._servers = servers
        self._logs = logs
        self._watching = False
        self._failure: RunFailed | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Break off the block and raise RunFailed when a server ends; it is entered on the main thread."""
        with ExitStack() as undo:
            exits = {self._exit_of(server, undo): name for name, server in self._servers.items()}
            ending = os.eventfd(0)
            undo.callback(os.close, ending)
            undo.callback(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, self._interrupt))
            watcher = threading.Thread(target=self._watch, args=(exits, ending), name="parts", daemon=True)
            watcher.start()
            undo.callback(watcher.join)
            undo.callback(os.eventfd_write, ending, 1)
            try:
                self._watching = True
                yield
            finally:
                self._watching = False
                undo.close()
                self.check()

    def check(self, **_: Any) -> None:
        """Raise RunFailed if a server has ended; a handler of botocore's events, too."""
        if self._failure is not None:
            raise self._failure

    @staticmethod
    def _exit_of(server: ServerProcess, undo: ExitStack) -> int:
        """Return a descriptor that can be read once the server has ended."""
        descriptor = os.pidfd_open(server.pid)
        undo.callback(os.close, descriptor)
        return descriptor

    def _watch(self, exits: Mapping[int, str], ending: int) -> None:
        poll = select.poll()
        for descriptor in (*exits, ending):
            poll.register(descriptor, select.POLLIN)
        ended = [descriptor for descriptor, _ in poll.poll() if descriptor in exits]
        if not ended:
            return
        name = exits[ended[0]]
        # Its status is left for who stops the server.
        status = os.waitid(os.P_PIDFD, ended[0], os.WEXITED | os.WNOWAIT)
        assert status is not None
        exited = status.si_code == os.CLD_EXITED
        how = f"exit status {status.si_status}" if exited else f"killed by {signal.Signals(status.si_status).name}"
        with suppress(OSError):  # on a full disk, of which it may have ended
            (self._logs / f"{name}.log").write_text(self._servers[name].output())
        self._failure = RunFailed("StackFailed", f"the {name.replace('_', ' ')} ended ({how})")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._watching:
            raise KeyboardInterrupt
