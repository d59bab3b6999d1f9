"""Turn a trace's log into its events, with fields that need the whole log: number, causes, host delay."""

from bisect import bisect, bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slslab.run.metrics import Rows, grouped
from slslab_workers.trace.event import FIELDS
from slslab_workers.trace.operations import ALL_REDUCE, KEYED, OPERATIONS

SCHEMA = 2
# The keys of an event, in this order.
NAMES = ("event", *(name for name in FIELDS if name not in ("reads", "loss")), "causes")
# Channel, name and version of something that one event makes and others get.
Source = tuple[str, str, str]
PUTS, GETS = (tuple(f"{channel}.{name}" for channel in KEYED) for name in ("put", "get"))
MAKING = (*PUTS, "parameter.push", "tensor.set", "tensor.script", "queue.publish")
GETTING = (*GETS, "tensor.get", "queue.deliver")
# These have no version: each worker has one vector for each sum.
UNVERSIONED = ("parameter.push", "parameter.pull")


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
    """Return the host delay within each event, ns, linearly interpolated between samples of its environment.

    Before an environment's first sample and after its last one, the delay is 0.
    """
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


def find_causes(events: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Return for each event the numbers of the events that must precede it: see docs/trace.md, "Causes are resolved".

    The events can't form a cycle. An event in program order ends before its effect starts. A peer's last event before
    an all-reduce ends before the all-reduce does. A source (the put of an object, the publish of a message, the set of
    a tensor) ends before its effect ends; or its only cause is program order and it starts before its effect ends. So
    along any path the ends only decrease.
    """
    sources = grouped((source, number) for number, event in enumerate(events) for source in _made(event))
    # A script reads and writes, so only an event that ended before it certainly came first.
    for source, makers in sources.items():
        if source[0] == "tensor":
            makers.sort(key=lambda number: events[number]["end_ns"])
    latest: dict[str, int | None] = {}
    before: list[int | None] = []
    spanning: list[int] = []
    joined: dict[str, list[int]] = defaultdict(list)
    causes: list[list[int]] = []
    for number, event in enumerate(events):
        invocation, preceding = event["invocation"], set()
        previous = latest.get(invocation)
        if event["op"] == "invoke" and event["worker"] < 0:
            spanning.append(number)
            previous = None
        elif event["op"] == "transition":
            # It names the invocation that it waits for, but isn't part of it.
            previous = None
        elif invocation:
            # If events overlap (a function with threads), their common predecessor counts.
            if previous is not None and events[previous]["end_ns"] > event["start_ns"]:
                previous = before[previous]
            latest[invocation] = number
        before.append(previous)
        if previous is not None:
            preceding.add(previous)
        if event["op"] == ALL_REDUCE:
            joined[event["resource"]].append(number)
        for source in _got(event):
            makers = sources.get(source, [])
            # The latest one that had started (for tensors: ended) before the get or the delivery ended.
            mark = "end_ns" if source[0] == "tensor" else "start_ns"
            if index := bisect_left(makers, event["end_ns"], key=lambda put: events[put][mark]):
                preceding.add(makers[index - 1])
        causes.append(sorted(preceding))
    for peers in joined.values():
        # Each peer gets the sum when all have joined.
        came = sorted({last for peer in peers if (last := before[peer]) is not None})
        for peer in peers:
            causes[peer] = [last for last in came if events[last]["end_ns"] <= events[peer]["end_ns"]]
    for number in spanning:
        # A retry has the same request id, but its events came later.
        last = latest.get(events[number]["invocation"])
        while last is not None and events[last]["end_ns"] > events[number]["end_ns"]:
            last = before[last]
        causes[number] = [] if last is None else [last]
    return causes


def _made(event: Mapping[str, Any]) -> list[Source]:
    # A failed publish counts: the connection may have broken after the broker received the message.
    if event["op"] not in MAKING or (event["failed"] and event["op"] != "queue.publish"):
        return []
    return _sources(event, event["resource"])


def _got(event: Mapping[str, Any]) -> list[Source]:
    if event["failed"]:
        return []
    if event["op"] in ("tensor.script", "parameter.pull"):
        return _sources(event, *event.get("reads", ()))
    return _sources(event, event["resource"]) if event["op"] in GETTING else []


def _sources(event: Mapping[str, Any], *resources: str) -> list[Source]:
    """Return an object by key and ETag, a message by its id (copies share it), or tensors and summands by key."""
    channel, etag = OPERATIONS[event["op"]].channel, event["etag"]
    if channel == "tensor" or event["op"] in UNVERSIONED:
        return [(channel, resource, "") for resource in resources]
    return [] if etag is None else [(channel, "" if channel == "queue" else resource, etag) for resource in resources]
