"""Start servers lazily: their address exists at once, and the process starts with the first request.

The socket is bound here and passed on. A client that connects before the process is ready waits in the socket's queue.
"""

import os
import select
import socket
import threading

from slslab.host.server_process import ServerProcess


class LazyServer(ServerProcess):
    """A module of this package behind a socket that listens from the start.

    A subclass makes the socket in `_listen` and launches the module with it in `_launch_at`. Without `lazy` the
    process starts at once, in the background.
    """

    lazy = True
    _answered = False

    @property
    def memory_mb(self) -> int:
        """The memory that the process may use, MB: enough for a thousand threads with stacks of 4 MB."""
        # assumed. measured: after a first request, Step Functions, the endpoint and moto's services use 43 to 97 MB.
        return min(4096, super().memory_mb)

    @property
    def pid(self) -> int | None:  # type: ignore[override]
        """The process id; None before the process has started."""
        return None if self._process is None else self._process.pid

    def ready(self) -> None:
        """Wait until it answers, unless it hasn't been started yet. Raises HostError if it exited instead."""
        if self._process is None:
            return
        with self._asking:
            self._answered = self._answered or self._report() is not None
        if not self._answered:
            raise self._did_not_start(self.output())

    def _listen(self) -> socket.socket:
        raise NotImplementedError

    def _launch_at(self, listener: socket.socket) -> None:
        """Launch the module, which inherits the socket."""
        raise NotImplementedError

    def _start(self) -> bool:
        self._asking = threading.Lock()
        listener = self._undo.enter_context(self._listen())
        if not self.lazy:
            self._hand_over(listener)
            return True
        ending = os.eventfd(0)
        self._undo.callback(os.close, ending)
        waiting = threading.Thread(target=self._wait_for_request, args=(listener, ending), daemon=True)
        waiting.start()
        self._undo.callback(waiting.join)
        self._undo.callback(os.eventfd_write, ending, 1)
        return True

    def _wait_for_request(self, listener: socket.socket, ending: int) -> None:
        poll = select.poll()
        for descriptor in (listener.fileno(), ending):
            poll.register(descriptor, select.POLLIN)
        if ending not in dict(poll.poll()):
            self._hand_over(listener)

    def _hand_over(self, listener: socket.socket) -> None:
        self._launch_at(listener)
        # If the process exits, its clients' connections break; with the socket open here, they would wait forever.
        listener.close()
