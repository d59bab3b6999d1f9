"""Limit, measure and report the execution of scripts."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from slslab.host.service_process import trace_writer
from slslab_workers.trace.event import Event

# Longer than any legitimate script: the papers' largest averages take two minutes here.
LIMIT_S = 300.0
# TorchScript can't be interrupted, so it gets this much longer to end by itself.
GRACE_S = 5.0
# Takes the peer's number, the script's name and the event of its execution.
Report = Callable[[int, str, Event], None]
# A longer line than a pipe's atomic write could interleave with another writer's.
RESOURCE_LENGTH = 1024
_running: dict[int, float] = {}


@contextmanager
def limited() -> Iterator[None]:
    """Execute a script in the block under `end_overdue`'s watch."""
    _running[threading.get_ident()] = time.monotonic()
    try:
        yield
    finally:
        del _running[threading.get_ident()]


def end_overdue() -> None:
    """End the process with a message when a script has passed its limit and can't be interrupted."""
    while True:
        time.sleep(GRACE_S)
        if any(time.monotonic() - began > LIMIT_S + GRACE_S for began in list(_running.values())):
            print(f"A script ran for more than {LIMIT_S:g} s and cannot be interrupted.", file=sys.stderr, flush=True)
            os._exit(4)


class Clock:
    """Wall and CPU time of an execution, which happens on the calling thread."""

    def __init__(self) -> None:
        self._cpu_start = time.thread_time_ns()
        self._start = time.monotonic_ns()

    def stop(self, size: int, further_ns: int = 0) -> Event:
        """Return the trace's event; `size` is the inputs' bytes, and `further_ns` another process's CPU time."""
        cpu_ns, now = time.thread_time_ns() - self._cpu_start + further_ns, time.monotonic_ns()
        return Event(op="tensor.script.run", phase="other", start_ns=self._start, end_ns=now, cpu_ns=cpu_ns, bytes=size)


def reporter() -> Report:
    """Return a function that reports executions to the descriptor in SLSLAB_TRACE_FD (docs/trace.md), or drops them
    without one."""
    write = trace_writer()

    def report(peer: int, resource: str, event: Event) -> None:
        event.worker, event.resource = peer, resource[:RESOURCE_LENGTH]
        event.function, event.environment = "tensordb", f"tensordb-{peer}"
        # Only trace records are lost if the reader is gone.
        with suppress(BrokenPipeError):
            write({"record": "event", **event.record()})

    return report
