"""Write trace events of script executions, in the workers' framed format (docs/trace.md)."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from slslab.tensordb.executions import Usage
from slslab_workers.channels.events import environment_sink
from slslab_workers.trace.event import Event

# A longer frame than a pipe's atomic write could interleave with another writer's.
RESOURCE_LENGTH = 1024


def reporter() -> Callable[[int, str, Usage], None]:
    """Return a function that reports executions to the descriptor in SLSLAB_TRACE_FD, or drops them without one."""
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
        # Only trace records are lost if the reader is gone.
        with lock, suppress(BrokenPipeError):
            sink({"record": "event", **event.record()})

    return report
