"""Find the events that must precede each event of a trace."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from slslab.run.metrics import grouped
from slslab_workers.trace.operations import ALL_REDUCE, KEYED, OPERATIONS

# Channel, name and version of something that one event makes and others get.
Source = tuple[str, str, str]
PUTS, GETS = (tuple(f"{channel}.{name}" for channel in KEYED) for name in ("put", "get"))
MAKING = (*PUTS, "parameter.push", "tensor.set", "tensor.script", "queue.publish")
GETTING = (*GETS, "tensor.get", "queue.deliver")
# These have no version: each worker has one vector for each sum.
UNVERSIONED = ("parameter.push", "parameter.pull")


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
