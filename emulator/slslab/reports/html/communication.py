"""Who got bytes that whom had made, through which store, as the causes in a trace tell (docs/trace.md)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DRIVER = "driver"
# By how an operation's name begins.
STORES = {"object": "object store", "tensor": "tensor database", "queue": "queue"}
# What gets something, and what makes it.
MADE_BY = {
    "object.get": ("object.put",),
    "tensor.get": ("tensor.set", "tensor.script"),
    "queue.deliver": ("queue.publish",),
}
# More than this and ranks are taken together.
PARTICIPANTS = 32
Event = Mapping[str, Any]


@dataclass(frozen=True)
class Transfer:
    """Bytes that `target` got of what `source` had made, with `messages` gets through `store`."""

    source: str
    target: str
    store: str
    bytes: int
    messages: int


@dataclass(frozen=True)
class Communication:
    """Transfers between participants, who are in order; `grouped` says how ranks were taken together, if they were.

    `unknown_bytes` were got of what no event of the trace made."""

    participants: tuple[str, ...]
    transfers: tuple[Transfer, ...]
    unknown_bytes: int
    grouped: str


def build_communication(events: Sequence[Event], workers: int) -> Communication:
    """The communication in a trace of a run of so many workers; a worker of a higher rank goes by its function's name.

    Scripts that compute within a database move no bytes between participants: what they reply is not in here.
    """
    by_number = {event["event"]: event for event in events}
    size = -(-workers // PARTICIPANTS)
    moved: dict[tuple[int, int, str], list[int]] = defaultdict(lambda: [0, 0])
    names: dict[int, str] = {-1: DRIVER}
    unknown = 0
    for event in events:
        if event["op"] not in MADE_BY or event["failed"]:
            continue
        maker = next((by_number[cause] for cause in event["causes"] if _made(by_number[cause], event)), None)
        if maker is None:
            unknown += event["bytes"]
            continue
        ends = []
        for one in (maker, event):
            rank = one["worker"]
            place = rank if rank < 0 or rank >= workers else rank // size * size
            names.setdefault(place, _name(one, place, workers, size))
            ends.append(place)
        total = moved[ends[0], ends[1], STORES[event["op"].partition(".")[0]]]
        total[0] += event["bytes"]
        total[1] += 1
    return Communication(
        tuple(names[place] for place in sorted(names) if any(place in key[:2] for key in moved)),
        tuple(Transfer(names[a], names[b], store, *both) for (a, b, store), both in sorted(moved.items())),
        unknown,
        f"{workers:,} workers are drawn in groups of {size}." if size > 1 else "",
    )


def _made(cause: Event, event: Event) -> bool:
    if cause["op"] not in MADE_BY[event["op"]]:
        return False
    if event["op"] == "queue.deliver":
        # It is published to an exchange, and delivered from a queue.
        return bool(cause["etag"] == event["etag"])
    return bool(cause["resource"] == event["resource"] and cause["etag"] == event["etag"])


def _name(event: Event, place: int, workers: int, size: int) -> str:
    if place >= workers:
        return str(event["function"].rpartition("-")[2])
    last = min(place + size, workers) - 1
    return f"{place}–{last}" if last > place else str(place)
