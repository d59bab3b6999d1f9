"""SPIRT's peers that join while others train: trajectories and counts, who is refused, who is late, and who fails."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.workers.architectures.peers import Peers, Steps, check_counts, until

from slslab_workers.channels.queues import Queues
from slslab_workers.plan import Plan, PlanError
from slslab_workers.spirt import architecture, joining
from slslab_workers.spirt.deployment import SpirtDeployment
from slslab_workers.spirt.peer import Peer
from slslab_workers.spirt.roster import Roster
from slslab_workers.spirt.settings import Keys, password_queue, waiting_queue
from slslab_workers.spirt.trust import Identity

MakePlan = Callable[..., Plan]
Reference = Callable[..., Any]
PLAIN = {"batches": 1, "momentum": 0.0, "weight_decay": 0.0}


@pytest.fixture
def joining_plan(make_plan: MakePlan) -> MakePlan:
    """Three peers, three epochs; `join` is the option."""

    def make(join: str, **changes: Any) -> Plan:
        options = {"join": join, **changes.pop("options", {})}
        return make_plan("spirt", **{"workers": 3, "epochs": 3, "batch_size": 4, **changes}, options=options)

    return make


def present(plan: Plan, join: str) -> list[list[int]]:
    """Ranks that take part, by epoch, if they join so."""
    roster = Roster.of(plan.workers, {"join": join})
    return [roster.active(epoch) for epoch in range(plan.epochs)]


def check_trajectory(steps: Steps, expected: list[str], active: list[list[int]]) -> None:
    """Every peer's parameters after each epoch that it took part in, bit by bit."""
    ranks = {rank for ranks in active for rank in ranks}
    found = {rank: [bits for bits, ranks in zip(expected, active, strict=True) if rank in ranks] for rank in ranks}
    assert steps.fingerprints == found


@pytest.mark.parametrize("join", ["2:1", "0:1", "1:2"])
def test_from_its_first_epoch_on_a_newcomer_is_one_of_the_peers(
    join: str, peers: Peers, joining_plan: MakePlan, reference: Reference
) -> None:
    """Bit-equal to one process that averages over two ranks first and over three later."""
    plan = joining_plan(join, **PLAIN)
    steps = Steps(peers)
    ran = peers.run(plan, after=steps)
    expected, _ = reference(plan)
    check_trajectory(steps, expected, present(plan, join))
    assert expected != reference(replace(plan, options={**plan.options, "join": "none"}))[0]
    check_counts(ran, join)
    rank, first = map(int, join.split(":"))
    assert ran.outcome.details["joins"] == [{"worker": rank, "epoch": first}]
    assert ran.outcome.details["deaths"] == []
    assert ran.outcome.replicas_equal
    assert ran.outcome.epochs == ran.outcome.updates == len(ran.outcome.accuracy) == len(ran.outcome.loss) == 3
    assert peers.left() == []


def test_newcomers_may_come_together_and_one_after_the_other(
    peers: Peers, joining_plan: MakePlan, reference: Reference
) -> None:
    join = "1:1, 3:1, 4:2"
    plan = joining_plan(join, workers=5, epochs=4, **PLAIN)
    steps = Steps(peers)
    ran = peers.run(plan, after=steps)
    assert ran.outcome.details["deaths"] == []
    assert ran.outcome.details["joins"] == [{"worker": rank, "epoch": 1 + (rank == 4)} for rank in (1, 3, 4)]
    active = present(plan, join)
    assert [len(ranks) for ranks in active] == [2, 4, 5, 5]
    check_trajectory(steps, reference(plan)[0], active)
    check_counts(ran, join)


def test_a_newcomer_is_handed_the_velocity(peers: Peers, joining_plan: MakePlan, reference: Reference) -> None:
    plan = joining_plan("1:2", workers=2, batches=1, options={"update-rule": "sgd-momentum"})
    steps = Steps(peers)
    ran = peers.run(plan, after=steps)
    assert steps.fingerprints[1] == steps.fingerprints[0][2:]
    assert steps.fingerprints[0] == reference(plan)[0]
    check_counts(ran, "1:2")


def test_what_joining_costs_stands_apart(peers: Peers, joining_plan: MakePlan) -> None:
    """A request and an answer to and from each of two, and one vector out of one database into the newcomer's."""
    ran = peers.run(joining_plan("2:1"))
    beside = [event for event in ran.events if event["overhead"]]
    handed = [event for event in beside if event["op"] == "tensor.set" and event["epoch"] == 1]
    assert [(event["worker"], event["bytes"]) for event in handed] == [(0, 4 * ran.outcome.parameters)]
    published = [event for event in beside if event["op"] == "queue.publish"]
    assert len(published) == 2 * 3 * 2


def test_mobilenets_buffers_are_handed_over(peers: Peers, joining_plan: MakePlan) -> None:
    shape = {"model": "mobilenet", "dataset": "synthetic", "memory_mb": 1769}
    plan = joining_plan("1:1", workers=2, epochs=2, batches=1, **shape)
    began: dict[int, torch.Tensor] = {}

    def before(name: str, rank: int, epoch: int, _: Any) -> None:
        if (name, epoch) == ("compute_gradients", 1):
            began[rank] = peers.tensor(rank, Keys(plan).buffers(epoch=1))

    ran = peers.run(plan, before)
    assert began[0].numel() == 21_915
    assert torch.equal(began[0], began[1])
    assert ran.outcome.replicas_equal


def test_the_driver_starts_epochs_and_a_newcomer_joins(peers: Peers, joining_plan: MakePlan) -> None:
    ran = peers.run(joining_plan("2:1", until_accuracy=1.0))
    assert ran.outcome.epochs == 3
    assert ran.outcome.replicas_equal
    check_counts(ran, "2:1")


def test_a_newcomer_stops_with_the_others(peers: Peers, joining_plan: MakePlan) -> None:
    """It knows since when no loss was lower, although it joined later."""
    ran = peers.run(joining_plan("1:8", workers=2, epochs=30, batches=1, lr=1e-30, early_stopping=True))
    assert ran.outcome.epochs == 1 + 10
    check_counts(ran, "1:8")


def test_whom_only_some_admitted_in_time_joins_an_epoch_later(
    peers: Peers, joining_plan: MakePlan, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the newcomer sends to peer 1 arrives after that one's Authentification."""
    plan = joining_plan("2:1", epochs=4, **PLAIN)
    publish = Queues.publish
    held: list[tuple[str, bytes]] = []
    over: list[bool] = []
    named: list[list[int]] = []

    def hold(queues: Queues, queue: str, body: bytes, phase: str) -> str:
        late = json.loads(body)["rank"] == 2 and queue in (waiting_queue(plan, rank=1), password_queue(plan, rank=1))
        if not late or over:
            return publish(queues, queue, body, phase)
        held.append((queue, body))
        return ""

    def before(name: str, rank: int, epoch: int, _: Any) -> None:
        if (name, rank, epoch) == ("average_gradients", 1, 0):
            over.append(True)
            with peers.queues() as queues:
                for queue, body in held:
                    publish(queues, queue, body, "other")

    steps = Steps(peers)

    def after(name: str, rank: int, epoch: int, event: Mapping[str, Any]) -> None:
        steps(name, rank, epoch, event)
        if (name, rank, epoch) == ("auth", 0, 0):
            with peers.database(0) as database:
                named.append(sorted(int(bytes(other)) for other in database.command("HKEYS", Keys(plan).trusted)))

    monkeypatch.setattr(Queues, "publish", hold)
    ran = peers.run(plan, before, after)
    assert len(held) == 2
    assert named == [[1, 2]], "peer 0 had admitted it in time"
    active = present(plan, "2:2")
    check_trajectory(steps, reference(replace(plan, options={**plan.options, "join": "2:2"}))[0], active)
    assert ran.outcome.details["joins"] == [{"worker": 2, "epoch": 2}]
    check_counts(ran, "2:2")


def test_whoever_asks_early_waits_for_its_epoch(peers: Peers, joining_plan: MakePlan) -> None:
    """Both admit peer 2 in epoch 0 already."""
    born: list[int] = []
    admitted: list[list[int]] = []

    def before(name: str, _: int, epoch: int, __: Any) -> None:
        if (name, epoch) == ("auth", 0):
            until(lambda: born)

    def after(name: str, rank: int, epoch: int, _: Any) -> None:
        if (name, rank) == ("init_peers", 2):
            born.append(rank)
        elif (name, epoch) == ("auth", 0):
            with peers.database(rank) as database:
                admitted.append(sorted(int(bytes(other)) for other in database.command("HKEYS", keys.trusted)))

    plan = joining_plan("2:2")
    keys = Keys(plan)
    ran = peers.run(plan, before, after)
    assert sorted(admitted) == [[0, 2], [1, 2]]
    assert ran.outcome.details["joins"] == [{"worker": 2, "epoch": 2}]
    check_counts(ran, "2:2")


def test_a_newcomer_that_is_refused_leaves_the_others_to_go_on(
    peers: Peers, joining_plan: MakePlan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another sender asks in its place: with another secret, with altered records, or with another peer's records."""
    plan = joining_plan("2:1", **PLAIN)
    stranger, publish = Identity.fresh(), Queues.publish

    def be_another(_: SpirtDeployment, epoch: int) -> None:
        if epoch > 0:
            return
        with peers.queues() as queues:
            for to in (0, 1):
                record = {"kind": "join", "run": plan.run, "rank": 2, "to": to, "address": "127.0.0.1", "port": 1}
                signed = stranger.sign(record, "guess")
                for forged in (signed, {**signed, "port": 2}):
                    publish(queues, waiting_queue(plan, rank=to), json.dumps(forged).encode(), "other")

    def repeated(queues: Queues, queue: str, body: bytes, phase: str) -> str:
        if queue == waiting_queue(plan, rank=0):
            publish(queues, queue, json.dumps({**json.loads(body), "rank": 2}).encode(), phase)
            publish(queues, queue, body, phase)
        return publish(queues, queue, body, phase)

    monkeypatch.setattr(SpirtDeployment, "_submit_newcomers", be_another)
    monkeypatch.setattr(Queues, "publish", repeated)
    ran = peers.run(plan)
    assert ran.outcome.details["joins"] == [{"worker": 2, "epoch": None}]
    assert ran.outcome.replicas_equal
    assert {rank for rank, _ in ran.executions} == {0, 1}
    assert len(ran.executions) == 2 * 3
    said = capsys.readouterr().out
    for problem in ("does not know the run's admission secret", "not signed with its key", "sent it before"):
        assert problem in said


def test_what_a_newcomer_sent_counts_once(
    peers: Peers, joining_plan: MakePlan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All its records come again in every epoch."""
    plan = joining_plan("2:1", **PLAIN)
    publish = Queues.publish
    sent: list[tuple[str, bytes]] = []

    def keep(queues: Queues, queue: str, body: bytes, phase: str) -> str:
        if json.loads(body)["rank"] == 2:
            sent.append((queue, body))
        return publish(queues, queue, body, phase)

    def replay(name: str, rank: int, epoch: int, _: Any) -> None:
        if (name, rank) == ("auth", 0) and epoch > 0:
            with peers.queues() as queues:
                for queue, body in list(sent):
                    publish(queues, queue, body, "other")

    monkeypatch.setattr(Queues, "publish", keep)
    ran = peers.run(plan, before=replay)
    assert ran.outcome.replicas_equal
    assert len(sent) == 4
    assert capsys.readouterr().out.count("peer 2 sent it before") >= 4
    check_counts(ran, "2:1")


def test_a_newcomer_that_dies_before_its_first_epoch_is_a_death(peers: Peers, joining_plan: MakePlan) -> None:
    """All have agreed that it takes part, and find nothing where they would hand it the model."""

    def kill(name: str, rank: int, epoch: int, _: Any) -> None:
        if (name, rank, epoch) == ("aggregation", 0, 0):
            peers.kill(2)

    ran = peers.run(joining_plan("2:1"), before=kill)
    assert [(death["worker"], death["epoch"]) for death in ran.outcome.details["deaths"]] == [(2, 1)]
    assert {rank for rank, _ in ran.executions} == {0, 1}
    assert ran.outcome.replicas_equal
    assert ran.outcome.epochs == 3
    assert peers.left() == []


def test_the_next_peer_hands_over_for_one_that_died(peers: Peers, joining_plan: MakePlan) -> None:
    """Rank 0 fails when all have agreed, and before it could."""
    # Both have left the epoch in which rank 1 would find rank 0 dead, and rank 1 does not look for it before it is.
    left: set[int] = set()
    arrived: list[int] = []
    killed: list[int] = []

    def kill(name: str, rank: int, epoch: int, _: Any) -> None:
        if (name, rank, epoch) == ("auth", 0, 1):
            until(lambda: arrived and left == {0, 1})
            peers.kill(0)
            killed.append(0)
        if (name, rank, epoch) == ("auth", 1, 1):
            arrived.append(1)
            until(lambda: killed)

    steps = Steps(peers)

    def after(name: str, rank: int, epoch: int, event: Mapping[str, Any]) -> None:
        steps(name, rank, epoch, event)
        if (name, epoch) == ("trigger_next_epoch", 0):
            left.add(rank)

    ran = peers.run(joining_plan("2:1"), before=kill, after=after)
    assert [(death["worker"], death["epoch"]) for death in ran.outcome.details["deaths"]] == [(0, 1)]
    assert ran.outcome.details["joins"] == [{"worker": 2, "epoch": 1}]
    assert steps.fingerprints[2] == steps.fingerprints[1][1:]
    assert len(steps.fingerprints[2]) == 2
    assert ran.outcome.replicas_equal
    assert peers.left() == []


def test_a_newcomer_may_die_as_any_peer(peers: Peers, joining_plan: MakePlan) -> None:
    def kill(name: str, rank: int, epoch: int, _: Any) -> None:
        if (name, rank, epoch) == ("average_gradients", 2, 1):
            peers.kill(2)

    ran = peers.run(joining_plan("2:1"), before=kill)
    assert [(death["worker"], death["epoch"]) for death in ran.outcome.details["deaths"]] == [(2, 1)]
    assert ran.outcome.replicas_equal
    assert ran.outcome.epochs == 3


def test_peers_that_disagree_about_a_newcomer_agree_an_epoch_later(
    peers: Peers, joining_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peer 0 has received the announcement of a failed peer that had not admitted peer 2, and peer 1 has not."""
    agree = joining.agree

    def hear(peer: Peer, named: Mapping[int, Collection[int]]) -> None:
        agree(peer, {**named, 9: []} if (peer.rank, peer.epoch) == (0, 0) else named)

    monkeypatch.setattr(joining, "agree", hear)
    steps = Steps(peers)
    ran = peers.run(joining_plan("2:1", epochs=4), after=steps)
    assert {epoch for rank, epoch in ran.executions if rank == 2} == {2, 3}
    assert steps.fingerprints[0][1:] == steps.fingerprints[1][1:]
    assert steps.fingerprints[2] == steps.fingerprints[0][2:]
    assert ran.outcome.details["joins"] == [{"worker": 2, "epoch": 2}]
    assert ran.outcome.details["deaths"] == []
    assert ran.outcome.replicas_equal


@pytest.mark.parametrize(
    ("join", "problem", "hint"),
    [
        ("3:1", "Peer 3 doesn't exist", "ranks are 0 to 2"),
        ("2:0", "cannot join after 0 of 3 epochs", "choose 1 to 2"),
        ("2:3", "cannot join after 3 of 3 epochs", "choose 1 to 2"),
        ("2", "'2' isn't in the form RANK:EPOCHS", "--join 2:1"),
        ("", "'' isn't in the form RANK:EPOCHS", "--join 2:1"),
        ("2:1,", "'' isn't in the form", "--join 2:1"),
        ("-1:1", "'-1:1' isn't in the form", "--join 2:1"),
        ("2:1:1", "'2:1:1' isn't in the form", "--join 2:1"),
        ("²:1", "'²:1' isn't in the form", "--join 2:1"),
        ("2:1,2:2", "Peer 2 cannot join twice", "once"),
        ("0:1,1:1,2:2", "No peer is left to begin", "leave a rank out"),
    ],
)
def test_joins_that_cannot_be(join: str, problem: str, hint: str, joining_plan: MakePlan) -> None:
    with pytest.raises(PlanError) as refused:
        architecture.requirements(joining_plan(join))
    assert problem in refused.value.message
    assert hint in refused.value.hint


def test_nobody_joins_a_run_of_one_epoch(joining_plan: MakePlan) -> None:
    with pytest.raises(PlanError, match="cannot join after 1 of 1 epochs") as refused:
        architecture.requirements(joining_plan("2:1", epochs=1))
    assert "--epochs 2" in refused.value.hint


def test_counts_are_those_of_the_peers_that_take_part() -> None:
    """n(b + 8) transitions with the n of each epoch: 2, 3, 3 and 4 of 4."""
    joined = architecture.counts(4, 5, 4, 10, {"join": "1:1,3:3"})
    each = [architecture.counts(workers, 5, 1, 10) for workers in (2, 3, 3, 4)]
    assert joined.operations == {name: sum(one.operations[name] for one in each) for name in joined.operations}
    assert joined.operations["transition"] == (2 + 3 + 3 + 4) * (5 + 8)
    assert joined.bytes_in == sum(one.bytes_in for one in each)
    assert joined.bytes_out == sum(one.bytes_out for one in each)
