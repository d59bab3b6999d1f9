"""Which events made, took and deleted a message, of traces of a few events."""

from typing import Any

import pytest

from slslab_lab.checks.exchange import Exchange
from slslab_workers.patterns.messages import Message, Name, Protocol

KEY = "run/gradient"
HERE = f"bucket/{KEY}"
Event = dict[str, Any]


def event(op: str, resource: str = HERE, etag: str | None = "x", *, causes: tuple[int, ...] = (), **more: Any) -> Event:
    """An event of the training protocol by worker 0 in the first step; `numbered` gives it its number."""
    place = {"worker": 0, "epoch": 0, "step": 0}
    made = {"op": op, "resource": resource, "etag": etag, "causes": causes, "overhead": False, "failed": False}
    return {**place, **made, **more}


def exchange(*events: Event, **more: Any) -> Exchange:
    """Return the exchange of these events, with one message: KEY's of worker 0."""
    numbered = [{"event": number, **each} for number, each in enumerate(events)]
    return Exchange(numbered, Protocol((Message("gradient", Name(KEY, 0, 0, 0), {1: 1}),), **more))


def taken(*events: Event, **more: Any) -> list[int]:
    """Makers of what the last event took."""
    found = exchange(*events, **more)
    last = len(events) - 1
    return sorted(number for name, numbers in found.taken.items() if last in numbers for number in found.made[name])


def put(worker: int = 0, **more: Any) -> Event:
    return event("object.put", worker=worker, **more)


def get(**more: Any) -> Event:
    return event("object.get", worker=1, **more)


@pytest.mark.parametrize(
    ("events", "makers"),
    [
        # Of two causes that of its version, whichever is the later one; of two of its version the later one.
        ((put(0, etag="x"), put(2, etag="y"), get(causes=(0, 1))), [0]),
        ((put(0, etag="y"), put(2, etag="x"), get(causes=(0, 1))), [1]),
        ((put(0), put(2), get(causes=(0, 1))), [1]),
        # Of another version than any of its causes, the later one: it has been altered.
        ((put(0, etag="y"), put(2, etag="z"), get(causes=(0, 1))), [1]),
        # What is no cause by another resource, or makes nothing.
        ((put(0), put(2, resource=f"other/{KEY}"), get(causes=(0, 1))), [0]),
        ((put(0), event("compute"), get(causes=(0, 1))), [0]),
        # Without a cause: by its key and version, the first of equal ones.
        ((put(0, etag="y"), put(2, etag="x"), get()), [1]),
        ((put(0), put(2), get()), [0]),
        # Without a cause of its version: the only one, and none of two.
        ((put(0, etag="y"), get()), [0]),
        ((put(0, etag="y"), put(2, etag="z"), get()), []),
        ((put(0, etag="y"), put(2, etag="z"), put(3, etag="w"), get()), []),
        # Nor one that is elsewhere, or has another key; nor anything without a version.
        ((put(0, resource=f"other/{KEY}"), get()), []),
        ((put(0, etag="y", resource=f"other/{KEY}"), put(2, etag="x"), get()), [1]),
        ((put(0, resource="bucket/run/other"), get()), []),
        ((put(0), get(etag=None)), []),
    ],
)
def test_what_is_taken_is_what_was_made(events: tuple[Event, ...], makers: list[int]) -> None:
    assert taken(*events) == makers


def test_of_what_is_added_to_all_that_was_pushed_there_is_taken() -> None:
    pushes = [event("tensor.set", resource="host:1/list", worker=rank) for rank in range(3)]
    elsewhere = event("tensor.set", resource="host:2/list", worker=3)
    got = event("tensor.get", resource="host:1/list", worker=1, causes=(2,))
    assert taken(*pushes, elsewhere, got, appended=frozenset({"list"})) == [0, 1, 2]
    assert taken(*pushes, elsewhere, got) == [2]


def test_a_message_is_taken_by_its_id() -> None:
    published = event("queue.publish", resource="queue", etag="id")
    assert taken(published, event("queue.deliver", resource="queue", etag="id", worker=1)) == [0]
    assert taken(published, event("queue.deliver", resource="queue", etag="other", worker=1)) == []


def test_what_nobody_made_is_an_orphan_and_what_was_made_beside_the_protocol_is_not() -> None:
    assert exchange(get()).orphans == [0]
    assert exchange(put(0, resource="bucket/run/other"), get(resource="bucket/run/other", etag=None)).orphans == [1]
    beside = put(0, resource="bucket/run/other", overhead=True)
    assert exchange(beside, get(resource="bucket/run/other", etag="y")).orphans == []
    assert exchange(beside, get(resource="bucket/run/third")).orphans == [1]
    assert exchange(get(overhead=True)).orphans == []
    assert exchange(event("parameter.pull", worker=1)).orphans == []


def test_a_message_beside_the_protocol_is_known_by_its_id_and_not_by_its_queue() -> None:
    published = event("queue.publish", resource="exchange", etag="id", overhead=True)
    assert exchange(published, event("queue.deliver", resource="queue", etag="id")).orphans == []
    assert exchange(published, event("queue.deliver", resource="exchange", etag="other")).orphans == [1]
    # An object of that name is no message.
    assert exchange(published, get(resource="id")).orphans == [1]


def test_deletions_of_the_protocol_and_of_its_parcels_are_kept() -> None:
    other = "bucket/run/other"
    found = exchange(
        event("object.delete"),
        event("object.delete", overhead=True),
        event("object.delete", resource=other),
        event("object.delete", resource=other, overhead=True),
        event("object.delete", failed=True),
        event("object.put"),
    )
    assert dict(found.deleted) == {KEY: [0, 1], "run/other": [2]}


def test_what_comes_after_the_epoch_that_is_judged_last_and_what_failed_is_left_out() -> None:
    found = exchange(put(0), put(0, epoch=1), put(0, failed=True), judged=1)
    assert found.made == {Name(KEY, 0, 0, 0): [0]}
    assert found.after(0, (0, 0)) == 2
    assert found.after(0, (7, 0)) is None


def test_what_is_made_beside_the_protocol_counts_where_its_parcel_is_beside_it() -> None:
    beside = put(0, overhead=True)
    assert exchange(beside).made == {}
    numbered = [{"event": 0, **beside}]
    message = Message("address", Name(KEY, 0, 0, 0), {1: 1}, overhead=True)
    assert Exchange(numbered, Protocol((message,))).made == {message.name: [0]}
