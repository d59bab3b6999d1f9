"""What the protocols of AllReduce, ScatterReduce and instances ask for: all messages and barriers of small runs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.lab.checks.small import Event, event, of_events
from tests.lab.replay.recordings import make_plan

from slslab.run.run import Run
from slslab_workers.architecture import architectures
from slslab_workers.patterns import (
    ANYONE,
    OWN,
    Activity,
    Part,
    Pattern,
    Role,
    Signal,
    Slot,
    Workload,
    activities,
    messages,
    trainer,
)
from slslab_workers.patterns.messages import Message, Name, Protocol, Wait, derive, steps_taken

NOWHERE = (-1, -1)
# Two workers take two steps with a model of five parameters.
STEPS = ((0, 0), (1, 0))
MINIBATCHES = frozenset((rank, *place) for rank in (0, 1) for place in STEPS)
FIVE = {"parameters": 5, "details": {}}
EVENTS = (
    event("compute", 0, STEPS[0], overhead=True),
    event("update", 1, STEPS[0], phase="update"),
    event("update", 0, STEPS[0], phase="synchronise"),
    event("compute", 0, STEPS[1], overhead=True),
    event("update", 1, STEPS[1], phase="synchronise"),
    event("update", 0, STEPS[1], phase="update"),
)
# What a barrier precedes: updates, and the next steps of both workers.
THEN = (1, 3, 4), (5,)


def small(architecture: str = "allreduce", *events: Event, options: dict[str, Any] | None = None, **more: Any) -> Run:
    """A run of two workers with the events above, if none are given."""
    plan = make_plan(architecture)
    plan = replace(plan, options={**plan.options, **(options or {})}, **more)
    return of_events(*(events or EVENTS), plan=plan, document=FIVE)


def of(run: Run) -> Protocol:
    """What the run's architecture asks of it."""
    protocol = architectures()[run.plan.architecture].protocol(run)
    assert protocol is not None
    return protocol


def by(worker: int, key: str, place: tuple[int, int]) -> Name:
    return Name(f"20261121-000000-{key}", worker, *place)


def waits(*names: Sequence[Name], then: Sequence[tuple[int, ...]] = THEN) -> tuple[Wait, ...]:
    """The barriers of both steps."""
    return tuple(Wait(place, tuple(until), after) for place, until, after in zip(STEPS, names, then, strict=True))


def gradients(key: str, place: tuple[int, int], size: int | None = 20) -> list[Message]:
    epoch, step = place
    names = [by(rank, f"{key}/gradients/e{epoch}/s{step}/{rank}", place) for rank in (0, 1)]
    return [Message("gradient", name, {0: 1}, size, place, 0) for name in names]


def mean(key: str, place: tuple[int, int], deleted_by: int | None, size: int | None = 20) -> Message:
    epoch, step = place
    return Message("mean", by(0, f"{key}/merged/e{epoch}_s{step}", place), {1: 1}, size, place, deleted_by)


KEY = "allreduce-lenet-abcd/allreduce"


def reduced(size: int | None, *before: Message, then: Sequence[tuple[int, ...]] = THEN) -> Protocol:
    """AllReduce's protocol, with messages of this many bytes."""
    first, second = (gradients(KEY, place, size) for place in STEPS)
    messages = (*before, *first, mean(KEY, STEPS[0], 0, size), *second, mean(KEY, STEPS[1], None, size))
    names = ([message.name for message in each] for each in (first, second))
    return Protocol(messages, waits(*names, then=then), MINIBATCHES)


def test_allreduce() -> None:
    assert of(small()) == reduced(20)
    unknown = small(model="of-another-package").replace(document=None)
    assert of(unknown) == reduced(None)
    # Models are averaged once an epoch, and used when they have come.
    assert of(small(options={"algorithm": "ma"})) == reduced(20, then=((2, 3, 4), (4,)))
    first = Message("first model", by(0, f"{KEY}/first", NOWHERE), {1: 1}, 20, NOWHERE)
    # Ten clusters have a number of rows each.
    em = small(options={"algorithm": "em"})
    assert of(em) == reduced(4 * (5 + 10), first, then=((2, 3, 4), (4,)))


def test_exchanges_after_several_steps() -> None:
    run = small(epochs=4, batches=3, options={"algorithm": "ma", "local-passes": 2})
    assert [wait.step for wait in of(run).waits] == [(1, 2), (3, 2)]
    assert len(of(run).minibatches) == 2 * 4 * 3


def test_a_server_that_adds_up() -> None:
    def pushed(place: tuple[int, int]) -> list[Message]:
        names = [by(rank, f"{KEY}/merged/e{place[0]}_s{place[1]}/{rank}", place) for rank in (0, 1)]
        return [Message("gradient", name, {0: 1, 1: 1}, 20, place) for name in names]

    first, second = map(pushed, STEPS)
    names = [message.name for message in first], [message.name for message in second]
    protocol = Protocol((*first, *second), waits(*names), MINIBATCHES)
    assert of(small(options={"channel": "parameter-server"})) == protocol
    em = of(small(options={"channel": "parameter-server", "algorithm": "em"}))
    assert [message.kind for message in em.messages] == ["first model", *4 * ["gradient"]]


def test_without_barriers() -> None:
    messages = [Message("model", by(rank, f"{KEY}/global", place), None, 20) for place in STEPS for rank in (0, 1)]
    found = of(small(options={"synchronisation": "s-asp"}))
    assert found == Protocol(tuple(messages), minibatches=MINIBATCHES, drawn=MINIBATCHES)
    stopped = of(small(epochs=4, early_stopping=True, options={"synchronisation": "s-asp"}))
    assert stopped == found, "nobody takes a model in a step that wasn't begun"


def test_scatterreduce() -> None:
    key = "scatterreduce-lenet-abcd/scatterreduce"
    messages, names = [], []
    for place, deleted_by in zip(STEPS, (0, None), strict=True):
        epoch, step = place
        part = f"{key}/partial/e{epoch}/s{step}"
        made = [
            # Of five numbers worker 0 has three.
            Message("chunk of a gradient", by(0, f"{part}/1/0", place), {1: 1}, 8, place, 1),
            Message("chunk of a gradient", by(1, f"{part}/0/1", place), {0: 1}, 12, place, 0),
            Message("sum of a chunk", by(0, f"{key}/merged/e{epoch}_s{step}/0", place), {1: 1}, 12, place, deleted_by),
            Message("sum of a chunk", by(1, f"{key}/merged/e{epoch}_s{step}/1", place), {0: 1}, 8, place, deleted_by),
        ]
        messages += made
        names.append([message.name for message in made])
    assert of(small("scatterreduce")) == Protocol(tuple(messages), waits(*names), MINIBATCHES)
    nine = small("scatterreduce").replace(document={**FIVE, "parameters": 9})
    assert [message.size for message in of(nine).messages[:4]] == [16, 20, 20, 16]
    unknown = small("scatterreduce", model="of-another-package").replace(document=None)
    assert {message.size for message in of(unknown).messages} == {None}
    assert of(small("scatterreduce", options={"algorithm": "em"})).messages[0].kind == "first model"


def test_instances_with_gpus() -> None:
    key = "gpu-lenet-abcd/gpu"
    steps = [(epoch, 0) for epoch in range(5)]
    messages = []
    for place, deleted_by in zip(steps, (0, 0, 0, None, None), strict=True):
        names = [by(rank, f"{key}/gradients/e{place[0]}_s{place[1]}/{rank}", place) for rank in (0, 1)]
        messages += [Message("gradient", name, {1 - name.maker: 1}, 20, place, deleted_by) for name in names]
    found = of(small("gpu", epochs=5))
    assert found.messages == tuple(messages)
    assert found.waits[0] == Wait((0, 0), (messages[0].name, messages[1].name), (1, 3, 4))
    assert found.minibatches == {(rank, *place) for rank in (0, 1) for place in steps}


def test_instances_that_add_up_among_themselves() -> None:
    key = "gloo-lenet-abcd"
    found = Message("address", by(0, f"{key}/rendezvous", NOWHERE), {1: 1}, None, NOWHERE, overhead=True)
    names = [[by(rank, f"{key}/gloo/e{place[0]}_s{place[1]}", place) for rank in (0, 1)] for place in STEPS]
    parts = [Message("part", name, {}, 20, name[2:]) for each in names for name in each]
    assert of(small("gloo")) == Protocol((found, *parts), waits(*names), MINIBATCHES)
    unknown = small("gloo", model="of-another-package").replace(document=None)
    assert {message.size for message in of(unknown).messages} == {None}
    alone = frozenset((0, *place) for place in STEPS)
    assert of(small("gloo", workers=1)) == Protocol((), minibatches=alone)


def test_what_each_of_three_owns_goes_to_it_alone() -> None:
    found = of(small("scatterreduce", workers=3, epochs=1).replace(document={**FIVE, "parameters": 7}))
    chunks = [(m.name.maker, *(m.takers or ()), m.size, m.deleted_by) for m in found.messages[:6]]
    # Of seven numbers worker 0 has three.
    assert sorted(chunks) == [
        *((0, 1, 8, 1), (0, 2, 8, 2)),
        *((1, 0, 12, 0), (1, 2, 8, 2)),
        *((2, 0, 12, 0), (2, 1, 8, 1)),
    ]
    assert all(type(message.size) is int for message in found.messages)


PUT = Activity("object.put", "synchronise", bytes=20, protocol=True)
GET = Activity("object.get", "synchronise", bytes=20, protocol=True)
DELETE = Activity("object.delete", "synchronise", protocol=True)
SHARED = Signal("model", key="{run}/{epoch}/{step}/{maker}")
ONE_EACH = Signal("part", key="{run}/{maker}/{taker}")


def by_hand(*parts: Activity, **more: Any) -> Protocol:
    """What is asked of a run of two workers who do these in each step."""
    run = small(**more)
    plan = run.plan
    workload = Workload(2, plan.batches, plan.epochs, 5, plan.options)
    return derive(Pattern(workload, (trainer(range(2), 5, parts),)), run)


def test_several_computations_of_a_step_are_one_minibatch() -> None:
    compute = Activity("compute", "compute", times=2)
    assert by_hand(compute).minibatches == MINIBATCHES
    later = Pattern(Workload(2, 1, 2, 5), (Role(range(2), steps=((replace(compute, since=1),),)),))
    assert derive(later, small()).minibatches == {(0, 1, 0), (1, 1, 0)}


def test_functions_of_an_epoch_number_their_minibatches() -> None:
    """Of four epochs, those that were begun are expected."""
    compute = Activity("compute", "compute", times=2)
    role = Role(range(2), each="epoch", start=(compute, replace(PUT, makes=(replace(SHARED, step=0),)), compute))
    run = small("allreduce", event("compute", 0, (0, 0), overhead=True), epochs=4, early_stopping=True)
    found = derive(Pattern(Workload(2, 1, 4, 5), (role,)), run)
    assert found.minibatches == {(rank, 0, step) for rank in (0, 1) for step in range(4)}
    assert {message.name[2:] for message in found.messages} == {(0, 0)}
    assert len(derive(Pattern(Workload(2, 1, 4, 5), (role,)), run, steps=3).messages) == 6


def test_who_takes_one_of_each_maker_takes_its_own_too() -> None:
    found = by_hand(replace(PUT, makes=(SHARED,)), replace(GET, times=2, bytes=40, needs=(SHARED,)))
    assert all(message.takers == {0: 1, 1: 1} for message in found.messages)
    others = by_hand(replace(PUT, makes=(SHARED,)), replace(GET, needs=(SHARED,)))
    assert [message.takers for message in others.messages[:2]] == [{1: 1}, {0: 1}]


def test_each_worker_may_delete_its_own_of_what_all_make() -> None:
    deletes = replace(DELETE, removes=(replace(SHARED, of=OWN, ahead=-1),))
    found = by_hand(replace(PUT, makes=(SHARED,)), replace(GET, needs=(SHARED,)), deletes)
    by_maker = [(message.name.maker, message.deleted_by) for message in found.messages]
    assert by_maker[:2] == [(0, 0), (1, 1)]
    assert by_maker[-2:] == [(0, None), (1, None)], "nothing comes after the last step"


def test_steps_that_were_not_begun_do_not_hide_what_workers_make_at_their_end() -> None:
    result = Signal("result", each="run", key="{run}/result/{maker}")
    run = small(epochs=3).replace(complete=False)
    role = replace(trainer(range(2), 5, (replace(PUT, makes=(SHARED,)),)), end=(replace(PUT, makes=(result,)),))
    found = derive(Pattern(Workload(2, 1, 3, 5, run.plan.options), (role,)), run)
    assert [message.kind for message in found.messages] == ["result"] * 2 + ["model"] * 4


def test_invocations_that_were_not_begun_draw_no_model() -> None:
    run = small(epochs=3).replace(complete=False)
    draws = Role(range(2), each="step", steps=((replace(GET, takes=(replace(SHARED, of=ANYONE),)),),))
    found = derive(Pattern(Workload(2, 1, 3, 5, run.plan.options), (trainer(range(2), 5, ()), draws)), run)
    assert found.drawn == MINIBATCHES


@pytest.mark.parametrize(("architecture", "epochs"), [("allreduce", {-1, 0, 1}), ("gradssharding", {-1, 0, 1, 2})])
def test_only_steps_that_were_begun_are_read(
    architecture: str, epochs: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And GradsSharding's next invocations, which take the last mean."""
    read: list[int] = []

    def noted(parts: Iterable[Part], slot: Slot) -> Iterator[Activity]:
        read.append(slot.epoch)
        return activities(parts, slot)

    monkeypatch.setattr(messages, "activities", noted)
    of(small(architecture, epochs=2000, early_stopping=True))
    assert set(read) == epochs


def test_what_is_one_s_own_is_taken_and_deleted_by_it_alone() -> None:
    own = (replace(SHARED, of=OWN),)
    found = by_hand(replace(PUT, makes=own), replace(GET, takes=own), replace(DELETE, removes=own))
    assert [(message.takers, message.deleted_by) for message in found.messages] == [({0: 1}, 0), ({1: 1}, 1)] * 2


def test_what_is_taken_in_the_step_that_follows() -> None:
    found = by_hand(replace(GET, needs=(replace(SHARED, ahead=-1),), since=1), replace(PUT, makes=(SHARED,)))
    assert [(message.name[2:], message.at, message.takers) for message in found.messages] == [
        *[(STEPS[0], STEPS[1], {1: 1}), (STEPS[0], STEPS[1], {0: 1})],
        *[(STEPS[1], STEPS[1], {})] * 2,
    ]


def test_a_part_for_each_of_unknown_size_that_stays() -> None:
    found = by_hand(replace(PUT, makes=(ONE_EACH,)), replace(GET, bytes=None, needs=(ONE_EACH,)))
    assert {(message.size, message.deleted_by) for message in found.messages} == {(None, None)}


def test_an_update_before_what_is_exchanged_waits_for_nobody() -> None:
    update = Activity("update", "update")
    before = by_hand(update, replace(PUT, makes=(SHARED,)), replace(GET, needs=(SHARED,)))
    # The next steps of both workers alone.
    assert [wait.then for wait in before.waits] == [(3, 4), ()]
    after = by_hand(replace(PUT, makes=(SHARED,)), replace(GET, needs=(SHARED,)), update)
    assert [wait.then for wait in after.waits] == [(1, 3, 4), (5,)]


def test_a_run_that_ended_within_an_epoch_made_nothing_afterwards() -> None:
    computed = event("compute", 0, (1, 0), overhead=True)
    found = of(small("allreduce", computed, batches=3, early_stopping=True))
    assert {message.name[2:] for message in found.messages} == {(0, 0), (0, 1), (0, 2), (1, 0)}


@pytest.mark.parametrize(
    ("run", "steps"),
    [
        (small(), 2),
        (small(epochs=4), 4),
        (small(epochs=4, early_stopping=True), 2),
        (small(epochs=4).replace(complete=False), 2),
        (small("allreduce", event("wait"), early_stopping=True), 0),
        (small("allreduce", event("compute", 0, (1, 2), overhead=True), batches=5, early_stopping=True), 8),
    ],
)
def test_steps_that_were_taken(run: Run, steps: int) -> None:
    assert steps_taken(run) == steps


def test_an_open_ended_run_took_the_steps_that_were_begun() -> None:
    assert steps_taken(small(epochs=4), open_ended=True) == 2
    assert len(of(small(epochs=4, options={"algorithm": "em"})).waits) == 2
