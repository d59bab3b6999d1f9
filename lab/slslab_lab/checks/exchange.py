"""The messages that workers exchange, as the protocol declares them, matched with the events of the trace.

A protocol lists all messages of a run. Each is made once, by one worker, and taken by the workers that the protocol
names, each a given number of times.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from slslab.run.metrics import Rows, grouped
from slslab.run.table import GETTING, MAKING
from slslab_workers.patterns.messages import READING, Event, Name, Protocol, Step, key_of
from slslab_workers.trace.operations import ALL_REDUCE, KEYED, OPERATIONS

DELETES = tuple(f"{channel}.delete" for channel in KEYED)
# In an all-reduce each peer makes its part, and gets the sum once all parts have arrived.
PARTS = (*MAKING, ALL_REDUCE)


class Exchange:
    """Match a protocol's messages with the events that made, took and deleted them; `orphans` lack a maker."""

    def __init__(self, events: Rows, protocol: Protocol) -> None:
        self.events = events
        self.protocol = protocol
        self.messages = {message.name: message for message in protocol.messages}
        self.made: dict[Name, list[int]] = {}
        self.taken: dict[Name, list[int]] = {}
        self.orphans: list[int] = []
        self._names: dict[int, Name] = {}
        keys = {message.name.key for message in protocol.messages}
        until = math.inf if protocol.judged is None else protocol.judged
        judged = [event for event in events if not event["failed"] and event["epoch"] < until]
        for event in judged:
            self._note_made(event)
        by_key = grouped((name.key, number) for number, name in self._names.items())
        published = {
            events[number]["etag"]: number for number in self._names if events[number]["op"] == "queue.publish"
        }
        others = {_identity(event) for event in events if event["op"] in MAKING and event["event"] not in self._names}
        for event in judged:
            if event["op"] in GETTING or event["op"] in READING:
                sources = self._sources(event, by_key, published)
                for name in (self._names[number] for number in sources):
                    if self._counts(event, name):
                        self.taken.setdefault(name, []).append(event["event"])
                lone = not sources and event["op"] in GETTING and not event["overhead"]
                if lone and _identity(event) not in others:
                    self.orphans.append(event["event"])
        self.deleted = grouped(
            (key_of(event), event["event"])
            for event in judged
            if event["op"] in DELETES and (not event["overhead"] or key_of(event) in keys)
        )
        self._last = {(event["worker"], *self.step_of(event)): event["event"] for event in events}

    def step_of(self, event: Event) -> Step:
        """Return the epoch and step that an event belongs to."""
        return self.protocol.steps.get(event["event"], (event["epoch"], event["step"]))

    def source(self, name: Name) -> Event:
        """Return the event that made a message first."""
        return self.events[self.made[name][0]]

    def after(self, worker: int, step: Step) -> int | None:
        """Return a worker's last event in a step, after which a message is missing."""
        return self._last.get((worker, *step))

    def _counts(self, event: Event, name: Name) -> bool:
        """Return whether an event that makes or takes something is part of the protocol."""
        return not event["overhead"] or (name in self.messages and self.messages[name].overhead)

    def _note_made(self, event: Event) -> None:
        if event["op"] not in PARTS:
            return
        name = Name(key_of(event), event["worker"], *self.step_of(event))
        if self._counts(event, name):
            self.made.setdefault(name, []).append(event["event"])
            self._names[event["event"]] = name

    def _sources(self, event: Event, by_key: Mapping[str, Sequence[int]], published: Mapping[str, int]) -> list[int]:
        if event["op"] == "queue.deliver":
            return [published[event["etag"]]] if event["etag"] in published else []
        causes = [self.events[number] for number in event["causes"] if self.events[number]["op"] in MAKING]
        if event["op"] in READING:
            channel = OPERATIONS[event["op"]].channel
            found = [cause for cause in causes if OPERATIONS[cause["op"]].channel == channel]
        else:
            found = [cause for cause in causes if cause["resource"] == event["resource"]]
            # The previous event of the worker may have made another version.
            found = [cause for cause in found if cause["etag"] == event["etag"]] or found
            found = found[-1:]
            if not found and event["etag"] is not None:
                # No matching content was put before it. Go by its key, if that key only ever had one content.
                same = [self.events[number] for number in by_key.get(key_of(event), ())]
                here = [make for make in same if make["resource"] == event["resource"]]
                equal = [make for make in here if make["etag"] == event["etag"]]
                found = equal[:1] or (here if len(here) == 1 else [])
        found = [cause for cause in found if cause["event"] in self._names]
        return [number for cause in found for number in self._with_appended(cause, by_key)]

    def _with_appended(self, cause: Event, by_key: Mapping[str, Sequence[int]]) -> Iterator[int]:
        if key_of(cause) not in self.protocol.appended:
            yield cause["event"]
            return
        for number in by_key[key_of(cause)]:
            if self.events[number]["resource"] == cause["resource"]:
                yield number


def _identity(event: Event) -> tuple[str, str]:
    channel = OPERATIONS[event["op"]].channel
    return channel, str(event["etag"] if channel == "queue" else event["resource"])
