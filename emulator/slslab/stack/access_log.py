"""Read the requests to the embedded S3 server, and functions' to SQS, from a log; AWS bills each."""

import json
import os
import select
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from slslab.host.managed import Managed
from slslab.run.events import own_event

CHUNK_BYTES = 65_536
# Read the requests of this long together: each wake-up costs more than ten requests.
TOGETHER_MS = 20


@dataclass(frozen=True)
class Logged:
    """A request that the server has answered.

    `operation` is `object.put`, `object.list`, `object.get`, `object.delete`, or one of SQS's. `function` is the name
    of the function that sent it, empty for other clients. `start_ns` and `end_ns` are when it began and when the last
    part of the answer was sent (ns of CLOCK_MONOTONIC). `size` is the bytes of objects or messages that it moved.
    """

    operation: str
    function: str
    start_ns: int
    end_ns: int
    size: int

    def event(self) -> dict[str, Any]:
        """Return the request of a function as an event of a trace."""
        event = own_event(self.operation, self.start_ns, "", resource="", function=self.function)
        return {**event, "end_ns": self.end_ns, "bytes": self.size, "requests": 1, "overhead": False}


class AccessLog(Managed):
    """Reads a pipe on a thread of its own; a context manager around the servers.

    For each request a server writes a line to `writer` before the last part of its answer: a JSON list of the fields
    of `Logged`. `on_request` is called for each; the last call returns before the context ends.
    """

    def __init__(self, on_request: Callable[[Logged], None]) -> None:
        self._on_request = on_request
        self._lock = threading.Lock()
        self._rest = b""

    def _enter(self, stack: ExitStack) -> None:
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC)
        stack.callback(os.close, self._reader)
        stack.callback(self.drain)
        os.set_blocking(self._reader, False)
        ending = os.eventfd(0, os.EFD_CLOEXEC)
        stack.callback(os.close, ending)
        thread = threading.Thread(target=self._read, args=(ending,), name="access-log", daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(os.eventfd_write, ending, 1)
        stack.callback(os.close, self.writer)

    def drain(self) -> None:
        """Pass on everything that the server has written so far."""
        with self._lock, suppress(BlockingIOError):
            while chunk := os.read(self._reader, CHUNK_BYTES):
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                for line in lines:
                    self._on_request(Logged(*json.loads(line)))

    def take(self, record: Mapping[str, Any]) -> None:
        """Pass on the poll of an event source; ignore other trace records."""
        if record.get("op", "").startswith("sqs."):
            moved = record["start_ns"], record["end_ns"], record["bytes"]
            self._on_request(Logged(record["op"], record["function"], *moved))

    def _read(self, ending: int) -> None:
        poll, waiting = select.poll(), select.poll()
        for descriptor in (self._reader, ending):
            poll.register(descriptor, select.POLLIN)
        waiting.register(ending, select.POLLIN)
        while ending not in dict(poll.poll()):
            self.drain()
            waiting.poll(TOGETHER_MS)
