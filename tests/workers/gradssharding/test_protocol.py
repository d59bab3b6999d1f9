"""What GradsSharding's protocol asks for: all messages and barriers of small runs, by topology."""

from dataclasses import replace
from typing import Any

from tests.lab.checks.small import Event, event, of_events
from tests.lab.replay.recordings import make_plan

from slslab.run.run import Place, Run
from slslab_workers.architecture import architectures
from slslab_workers.models import SPECS
from slslab_workers.patterns.messages import Message, Name, Protocol, Wait

# Two clients take a step in each of two epochs with a model of five parameters.
RUN = "20261121-000000-gradssharding-lenet-abcd/gradssharding"
PLAN = make_plan("gradssharding")
FIVE = {"parameters": 5, "details": {}}
STEPS = ((0, 0), (1, 0))


def small(*events: Event, options: dict[str, Any] | None = None, **more: Any) -> Run:
    plan = replace(PLAN, options={**PLAN.options, "shards": 2, **(options or {})}, **more)
    return of_events(*events, plan=plan, document=FIVE)


def gradssharding(run: Run) -> Protocol:
    protocol = architectures()["gradssharding"].protocol(run)
    assert protocol is not None
    return protocol


def put(aggregator: int, place: Place, **more: Any) -> Event:
    return event("object.put", aggregator, place, **more)


def updated(client: int, place: Place) -> Event:
    return event("update", client, place, phase="update")


def gradient(client: int, shard: int, place: Place, taker: int, size: int | None, deleted_by: int | None) -> Message:
    name = Name(f"{RUN}/e{place[0]}/s{place[1]}/{client}/{shard}", client, *place)
    return Message("gradient", name, {taker: 1}, size, place, deleted_by)


def made(kind: str, level: int, number: int, maker: int, place: Place, takers: list[int], **more: Any) -> Message:
    name = Name(f"{RUN}/e{place[0]}/s{place[1]}/level{level}/{number}", maker, *place)
    return Message(kind, name, dict.fromkeys(takers, 1), at=place, **more)


def names(*messages: Message) -> tuple[Name, ...]:
    return tuple(message.name for message in messages)


def test_averaged_buffers_follow_the_gradient() -> None:
    run = small(updated(0, STEPS[0]), updated(1, STEPS[0]), options={"buffers": "averaged"}, model="mobilenet")
    sizes = [message.size or 0 for message in gradssharding(run).messages if message.kind == "gradient"]
    assert sum(sizes[:2]) == 4 * (5 + SPECS["mobilenet"].buffers) > 20


def test_shards() -> None:
    events = [
        put(2, STEPS[0]),
        put(2, STEPS[0], overhead=True),
        put(3, STEPS[0]),
        updated(1, STEPS[0]),
        put(3, STEPS[1]),
    ]
    messages: list[Message] = []
    waits = []
    then: tuple[tuple[tuple[int, ...], ...], ...] = (((0, 2), (3,)), ((4,), (5,)))
    for place, deleted_by, (put_, used) in zip(STEPS, (-1, None), then, strict=True):
        # Of five numbers the first slice has three; clients are 0 and 1, aggregators 2 and 3.
        gradients = [
            gradient(client, shard, place, 2 + shard, (12, 8)[shard], deleted_by)
            for client in (0, 1)
            for shard in (0, 1)
        ]
        means = [
            made("mean", 1, shard, 2 + shard, place, [0, 1], size=(12, 8)[shard], deleted_by=deleted_by)
            for shard in (0, 1)
        ]
        messages += [*gradients, *means]
        waits += [Wait(place, names(*gradients), put_), Wait(place, names(*means), used)]
    minibatches = frozenset((client, *place) for client in (0, 1) for place in STEPS)
    found = gradssharding(small(*events, updated(0, STEPS[1])))
    assert found == Protocol(tuple(messages), tuple(waits), minibatches)


def test_a_tree() -> None:
    """Of three clients an aggregator adds up two, another one the third's, and a root both sums."""
    place = (0, 0)
    options = {"topology": "lambda-fl"}
    events = put(3, place), put(4, place), put(5, place), updated(2, place)
    gradients = [gradient(client, 0, place, taker, 20, None) for client, taker in ((0, 3), (1, 3), (2, 4))]
    sums = [made("sum", 1, number, 3 + number, place, [5], size=20) for number in (0, 1)]
    mean = made("mean", 2, 0, 5, place, [0, 1, 2], size=20)
    waits = Wait(place, names(*gradients), (0, 1)), Wait(place, names(*sums), (2,)), Wait(place, names(mean), (3,))
    found = gradssharding(small(*events, options=options, workers=3, epochs=1))
    assert (found.messages, found.waits) == ((*gradients, *sums, mean), waits)


def test_a_tree_of_three_levels() -> None:
    found = gradssharding(small(options={"topology": "lifl"}, workers=5, epochs=1)).messages
    made = [(message.kind, message.name.maker, message.takers) for message in found if message.kind != "gradient"]
    everyone = dict.fromkeys(range(5), 1)
    sums = [("sum", 5, {8: 1}), ("sum", 6, {8: 1}), ("sum", 7, {9: 1}), ("sum", 8, {10: 1}), ("sum", 9, {10: 1})]
    assert made == [*sums, ("mean", 10, everyone)]


def test_gradients_that_the_driver_uploads() -> None:
    found = gradssharding(small(options={"gradients": "uploaded", "parameters": 7}))
    uploaded = [
        Message("gradient", Name(f"{RUN}/uploaded/{client}/{shard}", -1, -1, -1), {2 + shard: 2}, size, overhead=True)
        for client in (0, 1)
        for shard, size in ((0, 16), (1, 12))
    ]
    means = [
        made("mean", 1, shard, 2 + shard, place, [], size=size, deleted_by=deleted_by)
        for place, deleted_by in zip(STEPS, (-1, None), strict=True)
        for shard, size in ((0, 16), (1, 12))
    ]
    # Aggregators may begin at once, and nobody updates a model.
    waits = [Wait(place, names(*each), ()) for place, each in zip(STEPS, (means[:2], means[2:]), strict=True)]
    assert found == Protocol((*uploaded, *means), tuple(waits))


def test_sizes_that_are_not_known() -> None:
    run = small(model="of-another-package").replace(document=None)
    assert {message.size for message in gradssharding(run).messages} == {None}
    nine = small().replace(document={**FIVE, "parameters": 9})
    assert [message.size for message in gradssharding(nine).messages[:2]] == [20, 16]


def test_steps_that_end_before() -> None:
    computed = event("compute", 0, STEPS[0], overhead=True)
    run = small(computed, epochs=2, batches=2, early_stopping=True)
    assert {wait.step for wait in gradssharding(run).waits} == {(0, 0)}
    uploaded = small(computed, epochs=2, batches=2, options={"gradients": "uploaded"}).replace(complete=False)
    assert {wait.step for wait in gradssharding(uploaded).waits} == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_a_mean_of_the_last_step_that_was_begun() -> None:
    """A run was killed before its third step: clients may have taken the second one's mean."""
    computed = [event("compute", 0, (0, step), overhead=True) for step in (0, 1)]
    found = gradssharding(small(*computed, epochs=1, batches=3).replace(complete=False))
    means = [message for message in found.messages if message.kind == "mean"]
    assert [(message.at, message.takers) for message in means] == [
        (step, {0: 1, 1: 1}) for step in ((0, 0), (0, 0), (0, 1), (0, 1))
    ]
