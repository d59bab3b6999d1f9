"""Find out how much this host delayed a run, and whether that is too much: then the run is marked as oversubscribed."""

from collections.abc import Mapping, Sequence
from typing import Any

# Of the time of all invocations and instances.
OVERSUBSCRIBED = 0.02
# If this host may account for a larger share of an invocation's time, the invocation is marked.
UNCERTAIN = 0.1
Record = Mapping[str, Any]


def oversubscribed(records: Sequence[Record]) -> bool:
    """Return whether this host delayed invocations or instances by more than 2 % of their time.

    If so, their CPU seconds may also be higher than on an idle host."""
    time_ms = sum(record["duration_ms"] + (record["init_ms"] or 0.0) for record in records)
    return bool(sum(record["host_delay_ms"] for record in records) > OVERSUBSCRIBED * time_ms)


def delayed(records: Sequence[Record], instances: Sequence[Record] = ()) -> float:
    """Return the share of the wall time of invocations and instances that this host delayed them, from 0 to 1."""
    ran = (*records, *instances)
    wall_ms = sum((one["end_ns"] - one["start_ns"]) / 1e6 + (one.get("init_ms") or 0.0) for one in ran)
    return min(1.0, float(sum(one["host_delay_ms"] for one in ran)) / wall_ms) if wall_ms else 0.0


def uncertain(record: Record) -> bool:
    """Return whether waits that this host prolonged may be more than a tenth of an invocation's time."""
    return bool((record.get("uncertain_ms") or 0.0) > UNCERTAIN * (record["duration_ms"] + (record["init_ms"] or 0.0)))
