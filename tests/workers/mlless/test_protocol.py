"""What MLLess's protocol asks for: all messages and barriers of small runs, with workers removed or not."""

from dataclasses import replace
from typing import Any

import pytest
from tests.lab.checks.small import Event, event, of_events
from tests.lab.replay.recordings import make_plan

from slslab.run.run import Run
from slslab_workers.mlless.protocol import protocol as mlless
from slslab_workers.patterns.messages import Message, Name, Wait

# Two workers take two steps with a model of five parameters; the supervisor is worker 2.
RUN = "20261121-000000-mlless-lenet-abcd"
UPDATES, CLIENT, SUPERVISOR = (f"slslab.{RUN}.{name}" for name in ("updates", "client", "supervisor"))
FIVE = {"parameters": 5, "details": {}}
PLAN = replace(make_plan("mlless"), batches=2, epochs=1)
BOTH = {0: 1, 1: 1}
FIRST, SECOND = (0, 0), (0, 1)


def small(*events: Event, options: dict[str, Any] | None = None, **more: Any) -> Run:
    return of_events(*events, plan=replace(PLAN, options={**PLAN.options, **(options or {})}, **more), document=FIVE)


def computed(worker: int, place: tuple[int, int]) -> Event:
    return event("compute", worker, place, overhead=True)


def published(worker: int, resource: str, etag: str, place: tuple[int, int] = (-1, -1), **more: Any) -> Event:
    return event("queue.publish", worker, place, resource=resource, etag=etag, **more)


def delivered(etag: str, place: tuple[int, int], **more: Any) -> Event:
    return event("queue.deliver", 1, place, etag=etag, **more)


def updates(place: tuple[int, int], *ranks: int, takers: dict[int, int] = BOTH, size: int | None = 20) -> list[Message]:
    """Updates with their announcements; two keys of a worker take turns."""
    made = []
    for rank in ranks:
        key = f"{RUN}/mlless/up_w{rank}_i{(2 * place[0] + place[1]) % 2}"
        made.append(Message("update", Name(key, rank, *place), takers, size, place))
        made.append(Message("announcement of an update", Name(UPDATES, rank, *place), takers))
    return made


def reports(place: tuple[int, int], ranks: tuple[int, ...] = (0, 1)) -> list[Message]:
    return [Message("report", Name(SUPERVISOR, rank, *place), {2: 1}) for rank in ranks]


def supervised(place: tuple[int, int], ranks: tuple[int, ...] = (0, 1)) -> list[Message]:
    """The reports of a step, its decision, and the message to the driver."""
    decision = Message("decision", Name(UPDATES, 2, *place), dict.fromkeys(ranks, 1), at=place)
    return [*reports(place, ranks), decision, Message("statistics", Name(CLIENT, 2, *place), {-1: 1})]


def wait(place: tuple[int, int], *then: int, ranks: tuple[int, ...] = (0, 1)) -> Wait:
    return Wait(place, tuple(message.name for message in reports(place, ranks)), then)


SENDS_ALL = {"filter": "none"}


def test_two_steps() -> None:
    events = [
        computed(0, FIRST),
        published(2, UPDATES, "first"),
        delivered("first", (-1, -1)),
        published(2, CLIENT, "told"),
        event("update", 1, FIRST, phase="update"),
        computed(0, SECOND),
        published(2, UPDATES, "second"),
        published(2, UPDATES, "beside", overhead=True),
        event("queue.declare", 2),
    ]
    found = mlless(small(*events, options=SENDS_ALL))
    first, second = (updates(place, 0, 1) + supervised(place) for place in (FIRST, SECOND))
    assert found.messages == (*first, *second)
    # The decision, the updates, and the next steps.
    assert found.waits == (wait(FIRST, 1, 4, 5), wait(SECOND, 6))
    assert found.minibatches == {(rank, *place) for rank in (0, 1) for place in (FIRST, SECOND)}
    assert found.steps == {1: FIRST, 3: FIRST, 6: SECOND}


def test_a_step_of_a_decision_is_the_one_in_which_it_is_taken() -> None:
    events = [
        # What comes before the first decision is of the first step.
        published(2, CLIENT, "told"),
        published(1, UPDATES, "of a worker"),
        published(2, UPDATES, "late"),
        published(2, CLIENT, "told"),
        published(2, UPDATES, "next"),
        published(2, UPDATES, "last"),
        delivered("last", (4, 0)),
        # Whatever else names it; it counts where it is taken first.
        delivered("late", (-1, -1)),
        delivered("late", SECOND, overhead=True),
        event("queue.publish", 1, SECOND, etag="late", overhead=True),
        delivered("late", (1, 1)),
        delivered("late", (1, 2)),
    ]
    assert mlless(small(*events)).steps == {0: FIRST, 2: (1, 1), 3: (1, 1), 4: (2, 0), 5: (4, 0)}


SENT = [
    # One of them is stored, the other one announced.
    event("tensor.set", 1, FIRST, resource=f"host:1/{RUN}/mlless/up_w1_i0"),
    event("object.put", 0, SECOND, resource=f"bucket/{RUN}/mlless/up_w0_i1"),
    published(1, UPDATES, "u", SECOND),
    # These are not sent in a step of the filter's choice, or are none.
    event("tensor.set", 0, FIRST, resource="host:1/other"),
    event("tensor.get", 0, FIRST, resource=f"host:1/{RUN}/mlless/up_w0_i0"),
    event("tensor.set", 0, FIRST, resource=f"host:1/{RUN}/mlless/up_w0_i0", overhead=True),
    published(0, SUPERVISOR, "r", FIRST),
    event("wait", 0, FIRST, resource=UPDATES),
    published(2, UPDATES, "d", FIRST),
    published(-1, UPDATES, "d", FIRST),
    computed(0, FIRST),
]


def test_updates_that_a_filter_lets_pass() -> None:
    found = mlless(small(*SENT, options={"filter": "norm-ratio", "threshold": 0.5}))
    first, second = updates(FIRST, 1) + supervised(FIRST), updates(SECOND, 0, 1) + supervised(SECOND)
    assert found.messages == (*first, *second)


@pytest.mark.parametrize(
    ("options", "makers", "size"),
    [
        ({"filter": "none", "threshold": 1.0}, [0, 1], 20),
        ({"filter": "norm-ratio", "threshold": 0.0}, [0, 1], 20),
        ({"filter": "norm-ratio", "threshold": 1.0}, [1], 20),
        ({"filter": "coordinate", "threshold": 0.0}, [1], None),
    ],
)
def test_what_is_known_of_updates(options: dict[str, Any], makers: list[int], size: int | None) -> None:
    made = [message for message in mlless(small(*SENT, options=options)).messages if message.kind == "update"]
    assert [message.name.maker for message in made if message.name[2:] == FIRST] == makers
    assert {message.size for message in made} == {size}


def test_a_worker_that_is_removed() -> None:
    others = [
        published(1, UPDATES, "k", FIRST, overhead=True, failed=True),
        published(3, UPDATES, "k", FIRST, overhead=True),
        published(-1, UPDATES, "k", FIRST, overhead=True),
        published(0, CLIENT, "k", FIRST, overhead=True),
        event("queue.deliver", 0, FIRST, resource=UPDATES, overhead=True),
    ]
    removed = published(1, UPDATES, "k", SECOND, overhead=True)
    found = mlless(small(computed(0, (0, 2)), *others, removed, options=SENDS_ALL, batches=3, workers=3))
    places = [wait.step for wait in found.waits]
    assert places == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4)]
    assert found.minibatches == {(rank, *p) for p in places for rank in (0, 1, 2) if rank != 1 or p in places[:2]}
    (left,) = (message for message in found.messages if message.kind == "model")
    key = f"{RUN}/mlless/model_w1"
    assert left == Message("model", Name(key, 1, *SECOND), {0: 1, 2: 1}, 20, SECOND, overhead=True)
    reporting = [message.name[1:] for message in found.messages if message.kind == "report"]
    assert reporting == [(rank, *place) for place in places for rank in (0, 1, 2) if rank != 1 or place in places[:2]]


def test_workers_that_are_removed_one_after_the_other() -> None:
    removed = [published(rank, UPDATES, "k", place, overhead=True) for rank, place in ((0, (0, 0)), (2, (1, 0)))]
    found = mlless(small(computed(1, (0, 0)), *removed, options=SENDS_ALL, batches=4, workers=3, epochs=2))
    made = [message.name.maker for message in found.messages if message.kind == "update"]
    # All three; two for the rest of an epoch of twelve minibatches, and in a step; one alone for all others.
    assert made == [0, 1, 2, *6 * [1, 2], *11 * [1]]


@pytest.mark.parametrize(
    ("run", "steps"),
    [
        (small(), 2),
        (small(early_stopping=True), 0),
        (small(computed(0, FIRST)), 2),
        (small(computed(0, FIRST), epochs=3), 6),
        (small(computed(0, SECOND), computed(1, FIRST), epochs=3, early_stopping=True), 2),
        (small(computed(0, FIRST), options={"max-time": 1.0}), 1),
        (small(computed(0, FIRST), options={"end-threshold": 0.5}), 1),
        (small(computed(0, FIRST)).replace(complete=False), 1),
        # What workers do after the plan's last step is stray.
        (small(computed(0, (1, 1))), 2),
    ],
)
def test_steps_that_were_taken(run: Run, steps: int) -> None:
    assert len(mlless(run).waits) == steps
