"""What SPIRT's protocol asks for: all messages and barriers of small runs, by options."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.lab.checks.small import Event, event, of_events
from tests.lab.replay.recordings import make_plan

from slslab.run.run import Run
from slslab_workers.patterns.messages import Message, Name, Wait
from slslab_workers.spirt.protocol import protocol as spirt

# Two peers train two epochs of two minibatches with a model of five parameters.
RUN = "20261121-000000-spirt-lenet-abcd"
BOTH = {0: 1, 1: 1}
FIVE = {"parameters": 5, "details": {}}
PLAN = replace(make_plan("spirt"), batches=2)


def small(*events: Event, options: dict[str, Any] | None = None, **more: Any) -> Run:
    return of_events(*events, plan=replace(PLAN, options={**PLAN.options, **(options or {})}, **more), document=FIVE)


def stored(key: str, peer: int, epoch: int, op: str = "tensor.set", **more: Any) -> Event:
    return event(op, peer, (epoch, -1), resource=f"host:1/{RUN}:{key}", **more)


def computed(peer: int, epoch: int, batch: int = 0) -> Event:
    return event("compute", peer, (epoch, batch), overhead=True)


def by(peer: int, key: str, epoch: int, batch: int = -1) -> Name:
    return Name(f"{RUN}:{key}", peer, epoch, batch)


def gradients(peer: int, epoch: int) -> list[Message]:
    names = [by(peer, f"gradient_{epoch}_{batch}", epoch, batch) for batch in (0, 1)]
    return [Message("gradient", name, {peer: 1}, 20, (epoch, -1)) for name in names]


def average(peer: int, epoch: int) -> Message:
    """A peer's average, made by a script."""
    return Message("average", by(peer, f"averaged_gradient_{epoch} (script)", epoch), BOTH, at=(epoch, -1))


def model(peer: int, epoch: int, read: int, key: str = "params (script)") -> Message:
    return Message("model", by(peer, key, epoch), {peer: read})


def aggregate(peer: int, epoch: int) -> Message:
    return Message("aggregate", by(peer, f"aggregated_gradient_{epoch}", epoch), {peer: 1}, 20, (epoch, -1))


def announcements(epoch: int) -> list[Message]:
    """Both peers' announcements of their averages."""
    queue = f"slslab.{RUN}.e{epoch}.barrier"
    return [Message("announcement", Name(queue, peer, epoch, -1), BOTH) for peer in (0, 1)]


def test_by_default_a_database_averages_and_updates() -> None:
    made = [
        stored("aggregated_gradient_0", 0, 0),
        stored("aggregated_gradient_0", 1, 0),
        stored("aggregated_gradient_0", 1, 0, overhead=True),
        stored("aggregated_gradient_0", 1, 0, "tensor.get"),
        stored("aggregated_gradient_0", 1, 0, "tensor.script"),
        stored("other", 1, 0),
        stored("aggregated_gradient_1", 1, 1),
    ]
    found = spirt(small(*made))
    messages: list[Message] = []
    # The parameters of the first epoch are read for two minibatches and by the update that follows, too.
    for epoch, read in ((0, 4), (1, 1)):
        for peer in (0, 1):
            stays = model(peer, epoch, read), aggregate(peer, epoch)
            messages += (*gradients(peer, epoch), average(peer, epoch), *stays)
        messages += announcements(epoch)
    assert found.messages == tuple(messages)
    names = [tuple(Name(f"slslab.{RUN}.e{epoch}.barrier", peer, epoch, -1) for peer in (0, 1)) for epoch in (0, 1)]
    assert found.waits == (Wait((0, -1), names[0], (0, 1)), Wait((1, -1), names[1], (6,)))
    assert found.minibatches == {(peer, epoch, batch) for peer in (0, 1) for epoch in (0, 1) for batch in (0, 1)}
    assert found.cleared == {(peer, epoch) for peer in (0, 1) for epoch in (0, 1)}
    assert found.appended == {f"{RUN}:gradients_0", f"{RUN}:gradients_1"}
    assert (found.judged, found.unjudged, found.steps, found.drawn) == (None, "", {}, frozenset())


STORED = Message("average", by(0, "averaged_gradient_0", 0), BOTH, 20, (0, -1))
OWN = Message("average", by(0, "averaged_gradient_0 (script)", 0), {0: 1}, at=(0, -1))
TEXTS = [Message("gradient", by(0, "gradients_0", 0, batch), {0: 1}, at=(0, -1)) for batch in (0, 1)]
TEXT_MEAN = Message("average", by(0, "gradients_0 (script)", 0), {}, at=(0, -1))
COPY = Message("copy of an average", by(0, "received_0_1", 0), {0: 1}, 20, (0, -1))
VELOCITY = by(0, "velocity", 0)
SCRIPT = model(0, 0, 4)
NAIVE, TRIP = {"update": "naive"}, {"averaging": "round-trip"}


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ({}, [*gradients(0, 0), average(0, 0), SCRIPT]),
        (TRIP, [*gradients(0, 0), OWN, STORED, SCRIPT]),
        ({"averaging": "naive"}, [*gradients(0, 0), STORED, SCRIPT]),
        # What an attacker makes of its own minibatches may be taken by nobody.
        ({"attack": "sign-flip:0"}, [*gradients(0, 0), replace(average(0, 0), takers=None), SCRIPT]),
        ({**TRIP, "attack": "sign-flip:0"}, [*gradients(0, 0), OWN, replace(STORED, takers=None), SCRIPT]),
        ({"attack": "sign-flip:1"}, [*gradients(0, 0), average(0, 0), SCRIPT]),
        ({"attack": "label-flip:0"}, [*gradients(0, 0), average(0, 0), SCRIPT]),
        ({"gradients": "json"}, [*TEXTS, TEXT_MEAN, STORED, SCRIPT]),
        ({"combine": "median"}, [*gradients(0, 0), average(0, 0), SCRIPT, COPY]),
        (NAIVE, [*gradients(0, 0), average(0, 0), model(0, 0, 4, "params")]),
        ({"update-rule": "sgd-momentum"}, [*gradients(0, 0), average(0, 0), SCRIPT]),
        (
            {**NAIVE, "update-rule": "sgd-momentum"},
            [*gradients(0, 0), average(0, 0), model(0, 0, 4, "params"), Message("velocity", VELOCITY, {0: 1})],
        ),
    ],
)
def test_what_a_peer_makes_by_options(options: dict[str, Any], messages: Sequence[Message]) -> None:
    found = [message for message in spirt(small(options=options)).messages if message.name[1:3] == (0, 0)]
    assert found[:-2] == messages
    assert [message.kind for message in found[-2:]] == ["aggregate", "announcement"]


def test_a_velocity_that_nobody_needs_any_more_is_read_by_nobody() -> None:
    found = spirt(small(options={**NAIVE, "update-rule": "sgd-momentum"}, epochs=1)).messages
    assert Message("velocity", VELOCITY, {}) in found
    assert model(0, 0, 1, "params") in found


def test_a_robust_aggregate_is_made_by_a_script() -> None:
    found = spirt(small(stored("aggregated_gradient_0", 0, 0, "tensor.script"), options={"combine": "median"}))
    aggregate = Message("aggregate", by(0, "aggregated_gradient_0 (script)", 0), {0: 1}, at=(0, -1))
    assert aggregate in found.messages
    assert found.waits[0].then == (0,)


def epochs(run: Run) -> list[int]:
    return [wait.step[0] for wait in spirt(run).waits]


def test_epochs_that_may_end_before() -> None:
    events = [computed(0, 0), computed(1, 1)]
    assert epochs(small(*events, epochs=4)) == [0, 1, 2, 3]
    assert epochs(small(*events, epochs=4, early_stopping=True)) == [0, 1]
    assert epochs(small(*events, epochs=4).replace(complete=False)) == [0, 1]
    fault = event("fault", 0, (1, 0), resource="x message-lost")
    lost = spirt(small(*events, computed(0, 2), fault, epochs=4))
    assert [wait.step for wait in lost.waits] == [(0, -1)]
    assert (lost.judged, lost.unjudged) == (1, "a peer or a message was lost or late in epoch 1: epochs from it on")


def test_peers_that_join() -> None:
    run = small(computed(2, 1), computed(3, 1), computed(0, 1), epochs=3, workers=3, options={"join": "2:1"})
    found = spirt(run)
    assert found.cleared == {(0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (0, 2), (1, 2)}
    everyone = {0: 1, 1: 1, 2: 1}
    assert {message.name.epoch for message in found.messages if message.takers == everyone} == {1}
