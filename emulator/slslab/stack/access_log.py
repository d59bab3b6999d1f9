"""The requests to the embedded S3 server, as it reports them: each is one of the requests that AWS bills."""

import os
import select
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Self

CHUNK_BYTES = 65_536
# Requests of so long are read together: each awakening costs more than ten of them do.
TOGETHER_MS = 20
# HEAD and all other reads cost what GET costs; a multipart upload's beginning and its end are POST. documented: Amazon
# S3 pricing, "Requests & data retrievals".
OPERATIONS = {ord("p"): "object.put", ord("l"): "object.list", ord("g"): "object.get", ord("d"): "object.delete"}


class AccessLog:
    """Reads a pipe on a thread of its own, as a context manager that the server is within.

    The server writes a letter to `writer` for every request, before it answers it. `on_request` is called with its
    operation (`object.put`, `object.list`, `object.get`, `object.delete`), the last one before the context has ended.
    """

    def __init__(self, on_request: Callable[[str], None]) -> None:
        self._on_request = on_request
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._reader, self.writer = os.pipe2(os.O_CLOEXEC)
            undo.callback(os.close, self._reader)
            undo.callback(self.drain)
            os.set_blocking(self._reader, False)
            ending = os.eventfd(0, os.EFD_CLOEXEC)
            undo.callback(os.close, ending)
            thread = threading.Thread(target=self._read, args=(ending,), name="s3-access", daemon=True)
            thread.start()
            undo.callback(thread.join)
            undo.callback(os.eventfd_write, ending, 1)
            undo.callback(os.close, self.writer)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def drain(self) -> None:
        """Pass on what the server has written until now."""
        with self._lock, suppress(BlockingIOError):
            while letters := os.read(self._reader, CHUNK_BYTES):
                for letter in letters:
                    self._on_request(OPERATIONS[letter])

    def _read(self, ending: int) -> None:
        poll, waiting = select.poll(), select.poll()
        for descriptor in (self._reader, ending):
            poll.register(descriptor, select.POLLIN)
        waiting.register(ending, select.POLLIN)
        while ending not in dict(poll.poll()):
            self.drain()
            waiting.poll(TOGETHER_MS)
