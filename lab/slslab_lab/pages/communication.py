"""Bytes between workers, by the store they went through, from the causes in a trace (docs/trace.md)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slslab.run.table import GETTING, MAKING
from slslab_workers.trace.operations import ALL_REDUCE

DRIVER = "driver"
# By the first part of an operation's name.
STORES = {
    "object": "object store",
    "memcached": "Memcached cache",
    "redis": "Redis cache",
    "dynamodb": "DynamoDB table",
    "parameter": "parameter server",
    "tensor": "tensor database",
    "queue": "queue",
    "peer": "all-reduce",
}
# A parameter server makes a sum of all workers' vectors, so it is a participant of pushes and pulls.
PUSH, PULL = "parameter.push", "parameter.pull"
SERVER = 1 << 31
# More participants than this are drawn in groups of ranks.
PARTICIPANTS = 32
Event = Mapping[str, Any]


@dataclass(frozen=True)
class Transfer:
    """Bytes that `source` made and `target` got, in `messages` gets through `store` or messages between peers."""

    source: str
    target: str
    store: str
    bytes: int
    messages: int


@dataclass(frozen=True)
class Communication:
    """Transfers between ordered participants; `grouped` says how ranks were grouped, if they were.

    For `unknown_bytes` the trace doesn't contain the maker."""

    participants: tuple[str, ...]
    transfers: tuple[Transfer, ...]
    unknown_bytes: int
    grouped: str


def build_communication(events: Sequence[Event], workers: int) -> Communication:
    """Return the communication in a trace of a run with this number of workers. A worker of a higher rank gets its
    function's name, with a number if several share it.

    Scripts inside a database don't move bytes between participants, so their replies aren't included.
    """
    by_number = {event["event"]: event for event in events}
    size = -(-workers // PARTICIPANTS)
    moved: dict[tuple[int, int, str], list[int]] = defaultdict(lambda: [0, 0])
    names: dict[int, str] = {-1: DRIVER, SERVER: STORES["parameter"]}
    unknown = 0
    for event in events:
        if event["op"] not in (*GETTING, ALL_REDUCE, PUSH, PULL) or event["failed"]:
            continue
        if event["op"] == ALL_REDUCE:
            # A ring: each worker sends to the next lower rank, which records its own event for what it sends.
            pair: tuple[Event, Event] = (event, {**event, "worker": (event["worker"] - 1) % workers})
            messages = event["requests"]
        elif event["op"] in (PUSH, PULL):
            server = {**event, "worker": SERVER}
            pair, messages = (event, server) if event["op"] == PUSH else (server, event), 1
        else:
            maker = next((by_number[cause] for cause in event["causes"] if _made(by_number[cause], event)), None)
            if maker is None:
                unknown += event["bytes"]
                continue
            pair, messages = (maker, event), 1
        ends = []
        for end in pair:
            rank = end["worker"]
            first = rank if rank < 0 or rank >= workers else rank // size * size
            names.setdefault(first, _name(end, first, workers, size))
            ends.append(first)
        total = moved[ends[0], ends[1], STORES[event["op"].partition(".")[0]]]
        total[0] += event["bytes"]
        total[1] += messages
    return Communication(
        tuple(names[first] for first in sorted(names) if any(first in key[:2] for key in moved)),
        tuple(Transfer(names[a], names[b], store, *both) for (a, b, store), both in sorted(moved.items())),
        unknown,
        f"{workers:,} workers are drawn in groups of {size}." if size > 1 else "",
    )


def _made(cause: Event, event: Event) -> bool:
    # A message is published to an exchange but delivered from a queue, so their resources differ.
    alike = ("etag",) if event["op"] == "queue.deliver" else ("resource", "etag")
    return cause["op"] in MAKING and all(cause[name] == event[name] for name in alike)


def _name(event: Event, first: int, workers: int, size: int) -> str:
    if first >= workers:
        beyond = first - workers
        return str(event["function"].rpartition("-")[2]) + (f" {beyond + 1}" if beyond else "")
    last = min(first + size, workers) - 1
    return f"{first}–{last}" if last > first else str(first)
