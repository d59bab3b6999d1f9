"""The worker's side of the trace: what it did, when, for how long, with how many bytes.

In the emulator, each record is a line of JSON on the descriptor in SLSLAB_TRACE_FD, so that the function's own log
never gets it. On AWS, without that descriptor, each is a line of the log.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from slslab_workers.trace.event import Event

Sink = Callable[[dict[str, Any]], None]


class Tracer:
    """Emits events with the current labels: run, worker, invocation, epoch and step."""

    # Injects workers' faults: called before every event of this process.
    fault: ClassVar[Callable[[Event], None] | None] = None

    def __init__(self, sink: Sink | None = None, run: str = "", worker: int = -1, invocation: str = "") -> None:
        self.run = run
        self.worker = worker
        self.invocation = invocation
        self.epoch = -1
        self.step = -1
        # CPU time of the process at the end of the last event.
        self._cpu_ns = time.process_time_ns()
        self._sink = sink if sink is not None else environment_sink()

    @contextmanager
    def span(
        self, op: str, phase: str, resource: str = "", *, overhead: bool = True, bytes: int = 0, requests: int = 0
    ) -> Iterator[Event]:
        """Measure the block as an event, which the block may complete; also emitted if the block raises.

        `overhead=False` marks the training protocol.
        """
        event = Event(
            run=self.run,
            worker=self.worker,
            invocation=self.invocation,
            epoch=self.epoch,
            step=self.step,
            op=op,
            phase=phase,
            bytes=bytes,
            requests=requests,
            resource=resource,
            overhead=overhead,
        )
        if Tracer.fault is not None:
            Tracer.fault(event)
        cpu, event.start_ns = time.process_time_ns(), time.monotonic_ns()
        try:
            yield event
        finally:
            event.end_ns, cpu_end = time.monotonic_ns(), time.process_time_ns()
            event.cpu_ns, event.cpu_before_ns = cpu_end - cpu, max(0, cpu - self._cpu_ns)
            self._cpu_ns = cpu_end
            self._sink(event.record())


def environment_sink() -> Sink:
    """Return a function that writes this process's records: to the trace descriptor, or to the log."""
    descriptor = os.environ.get("SLSLAB_TRACE_FD")
    if descriptor is None:
        return _log_line
    number = int(descriptor)

    def write(record: dict[str, Any]) -> None:
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        # A pipe writes up to 4096 bytes atomically, and a record has a few hundred.
        written = os.write(number, line)
        while written < len(line):
            written += os.write(number, line[written:])

    return write


def _log_line(record: dict[str, Any]) -> None:
    print(json.dumps({"slslab": record}, separators=(",", ":")), flush=True)
