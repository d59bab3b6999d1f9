"""The rules of leftovers on a few events: each violation's full text, and cases without one."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.lab.checks.small import PLAN, Event, event, of_events

from slslab_lab.checks.exchange import Exchange
from slslab_lab.checks.left import check_environments, check_objects, check_queues
from slslab_lab.checks.violation import Violation
from slslab_workers.patterns.messages import Message, Name, Protocol

# Worker 1 makes two messages in step 3 of epoch 2, of which worker 0 deletes one.
PLACE = (2, 3)
PARCELS = (
    Message("gradient", Name("gradient", 1, *PLACE), {}, deleted_by=0),
    Message("mean", Name("mean", 1, *PLACE), {}),
)


def put(key: str, **more: Any) -> Event:
    return {**event("object.put", 1, PLACE, resource=f"bucket/{key}"), **more}


def delete(key: str, worker: int = 0, **more: Any) -> Event:
    return {**event("object.delete", worker, PLACE, resource=f"bucket/{key}"), **more}


NOT_THERE = "Worker 0 deleted gradient, which didn't exist."
LEFT = "The gradient of epoch 2, step 3 is left: worker 0 didn't delete it."
NOT_ITS = "Worker {} deleted {}, which the protocol doesn't ask it to."
OTHER = "{} is left, and isn't part of the protocol."


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        ((put("mean"), put("gradient"), delete("gradient")), []),
        # What is put, got or deleted otherwise changes nothing.
        ((put("x", failed=True), event("object.get", 1), put("gradient")), [(2, LEFT)]),
        ((put("gradient"), delete("gradient", failed=True), put("mean")), [(0, LEFT)]),
        ((put("gradient"), put("gradient")), [(1, LEFT)]),
        ((put("gradient"), delete("gradient"), put("gradient")), [(2, LEFT)]),
        ((delete("gradient"), delete("gradient")), [(0, NOT_THERE), (1, NOT_THERE)]),
        ((put("gradient"), delete("gradient"), delete("gradient")), [(2, NOT_THERE)]),
        ((put("gradient"), delete("gradient", 1)), [(1, NOT_ITS.format(1, "gradient"))]),
        ((put("mean"), delete("mean")), [(1, NOT_ITS.format(0, "mean"))]),
        ((put("x"), put("y"), delete("y")), [(0, OTHER.format("x")), (2, NOT_ITS.format(0, "y"))]),
        ((put("", op="redis.put", resource="gradient"), delete("", op="redis.delete", resource="gradient")), []),
    ],
)
def test_objects(events: Sequence[Event], wrong: Sequence[tuple[int, str]]) -> None:
    run = of_events(*events)
    expected = [Violation("objects", said, run.events[n]["worker"], *PLACE, n) for n, said in wrong]
    assert list(check_objects(run, Exchange(run.events, Protocol(PARCELS)))) == expected


@pytest.mark.parametrize(
    ("key", "kept"),
    [
        (f"{PLAN.run}/data", True),
        (f"{PLAN.run}/data/0", True),
        (f"{PLAN.run}/state/0/1", True),
        (f"{PLAN.run}/x/data", False),
        ("x/data", False),
        ("data", False),
        (PLAN.run, False),
    ],
)
def test_objects_that_every_run_leaves(key: str, kept: bool) -> None:
    run = of_events(put(key))
    expected = [] if kept else [Violation("objects", OTHER.format(key), 1, *PLACE, 0)]
    assert list(check_objects(run, Exchange(run.events, Protocol(PARCELS)))) == expected


def test_tensors_that_one_command_deletes() -> None:
    def cleared(worker: int, epoch: int, **more: Any) -> Event:
        return event("tensor.delete", worker, (epoch, -1), resource="host:1/x", **more)

    events = cleared(0, 0), cleared(0, 1), cleared(0, 1), cleared(1, 1, overhead=True), event("wait", 1, (0, -1))
    run = of_events(*events, event("wait", 1, (1, 0)))
    must = frozenset((rank, epoch) for rank in (0, 1) for epoch in (0, 1))
    said = "Worker {} deleted its gradients of epoch {} {} times."
    expected = [
        Violation("objects", said.format(0, 1, 2), 0, 1, -1, 2),
        Violation("objects", said.format(1, 0, 0), 1, 0, -1, 4),
        Violation("objects", said.format(1, 1, 0), 1, 1, -1, 3),
    ]
    found = list(check_objects(run, Exchange(run.events, Protocol((), cleared=must))))
    assert [violation for violation in found if "gradients" in violation.sentence] == expected


def queue(op: str, start_ns: int, end_ns: int, **more: Any) -> Event:
    return event(f"queue.{op}", 1, (2, 3), resource="q", start_ns=start_ns, end_ns=end_ns, **more)


@pytest.mark.parametrize(
    ("events", "left"),
    [
        ((queue("declare", 1, 2), queue("delete", 3, 4)), None),
        # Another's declaration may begin while it is deleted.
        ((queue("delete", 1, 2), queue("declare", 2, 3)), None),
        ((queue("delete", 1, 2), queue("declare", 3, 4)), 1),
        ((queue("delete", 1, 2), queue("declare", 3, 4, failed=True)), None),
        ((queue("declare", 1, 2), queue("delete", 3, 4, failed=True)), 0),
        ((queue("declare", 1, 2), queue("bind", 3, 4)), 0),
    ],
)
def test_queues(events: Sequence[Event], left: int | None) -> None:
    expected = [] if left is None else [Violation("queues", "The queue q is left.", 1, event=left)]
    assert list(check_queues(of_events(*events))) == expected


def test_environments() -> None:
    def environment(op: str, name: str) -> Event:
        return event(op, 1, (2, 3), resource=name)

    started = [environment("environment.start", name) for name in "abc"]
    ended = [environment("environment.kill", name) for name in "acc"]
    said = "The execution environment {} ended {} times."
    assert list(check_environments(of_events(*started, *ended, environment("wait", "b")))) == [
        Violation("environments", said.format("b", 0), 1, event=1),
        Violation("environments", said.format("c", 2), 1, event=2),
    ]
