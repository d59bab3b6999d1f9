"""Trace events of script executions, in the framed format of the workers' (docs/trace.md)."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from slslab.tensordb.scripts import Usage
from slslab_workers.events import environment_sink

Report = Callable[[int, str, Usage], None]
# A frame longer than a pipe's atomic write could meet one of another writer.
RESOURCE_LENGTH = 1024


def reporter() -> Report:
    """What tells of executions: to the descriptor that SLSLAB_TRACE_FD names, or to nobody."""
    if "SLSLAB_TRACE_FD" not in os.environ:
        return lambda *_: None
    sink = environment_sink()
    lock = threading.Lock()

    def report(peer: int, resource: str, usage: Usage) -> None:
        # Who does not read its trace any more, loses that and nothing else.
        with lock, suppress(BrokenPipeError):
            sink(_event(peer, resource, usage))

    return report


def _event(peer: int, resource: str, usage: Usage) -> dict[str, object]:
    return {
        "record": "event",
        "op": "tensor.script.run",
        "phase": "other",
        "start_ns": usage.start_ns,
        "end_ns": usage.end_ns,
        "cpu_ns": usage.cpu_ns,
        "bytes": usage.bytes,
        "requests": 0,
        "resource": resource[:RESOURCE_LENGTH],
        "etag": None,
        "overhead": True,
        "failed": False,
        "run": "",
        "worker": peer,
        "epoch": -1,
        "step": -1,
        "invocation": "",
        "function": "tensordb",
        "environment": f"tensordb-{peer}",
    }
