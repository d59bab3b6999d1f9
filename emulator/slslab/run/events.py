"""Trace events that the emulator and the stack write themselves, and the clock that all events share."""

import time
from pathlib import Path
from typing import Any

from slslab_workers.trace.event import Event


def own_event(op: str, start_ns: int, request_id: str, *, resource: str, function: str) -> dict[str, Any]:
    """Return the record of an event of the emulator's own, from `start_ns` until now."""
    event = Event(
        op=op,
        phase="other",
        start_ns=start_ns,
        end_ns=time.monotonic_ns(),
        resource=resource,
        invocation=request_id,
        function=function,
        environment="",
    )
    return {"record": "event", **event.record()}


def clock_domain() -> str:
    """Return the name of this host's clock since its boot; times of one domain can be compared."""
    return f"monotonic@{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
