"""Write trace events of script executions, as workers write theirs (docs/trace.md)."""

import os
import threading
from contextlib import suppress

from slslab.tensordb.executions import Report
from slslab_workers.channels.events import environment_sink
from slslab_workers.trace.event import Event

# A longer line than a pipe's atomic write could interleave with another writer's.
RESOURCE_LENGTH = 1024


def reporter() -> Report:
    """Return a function that reports executions to the descriptor in SLSLAB_TRACE_FD, or drops them without one."""
    if "SLSLAB_TRACE_FD" not in os.environ:
        return lambda *_: None
    sink = environment_sink()
    lock = threading.Lock()

    def report(peer: int, resource: str, event: Event) -> None:
        event.worker, event.resource = peer, resource[:RESOURCE_LENGTH]
        event.function, event.environment = "tensordb", f"tensordb-{peer}"
        # Only trace records are lost if the reader is gone.
        with lock, suppress(BrokenPipeError):
            sink({"record": "event", **event.record()})

    return report
