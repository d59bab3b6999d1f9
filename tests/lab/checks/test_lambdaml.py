"""What the protocols of AllReduce, ScatterReduce and instances ask for: all parcels and barriers of small runs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.lab.checks.small import Event, event, of_events
from tests.lab.replay.recordings import make_plan

from slslab.run.run import Run
from slslab_lab.checks.exchange import Name, Parcel, Protocol, Wait
from slslab_lab.checks.lambdaml import NOWHERE, allreduce, gloo, gpu, scatterreduce, steps_taken

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


def by(worker: int, key: str, place: tuple[int, int]) -> Name:
    return Name(f"20261121-000000-{key}", worker, *place)


def waits(*names: Sequence[Name], then: Sequence[tuple[int, ...]] = THEN) -> tuple[Wait, ...]:
    """The barriers of both steps."""
    return tuple(Wait(place, tuple(until), after) for place, until, after in zip(STEPS, names, then, strict=True))


def gradients(key: str, place: tuple[int, int], size: int | None = 20) -> list[Parcel]:
    epoch, step = place
    names = [by(rank, f"{key}/gradients/e{epoch}/s{step}/{rank}", place) for rank in (0, 1)]
    return [Parcel("gradient", name, {0: 1}, size, place, 0) for name in names]


def mean(key: str, place: tuple[int, int], deleted_by: int | None, size: int | None = 20) -> Parcel:
    epoch, step = place
    return Parcel("mean", by(0, f"{key}/merged/e{epoch}_s{step}", place), {1: 1}, size, place, deleted_by)


KEY = "allreduce-lenet-abcd/allreduce"


def reduced(size: int | None, *before: Parcel, then: Sequence[tuple[int, ...]] = THEN) -> Protocol:
    """AllReduce's protocol, of messages of so many bytes."""
    first, second = (gradients(KEY, place, size) for place in STEPS)
    parcels = (*before, *first, mean(KEY, STEPS[0], 0, size), *second, mean(KEY, STEPS[1], None, size))
    names = ([parcel.name for parcel in each] for each in (first, second))
    return Protocol(parcels, waits(*names, then=then), MINIBATCHES)


def test_allreduce() -> None:
    assert allreduce(small()) == reduced(20)
    unknown = small(model="of-another-package").replace(document=None)
    assert allreduce(unknown) == reduced(None)
    # Models are averaged once an epoch, and used when they have come.
    assert allreduce(small(options={"algorithm": "ma"})) == reduced(20, then=((2, 3, 4), (4,)))
    first = Parcel("first model", by(0, f"{KEY}/first", NOWHERE), {1: 1}, at=NOWHERE)
    # Ten clusters have a number of rows each.
    em = small(options={"algorithm": "em"})
    assert allreduce(em) == reduced(4 * (5 + 10), first, then=((2, 3, 4), (4,)))


def test_exchanges_after_several_steps() -> None:
    run = small(epochs=4, batches=3, options={"algorithm": "ma", "local-passes": 2})
    assert [wait.place for wait in allreduce(run).waits] == [(1, 2), (3, 2)]
    assert len(allreduce(run).minibatches) == 2 * 4 * 3


def test_a_server_that_adds_up() -> None:
    def pushed(place: tuple[int, int]) -> list[Parcel]:
        names = [by(rank, f"{KEY}/merged/e{place[0]}_s{place[1]}/{rank}", place) for rank in (0, 1)]
        return [Parcel("gradient", name, {0: 1, 1: 1}, 20, place) for name in names]

    first, second = map(pushed, STEPS)
    names = [parcel.name for parcel in first], [parcel.name for parcel in second]
    protocol = Protocol((*first, *second), waits(*names), MINIBATCHES)
    assert allreduce(small(options={"channel": "parameter-server"})) == protocol
    em = allreduce(small(options={"channel": "parameter-server", "algorithm": "em"}))
    assert [parcel.kind for parcel in em.parcels] == ["first model", *4 * ["gradient"]]


def test_without_barriers() -> None:
    parcels = [Parcel("model", by(rank, f"{KEY}/global", place), None, 20) for place in STEPS for rank in (0, 1)]
    found = allreduce(small(options={"synchronisation": "s-asp"}))
    assert found == Protocol(tuple(parcels), minibatches=MINIBATCHES, drawn=MINIBATCHES)


def test_scatterreduce() -> None:
    key = "scatterreduce-lenet-abcd/scatterreduce"
    parcels, names = [], []
    for place, deleted_by in zip(STEPS, (0, None), strict=True):
        epoch, step = place
        part = f"{key}/partial/e{epoch}/s{step}"
        made = [
            # Of five numbers worker 0 has three.
            Parcel("chunk of a gradient", by(0, f"{part}/1/0", place), {1: 1}, 8, place, 1),
            Parcel("chunk of a gradient", by(1, f"{part}/0/1", place), {0: 1}, 12, place, 0),
            Parcel("sum of a chunk", by(0, f"{key}/merged/e{epoch}_s{step}/0", place), {1: 1}, 12, place, deleted_by),
            Parcel("sum of a chunk", by(1, f"{key}/merged/e{epoch}_s{step}/1", place), {0: 1}, 8, place, deleted_by),
        ]
        parcels += made
        names.append([parcel.name for parcel in made])
    assert scatterreduce(small("scatterreduce")) == Protocol(tuple(parcels), waits(*names), MINIBATCHES)
    nine = small("scatterreduce").replace(document={**FIVE, "parameters": 9})
    assert [parcel.size for parcel in scatterreduce(nine).parcels[:4]] == [16, 20, 20, 16]
    unknown = small("scatterreduce", model="of-another-package").replace(document=None)
    assert {parcel.size for parcel in scatterreduce(unknown).parcels} == {None}
    assert scatterreduce(small("scatterreduce", options={"algorithm": "em"})).parcels[0].kind == "first model"


def test_instances_with_gpus() -> None:
    key = "gpu-lenet-abcd/gpu"
    steps = [(epoch, 0) for epoch in range(5)]
    parcels = []
    for place, deleted_by in zip(steps, (0, 0, 0, None, None), strict=True):
        names = [by(rank, f"{key}/gradients/e{place[0]}_s{place[1]}/{rank}", place) for rank in (0, 1)]
        parcels += [Parcel("gradient", name, {1 - name.maker: 1}, 20, place, deleted_by) for name in names]
    found = gpu(small("gpu", epochs=5))
    assert found.parcels == tuple(parcels)
    assert found.waits[0] == Wait((0, 0), (parcels[0].name, parcels[1].name), (1, 3, 4))
    assert found.minibatches == {(rank, *place) for rank in (0, 1) for place in steps}


def test_instances_that_add_up_among_themselves() -> None:
    key = "gloo-lenet-abcd"
    found = Parcel("address", by(0, f"{key}/rendezvous", NOWHERE), {1: 1}, overhead=True)
    names = [[by(rank, f"{key}/gloo/e{place[0]}_s{place[1]}", place) for rank in (0, 1)] for place in STEPS]
    parts = [Parcel("part", name, {}, 20, name[2:]) for each in names for name in each]
    assert gloo(small("gloo")) == Protocol((found, *parts), waits(*names), MINIBATCHES)
    unknown = small("gloo", model="of-another-package").replace(document=None)
    assert {parcel.size for parcel in gloo(unknown).parcels} == {None}
    alone = frozenset((0, *place) for place in STEPS)
    assert gloo(small("gloo", workers=1)) == Protocol((), minibatches=alone)


@pytest.mark.parametrize(
    ("run", "steps"),
    [
        (small(), 2),
        (small(epochs=4), 4),
        (small(epochs=4, early_stopping=True), 2),
        (small(epochs=4, options={"algorithm": "em"}), 2),
        (small(epochs=4).replace(complete=False), 2),
        (small("allreduce", event("wait"), early_stopping=True), 0),
        (small("allreduce", event("compute", 0, (1, 2), overhead=True), batches=5, early_stopping=True), 8),
    ],
)
def test_steps_that_were_taken(run: Run, steps: int) -> None:
    assert steps_taken(run) == steps
