"""Read the requests to the embedded S3 server, and functions' to SQS, from a log; AWS bills each."""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from slslab.host.managed import Managed
from slslab.host.output import PipeReader
from slslab.run.events import own_event

# Read the requests of this long together: each wake-up costs more than ten requests.
TOGETHER_S = 0.02


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
        self._rest = b""

    def _enter(self, stack: ExitStack) -> None:
        self._pipe = PipeReader("access-log", self._feed, TOGETHER_S)
        self.writer = self._pipe.writing
        stack.callback(self._pipe.join)
        stack.callback(os.close, self.writer)

    def drain(self) -> None:
        """Pass on everything that the server has written so far."""
        self._pipe.settle()

    def take(self, record: Mapping[str, Any]) -> None:
        """Pass on the poll of an event source; ignore other trace records."""
        if record.get("op", "").startswith("sqs."):
            moved = record["start_ns"], record["end_ns"], record["bytes"]
            self._on_request(Logged(record["op"], record["function"], *moved))

    def _feed(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._on_request(Logged(*json.loads(line)))
