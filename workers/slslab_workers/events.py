"""The worker's side of the trace: what was done, when, for how long, with how many bytes.

On the emulator, records go framed (4-byte big-endian length, UTF-8 JSON) to the descriptor that SLSLAB_TRACE_FD names,
so that they never enter the function's own log; on AWS, where there is none, each is one JSON log line.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Sink = Callable[[dict[str, Any]], None]


class Span:
    """One event in the making; the code under measurement fills in what only it knows, also what it became."""

    __slots__ = ("bytes", "etag", "failed", "loss", "op", "overhead", "phase", "reads", "requests", "resource")

    def __init__(self, op: str, phase: str, resource: str, overhead: bool) -> None:
        self.op = op
        self.phase = phase
        self.resource = resource
        self.bytes = 0
        self.requests = 0
        self.etag: str | None = None
        self.overhead = overhead
        self.failed = False
        self.reads: tuple[str, ...] = ()
        # Of a minibatch; for those who watch the run, its result has it too.
        self.loss: float | None = None


class Tracer:
    """Emits events with the labels of the present position: run, worker, invocation, epoch and step."""

    def __init__(self, sink: Sink | None = None, run: str = "", worker: int = -1, invocation: str = "") -> None:
        self.run = run
        self.worker = worker
        self.invocation = invocation
        self.epoch = -1
        self.step = -1
        # CPU time of the process at the end of the event before.
        self._cpu_ns = time.process_time_ns()
        self._sink = sink if sink is not None else environment_sink()

    @contextmanager
    def request(self, op: str, phase: str, resource: str, *, overhead: bool) -> Iterator[Span]:
        """One request as an event; one that failed is no part of the training protocol, whatever it was for."""
        with self.span(op, phase, resource, overhead=overhead) as span:
            span.requests = 1
            try:
                yield span
            except Exception:
                span.failed = span.overhead = True
                raise

    @contextmanager
    def span(self, op: str, phase: str, resource: str = "", *, overhead: bool = True) -> Iterator[Span]:
        """Measure what happens inside; `overhead=False` marks the training protocol. Emitted also on an exception."""
        span = Span(op, phase, resource, overhead)
        cpu, start = time.process_time_ns(), time.monotonic_ns()
        try:
            yield span
        finally:
            end, cpu_end = time.monotonic_ns(), time.process_time_ns()
            before, self._cpu_ns = max(0, cpu - self._cpu_ns), cpu_end
            self._sink(
                {
                    "op": span.op,
                    "phase": span.phase,
                    "start_ns": start,
                    "end_ns": end,
                    "cpu_ns": cpu_end - cpu,
                    "cpu_before_ns": before,
                    "bytes": span.bytes,
                    "requests": span.requests,
                    "resource": span.resource,
                    "etag": span.etag,
                    "overhead": span.overhead,
                    "failed": span.failed,
                    "run": self.run,
                    "worker": self.worker,
                    "epoch": self.epoch,
                    "step": self.step,
                    "invocation": self.invocation,
                    **({"reads": span.reads} if span.reads else {}),
                    **({"loss": span.loss} if span.loss is not None else {}),
                }
            )


def environment_sink() -> Sink:
    """Where this process's records go: the trace descriptor, or the log."""
    descriptor = os.environ.get("SLSLAB_TRACE_FD")
    if descriptor is None:
        return _log_line
    number = int(descriptor)

    def write(record: dict[str, Any]) -> None:
        body = json.dumps(record, separators=(",", ":")).encode()
        frame = len(body).to_bytes(4, "big") + body
        # One write is atomic on a pipe up to 4096 bytes, and a record is a few hundred.
        written = os.write(number, frame)
        while written < len(frame):
            written += os.write(number, frame[written:])

    return write


def _log_line(record: dict[str, Any]) -> None:
    print(json.dumps({"slslab": record}, separators=(",", ":")), flush=True)
