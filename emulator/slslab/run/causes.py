"""Find the events that must precede each event of a trace."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from slslab.run.metrics import grouped
from slslab_workers.trace.operations import ALL_REDUCE, KEYED, OPERATIONS

# Channel, name and version of what one event makes and others get.
Source = tuple[str, str, str]
PUTS, GETS = (tuple(f"{channel}.{name}" for channel in KEYED) for name in ("put", "get"))
MAKING = (*PUTS, "parameter.push", "tensor.set", "tensor.script", "queue.publish")
GETTING = (*GETS, "tensor.get", "queue.deliver")
# What has no version: there is one vector of each worker for each sum.
UNVERSIONED = ("parameter.push", "parameter.pull")


def find_causes(events: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Return for each event the numbers of those that must precede it: see docs/trace.md, "Causes are resolved".

    No cycle can arise, whatever the events are: an event in program order ends before its effect starts, and one that a
    peer had before an all-reduce ends before the all-reduce does. A source (the
    put of an object, the publish of a message, the set of a tensor) ends before its effect ends, or has no cause but
    program order and starts before its effect ends. So along any path the ends only decrease.
    """
    sources = grouped((source, number) for number, event in enumerate(events) for source in _made(event))
    # A script reads and writes, so that only an event that had ended before is certain to have come first.
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
            # It names the invocation that it waits for, and is not a part of it.
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
            # The latest that had started (of tensors: ended) when the get or the delivery ended.
            mark = "end_ns" if source[0] == "tensor" else "start_ns"
            if index := bisect_left(makers, event["end_ns"], key=lambda put: events[put][mark]):
                preceding.add(makers[index - 1])
        causes.append(sorted(preceding))
    for peers in joined.values():
        # Each gets the sum when all have come.
        came = sorted({last for peer in peers if (last := before[peer]) is not None})
        for peer in peers:
            causes[peer] = [last for last in came if events[last]["end_ns"] <= events[peer]["end_ns"]]
    for number in spanning:
        # Events of a retry under the same request id came later.
        last = latest.get(events[number]["invocation"])
        while last is not None and events[last]["end_ns"] > events[number]["end_ns"]:
            last = before[last]
        causes[number] = [] if last is None else [last]
    return causes


def _made(event: Mapping[str, Any]) -> list[Source]:
    """Return what an event makes for others to get."""
    # A failed publish counts: a connection can break after the broker has the message and before it confirms.
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
