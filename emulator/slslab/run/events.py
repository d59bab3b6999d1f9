"""Trace events that the emulator and the stack write themselves, and the clock that all events share."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slslab_workers.trace.event import Event

# Every invocation has such an event, and to make a record anew takes several times as long as to copy one.
OWN = {"record": "event", **Event(op="", phase="other", function="", environment="").record()}


def own_event(op: str, start_ns: int, request_id: str, *, resource: str, function: str, **more: Any) -> dict[str, Any]:
    """Return the record of an event of the emulator's own, from `start_ns` until now, with `more` of its fields."""
    times = {"start_ns": start_ns, "end_ns": time.monotonic_ns()}
    return {**OWN, "op": op, **times, "resource": resource, "invocation": request_id, "function": function, **more}


def host_until(begun: Mapping[str, Any], end_ns: int) -> dict[str, Any]:
    """Return the event of a host that has begun (`launch_record`) as if it ended then, with what its bill needs."""
    return {**begun, "op": "host.run", "resource": begun["type"], "end_ns": max(end_ns, begun["start_ns"])}


def clock_domain() -> str:
    """Return the name of this host's clock since its boot; times of one domain can be compared."""
    return f"monotonic@{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
