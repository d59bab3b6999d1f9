"""Turn a trace's log into its events, with fields that need the whole log: number, causes, host delay."""

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slslab.run.causes import find_causes
from slslab.run.metrics import Rows, grouped
from slslab_workers.trace.event import FIELDS

SCHEMA = 2
# The keys of an event, in this order.
NAMES = ("event", *(name for name in FIELDS if name not in ("reads", "loss")), "causes")


@dataclass(frozen=True)
class Trace:
    """A trace: its events (with the keys NAMES), ordered by start, and whether its log broke off within a line."""

    events: Rows
    torn: bool


def tabulate(records: Sequence[Mapping[str, Any]]) -> Rows:
    """Return the events of a log's records (the header comes first), with the keys NAMES."""
    header = records[0]
    events = [record for record in records if record["record"] == "event"]
    # Events that start at the same time are ordered by their ends, then by arrival, so that numbers are reproducible.
    events.sort(key=lambda event: (event["start_ns"], event["end_ns"]))
    delays = _host_delays(events, [record for record in records if record["record"] == "clock"])
    found: Rows = []
    for number, (event, delay, causes) in enumerate(zip(events, delays, find_causes(events), strict=True)):
        added = {
            "event": number,
            "run": header["run"],
            "clock": header["clock"],
            "host_delay_ns": delay,
            # Only workers' events have this field.
            "cpu_before_ns": event.get("cpu_before_ns", 0),
            "causes": causes,
        }
        found.append({name: added[name] if name in added else event[name] for name in NAMES})
    return found


def _host_delays(events: Sequence[Mapping[str, Any]], samples: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the host delay within each event, ns, interpolated between its environment's samples; 0 outside them."""
    sampled = grouped((sample["environment"], (sample["wall_ns"], sample["host_delay_ns"])) for sample in samples)
    members = grouped((e["environment"], number) for number, e in enumerate(events) if e["environment"] in sampled)
    delays = [0] * len(events)
    for environment, numbers in members.items():
        walls, totals = zip(*sorted(sampled[environment]), strict=True)
        for number in numbers:
            start_ns, end_ns = events[number]["start_ns"], events[number]["end_ns"]
            # Round before subtracting, so that delays of adjacent events add up.
            delay_ns = _interpolated(end_ns, walls, totals) - _interpolated(start_ns, walls, totals)
            delays[number] = max(0, min(delay_ns, end_ns - start_ns))
    return delays


def _interpolated(wall_ns: int, walls: Sequence[int], totals: Sequence[int]) -> int:
    """Return the total at a time, linearly interpolated, in integers: floats can't hold ns since the boot exactly."""
    after = bisect(walls, wall_ns)
    if after in (0, len(walls)):
        return totals[max(0, after - 1)]
    span, before = walls[after] - walls[after - 1], totals[after - 1]
    return before + ((totals[after] - before) * (wall_ns - walls[after - 1]) + span // 2) // span
