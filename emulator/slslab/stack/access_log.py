"""Read the requests to the embedded S3 server, and functions' to SQS, from a log; AWS bills each."""

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from slslab.host.managed import Managed
from slslab.host.output import PipeReader
from slslab.run.events import own_event

# Read the requests of this long together: each wake-up costs more than ten requests.
TOGETHER_S = 0.02


class AccessLog(Managed):
    """Reads a pipe on a thread of its own; a context manager around the servers.

    For each request a server writes a line to `writer` before the last part of its answer: a JSON list of the operation
    (`object.put`, `object.list`, `object.get`, `object.delete`, or one of SQS's), the name of the function that sent it
    (empty for other clients), when it began and when the last part of the answer was sent (ns of CLOCK_MONOTONIC), and
    the bytes of objects or messages that it moved. `on_request` is called with the trace event of each; the last call
    returns before the context ends.
    """

    def __init__(self, on_request: Callable[[dict[str, Any]], None]) -> None:
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

    def take(self, record: dict[str, Any]) -> None:
        """Pass on the poll of an event source; ignore other trace records."""
        if record.get("op", "").startswith("sqs."):
            self._on_request(record)

    def _feed(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            operation, function, start_ns, end_ns, size = json.loads(line)
            event = own_event(operation, start_ns, "", resource="", function=function)
            self._on_request({**event, "end_ns": end_ns, "bytes": size, "requests": 1, "overhead": False})
