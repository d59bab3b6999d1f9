"""Trace events of script executions, in the framed format of the workers' (docs/trace.md)."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from slslab.tensordb.executions import Usage
from slslab_workers.channels.events import environment_sink
from slslab_workers.trace.event import Event

# A frame longer than a pipe's atomic write could interleave with one of another writer.
RESOURCE_LENGTH = 1024


def reporter() -> Callable[[int, str, Usage], None]:
    """Return what reports executions to the descriptor that SLSLAB_TRACE_FD names; without one it drops them."""
    if "SLSLAB_TRACE_FD" not in os.environ:
        return lambda *_: None
    sink = environment_sink()
    lock = threading.Lock()

    def report(peer: int, resource: str, usage: Usage) -> None:
        event = Event(
            op="tensor.script.run",
            phase="other",
            start_ns=usage.start_ns,
            end_ns=usage.end_ns,
            cpu_ns=usage.cpu_ns,
            bytes=usage.bytes,
            resource=resource[:RESOURCE_LENGTH],
            worker=peer,
            function="tensordb",
            environment=f"tensordb-{peer}",
        )
        # A reader that has gone away loses trace records only.
        with lock, suppress(BrokenPipeError):
            sink({"record": "event", **event.record()})

    return report
