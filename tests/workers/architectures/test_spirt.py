"""SPIRT: counts, trajectories, failures and endings; most of it in memory (`peers`), some through the emulator."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import redis
import torch
from tests.commands import forked_environments
from tests.lambdaml_space import Silent
from tests.memory.tensors import FIRST_PORT
from tests.workers.architectures.peers import (
    LENET,
    Peers,
    Ran,
    Steps,
    check_counts,
    check_nothing_left,
    distance,
    until,
)

from slslab.run.bill import DEFAULT_BOOK, load_book
from slslab.run.directory import RunDirectory
from slslab.run.metrics import protocol
from slslab.stack.queues import find_rabbitmq
from slslab.statemachines.history import read_transitions
from slslab_lab.runs.embedded import EmbeddedSystem
from slslab_lab.runs.execution import execute
from slslab_workers.architecture import Cloud, Outcome, Progress, RunFailed
from slslab_workers.channels import injection
from slslab_workers.channels.endpoints import queue_url, tensor_urls
from slslab_workers.channels.queues import Queues
from slslab_workers.channels.queues.barriers import Barrier
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.plan import Plan, PlanError
from slslab_workers.spirt import architecture
from slslab_workers.spirt.deployment import SpirtDeployment
from slslab_workers.spirt.driver import Spirt
from slslab_workers.spirt.peer import Peer
from slslab_workers.spirt.settings import Keys
from slslab_workers.spirt.trust import Identity
from slslab_workers.training import datasets, gradients, models
from slslab_workers.training import step as step_module

MakePlan = Callable[..., Plan]
Reference = Callable[[Plan], Any]


@pytest.mark.parametrize(("workers", "batches", "epochs"), [(1, 1, 1), (2, 3, 2), (4, 2, 2), (8, 2, 1)])
def test_counts_are_the_closed_form(workers: int, batches: int, epochs: int, peers: Peers, make_plan: MakePlan) -> None:
    ran = peers.run(make_plan("spirt", workers=workers, batches=batches, epochs=epochs, batch_size=4))
    check_counts(ran)
    assert ran.outcome.epochs == ran.outcome.updates == epochs
    assert ran.outcome.replicas_equal
    assert ran.outcome.details["deaths"] == []
    assert peers.left() == []


def test_one_batch_is_bit_equal_to_one_process_after_every_step(
    peers: Peers, make_plan: MakePlan, reference: Reference
) -> None:
    """With b = 1 and plain SGD it is AllReduce's trajectory (docs/protocols.md, "SPIRT"), with peers of any speed; 3 is
    not a power of two, so that sums and divisions must agree as well."""
    plan = make_plan("spirt", workers=3, batches=1, epochs=3, momentum=0.0, weight_decay=0.0)
    steps = Steps(peers)

    def dawdle(_: str, rank: int, epoch: int, __: Any) -> None:
        time.sleep(5.0 if rank == epoch else 0.0)

    ran = peers.run(plan, before=dawdle, after=steps)
    expected, _ = reference(replace(plan, architecture="allreduce"))
    assert steps.fingerprints == dict.fromkeys(range(3), expected)
    assert reference(plan)[0] == expected
    assert len(set(expected)) == 3, "every step changes the parameters"
    assert ran.outcome.parameters_sha256 == expected[-1]
    check_counts(ran)


def test_one_batch_with_momentum_is_the_optimisers(peers: Peers, make_plan: MakePlan, reference: Reference) -> None:
    plan = make_plan("spirt", workers=2, batches=1, epochs=3, options={"update-rule": "sgd-momentum"})
    steps = Steps(peers)
    peers.run(plan, after=steps)
    assert steps.fingerprints[0] == steps.fingerprints[1] == reference(plan)[0]
    _, expected = reference(make_plan("allreduce", workers=2, batches=1, epochs=3))
    assert distance(steps.last, expected) <= 1e-6


@pytest.mark.parametrize("workers", [1, 2])
def test_many_batches_are_one_step_of_large_batch_sgd(workers: int, peers: Peers, make_plan: MakePlan) -> None:
    """b = 24: one update an epoch, with the gradient of all n · b · B samples; within 1e-6 of one process that computes
    it at once, relative to the length of the way that the parameters went."""
    plan = make_plan("spirt", workers=workers, batches=24, batch_size=4, epochs=2)
    steps = Steps(peers)
    ran = peers.run(plan, after=steps)
    model = models.build(plan.model, plan.seed)
    start = gradients.flatten(model.parameters())
    for epoch in range(plan.epochs):
        inputs, targets = whole_epoch(plan, epoch)
        _, gradient = step_module.compute_gradient(model, inputs, targets)
        gradients.write_parameters(model, gradients.flatten(model.parameters()) - plan.lr * gradient)
    expected = gradients.flatten(model.parameters())
    assert float((steps.last - expected).norm() / (expected - start).norm()) <= 1e-4
    assert distance(steps.last, expected) <= 1e-6
    assert ran.outcome.updates == 2


@pytest.mark.parametrize("rule", ["sgd", "sgd-momentum"])
def test_ways_to_average_and_to_update_agree(
    rule: str, peers: Peers, make_plan: MakePlan, reference: Reference
) -> None:
    common = {"update-rule": rule}
    plain, naive, trip = (
        peers.run(make_plan("spirt", run=f"way{n}{rule}", workers=2, epochs=2, options={**common, **options}))
        for n, options in enumerate(({}, {"averaging": "naive"}, {"averaging": "round-trip"}))
    )
    assert plain.outcome.parameters_sha256 == naive.outcome.parameters_sha256 == trip.outcome.parameters_sha256
    steps = Steps(peers)
    peers.run(make_plan("spirt", workers=2, epochs=2, options=common), after=steps)
    updated = Steps(peers)
    naively = make_plan("spirt", workers=2, epochs=2, options={**common, "update": "naive"})
    outside = peers.run(naively, after=updated)
    assert updated.fingerprints[0] == reference(naively)[0]
    assert plain.outcome.parameters_sha256 == reference(make_plan("spirt", workers=2, epochs=2, options=common))[0][-1]
    assert outside.outcome.replicas_equal
    # numpy rounds a product before it adds, torch does not.
    assert distance(updated.last, steps.last) <= 1e-6
    for ran in (plain, naive, trip, outside):
        check_counts(ran)
    # 2 peers, 2 epochs: every gradient and the mean pass through the function, or the mean there and back.
    reads, writes = (protocol(plain.events)["counts"][op] for op in ("tensor.get", "tensor.set"))
    assert protocol(naive.events)["counts"]["tensor.get"] == reads + 2 * 2 * 2
    assert protocol(naive.events)["counts"]["tensor.set"] == writes + 2 * 2
    assert protocol(naive.events)["counts"]["tensor.script"] == 2 * 2
    assert protocol(trip.events)["counts"]["tensor.get"] == reads + 2 * 2
    assert protocol(trip.events)["counts"]["tensor.set"] == writes + 2 * 2
    assert protocol(outside.events)["counts"]["tensor.script"] == 2 * 2


def test_json_gradients_make_the_released_round_trip(peers: Peers, make_plan: MakePlan, reference: Reference) -> None:
    tensors, texts = Steps(peers), Steps(peers)
    peers.run(make_plan("spirt", workers=2, epochs=2), after=tensors)
    plan = make_plan("spirt", workers=2, epochs=2, options={"gradients": "json"})
    ran = peers.run(plan, after=texts)
    assert texts.fingerprints[0] == reference(plan)[0]
    assert ran.outcome.replicas_equal
    # Sums in float64, and 14 digits of them, rounded to float32.
    assert distance(texts.last, tensors.last) <= 1e-6
    found = protocol(ran.events)
    closed = architecture.counts(2, 2, 2, LENET, plan.options)
    assert found["counts"] == dict(closed.operations)
    # The mean of each peer and epoch goes out as JSON and back as a tensor.
    in_database = architecture.counts(2, 2, 2, LENET)
    assert closed.operations == {**in_database.operations, "tensor.set": in_database.operations["tensor.set"] + 4}
    events = [event for event in ran.events if not event["overhead"]]
    sizes = [event["bytes"] for event in events if "gradients_" in event["resource"]]
    assert len(sizes) == 2 * 2 * (2 + 1)
    assert sum(found["bytes"].values()) == closed.bytes_in + closed.bytes_out + sum(sizes)


def test_gradients_as_json_are_the_same(peers: Peers, make_plan: MakePlan, reference: Reference) -> None:
    """float32 survives its way through decimal text, so one batch gives equal bits."""
    changes = {"batches": 1, "batch_size": 4, "epochs": 2, "momentum": 0.0, "weight_decay": 0.0}
    plan = make_plan("spirt", workers=2, **changes, options={"gradients": "json", "averaging": "round-trip"})
    steps = Steps(peers)
    ran = peers.run(plan, after=steps)
    assert steps.fingerprints[0] == steps.fingerprints[1] == reference(plan)[0]
    assert protocol(ran.events)["counts"]["transition"] == 2 * 2 * (1 + 8)
    assert peers.left() == []


def test_a_peer_whose_database_averages_texts_is_not_dead(
    peers: Peers, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While Lua runs, the database of rank 1 answers no ping, and rank 0 checks it at the barrier."""
    averaging: list[bool] = []
    looked_after: list[int] = []
    ping, check_alive = TensorDatabase.ping, Peer.check_alive

    def answers(database: TensorDatabase, answer_s: float = 1.0) -> bool:
        busy = averaging and database.port == FIRST_PORT + 1
        return not busy and ping(database, answer_s)

    def looks(peer: Peer, rank: int, **how: Any) -> bool:
        found = check_alive(peer, rank, **how)
        if averaging:
            looked_after.append(rank)
        return found

    def before(name: str, rank: int, epoch: int, _: Any) -> None:
        if (name, rank, epoch) == ("average_gradients", 1, 0):
            averaging.append(True)
            until(lambda: looked_after)
            averaging.clear()

    monkeypatch.setattr(TensorDatabase, "ping", answers)
    monkeypatch.setattr(Peer, "check_alive", looks)
    plan = make_plan("spirt", workers=2, epochs=2, batches=1, batch_size=4, options={"gradients": "json"})
    ran = peers.run(plan, before=before)
    assert set(looked_after) == {1}
    assert ran.outcome.details["deaths"] == []
    assert ran.outcome.replicas_equal


def test_texts_take_memory(make_plan: MakePlan) -> None:
    """LeNet's gradient is counted as 1 MB. Of each of 2 peers: a light function, and a database with 3 gradients and 4
    vectors more; a text is 6 of these, 20 while it is read, and 32 while it is written."""
    (plain,) = architecture.resident_set(make_plan("spirt", workers=2, batches=3))
    (texts,) = architecture.resident_set(make_plan("spirt", workers=2, batches=3, options={"gradients": "json"}))
    assert plain.beside_mb == 2 * (256 + 4 + 3 + 4)
    assert texts.beside_mb == 2 * (256 + 20 + 3 * 6 + 32 + 4)


@pytest.mark.parametrize(
    ("function", "when"),
    [
        ("auth", "before it told the others its password"),
        ("compute_gradients", "while gradients are computed"),
        ("average_gradients", "before the barrier"),
        ("check_heartbeat", "between barrier and aggregation"),
    ],
)
def test_a_peer_that_dies_leaves_the_others_their_mean(
    function: str, when: str, peers: Peers, make_plan: MakePlan
) -> None:
    """SHUTDOWN of a database: the others continue with divisor n − 1, and the outcome says which peer failed when."""
    plan = make_plan("spirt", workers=3, epochs=3, batch_size=4)
    epoch_of_death = 0 if function == "auth" else 1
    there: set[int] = set()
    killed: list[float] = []
    aggregates: dict[int, torch.Tensor] = {}
    averages: dict[int, torch.Tensor] = {}

    def kill(name: str, rank: int, epoch: int, event: Mapping[str, Any]) -> None:
        if (name, epoch) != (function, epoch_of_death):
            return
        if name == "check_heartbeat":
            # Everyone is behind the barrier, and nobody has looked yet.
            there.add(rank)
            until(lambda: len(there) == 3)
        if rank == 2 and event.get("batch", 1) == 1:
            peers.kill(2)
            killed.append(time.time())
        elif name == "check_heartbeat":
            until(lambda: killed)

    def look(name: str, rank: int, epoch: int, _: Any) -> None:
        if name == "aggregation" and epoch == epoch_of_death:
            keys = Keys(plan)
            averages[rank] = peers.tensor(rank, keys.average(epoch=epoch))
            aggregates[rank] = peers.tensor(rank, keys.aggregate(epoch=epoch))

    ran = peers.run(plan, before=kill, after=look)
    assert torch.equal(aggregates[0], (averages[0] + averages[1]) / 2), when
    assert torch.equal(aggregates[0], aggregates[1])
    assert ran.outcome.epochs == ran.outcome.updates == len(ran.outcome.accuracy) == 3
    assert ran.outcome.replicas_equal
    [death] = ran.outcome.details["deaths"]
    assert (death["worker"], death["epoch"]) == (2, epoch_of_death)
    # Found dead by three pings in a row, a second apart.
    assert killed[0] <= death["time"] <= killed[0] + 10
    assert max(epoch for rank, epoch in ran.executions if rank == 2) == epoch_of_death
    assert all(ran.executions[rank, epoch].status == "SUCCEEDED" for rank in (0, 1) for epoch in range(3))
    assert peers.left() == []


def test_the_next_peer_stores_the_model_of_one_that_died(peers: Peers, make_plan: MakePlan) -> None:
    """Rank 0 fails when all have read its average; only rank 1 can store what the driver evaluates."""
    dead: list[int] = []

    def kill(name: str, rank: int, epoch: int, _: Any) -> None:
        if (name, epoch) == ("check_convergence", 1):
            if rank == 0:
                peers.kill(0)
                dead.append(0)
            until(lambda: dead)

    ran = peers.run(make_plan("spirt", workers=3, epochs=3, batches=1, batch_size=4), before=kill)
    assert len(ran.outcome.accuracy) == ran.outcome.epochs == 3
    assert ran.outcome.replicas_equal
    assert [(death["worker"], death["epoch"]) for death in ran.outcome.details["deaths"]] == [(0, 1)]


def test_a_model_that_died_with_its_peer_fails_the_run(peers: Peers, make_plan: MakePlan) -> None:
    """Rank 0 fails when rank 1 has found it alive, and has left the model to it."""
    judged: list[int] = []

    def kill(name: str, rank: int, _: int, __: Any) -> None:
        if (name, rank) == ("check_convergence", 0):
            until(lambda: judged)
            peers.kill(0)

    def after(name: str, rank: int, _: int, __: Any) -> None:
        if (name, rank) == ("check_convergence", 1):
            judged.append(1)

    with pytest.raises(RunFailed, match="the peer that stores the model of epoch 0 failed") as failed:
        peers.run(make_plan("spirt", workers=2, batches=1), before=kill, after=after)
    assert failed.value.type == "ModelLost"
    check_nothing_left(peers)


@pytest.mark.parametrize("rule", ["sgd", "sgd-momentum"])
def test_peers_that_a_death_divides_are_equal_again_an_epoch_later(
    rule: str, peers: Peers, make_plan: MakePlan
) -> None:
    """Rank 2 fails when rank 0 has read its average and rank 1 has not."""
    plan = make_plan("spirt", workers=3, epochs=3, batch_size=4, options={"update-rule": rule})
    have_read: list[int] = []
    dead: list[int] = []

    def order(name: str, rank: int, epoch: int, _: Any) -> None:
        if (name, epoch) == ("aggregation", 0):
            if rank == 1:
                until(lambda: dead)
            elif rank == 2:
                until(lambda: have_read)
                peers.kill(2)
                dead.append(2)

    steps = Steps(peers)

    def after(name: str, rank: int, epoch: int, event: Mapping[str, Any]) -> None:
        steps(name, rank, epoch, event)
        if (name, rank, epoch) == ("aggregation", 0, 0):
            have_read.append(rank)

    ran = peers.run(plan, before=order, after=after)
    first, second = steps.fingerprints[0], steps.fingerprints[1]
    assert first[0] != second[0]
    assert first[1:] == second[1:]
    assert ran.outcome.replicas_equal
    assert [death["worker"] for death in ran.outcome.details["deaths"]] == [2]


def test_a_peer_that_is_late_at_a_barrier_is_left_out_and_comes_back(peers: Peers, make_plan: MakePlan) -> None:
    plan = make_plan("spirt", workers=2, epochs=3, batches=1, batch_size=4, options={"barrier-timeout": 30.0})
    left_out: list[int] = []
    steps = Steps(peers)

    def before(name: str, rank: int, epoch: int, _: Any) -> None:
        if (name, rank, epoch) == ("average_gradients", 1, 0):
            until(lambda: left_out)

    def after(name: str, rank: int, epoch: int, event: Mapping[str, Any]) -> None:
        steps(name, rank, epoch, event)
        if (name, rank, epoch) == ("update_model", 0, 0):
            left_out.append(1)

    ran = peers.run(plan, before=before, after=after)
    assert steps.fingerprints[0][0] != steps.fingerprints[1][0]
    assert ran.outcome.replicas_equal
    assert ran.outcome.details["deaths"] == []
    assert ran.outcome.details["late"] == [{"worker": 1, "epoch": 0, "left_out_by": 0}]
    assert ran.outcome.epochs == 3


def test_duplicates_at_the_barrier_change_nothing(peers: Peers, make_plan: MakePlan) -> None:
    def plan(**changes: Any) -> Plan:
        return make_plan("spirt", workers=3, epochs=2, batches=1, batch_size=4, **changes)

    expected = peers.run(plan()).outcome
    twice = {"kind": "message-duplicated", "phase": "synchronise"}
    ran = peers.run(plan(faults={"seed": 0, "fault": [twice]}))
    assert ran.outcome == expected
    assert sum(event["op"] == "fault" for event in ran.events) == 2 * 3
    assert protocol(ran.events)["counts"]["queue.deliver"] == 2 * 3**2


def test_all_peers_stop_together_when_patience_is_over(peers: Peers, make_plan: MakePlan) -> None:
    """A rate below every parameter's last bit: the loss of the first epoch is never beaten."""
    plan = make_plan("spirt", workers=2, epochs=30, batches=1, batch_size=4, lr=1e-30, early_stopping=True)
    ran = peers.run(plan)
    assert ran.outcome.epochs == 1 + 10
    assert ran.outcome.replicas_equal
    check_counts(ran)
    for rank in range(2):
        assert output(ran, rank, 10) == {"next": None, "newcomers": []}
        assert output(ran, rank, 9) == {"next": 10, "newcomers": []}


@pytest.mark.parametrize(("accuracy", "epochs"), [(0.01, 1), (1.0, 2)])
def test_the_driver_starts_epochs_until_an_accuracy_is_reached(
    accuracy: float, epochs: int, peers: Peers, make_plan: MakePlan
) -> None:
    plan = make_plan("spirt", workers=2, epochs=2, until_accuracy=accuracy)
    ran = peers.run(plan)
    assert ran.outcome.epochs == len(ran.outcome.accuracy) == len(ran.outcome.loss) == epochs
    check_counts(ran)
    assert peers.left() == []


def test_mobilenets_buffers_are_the_peers_mean_and_all_judge_by_the_same(
    peers: Peers, make_plan: MakePlan, curve: Callable[[Plan], Any]
) -> None:
    plan = make_plan("spirt", model="mobilenet", dataset="synthetic", workers=2, batch_size=4, memory_mb=1769)
    keys = Keys(plan)
    means: dict[int, torch.Tensor] = {}
    buffers: dict[int, torch.Tensor] = {}
    judged: dict[int, bytes] = {}

    def before(name: str, rank: int, _: int, __: Any) -> None:
        if name == "check_heartbeat":
            parts = [peers.tensor(rank, keys.batch_buffers(epoch=0, batch=batch)) for batch in range(plan.batches)]
            means[rank] = torch.stack(parts).mean(0)
            buffers[rank] = peers.tensor(rank, keys.buffers(epoch=1))

    def after(name: str, rank: int, _: int, __: Any) -> None:
        if name == "check_convergence":
            judged[rank] = bytes(peers.database(rank).command("GET", keys.early_stop))

    ran = peers.run(plan, before, after)
    assert buffers[0].numel() == 21_915
    for rank in range(2):
        assert torch.allclose(buffers[rank], means[rank])
    assert not torch.equal(buffers[0], buffers[1])
    assert judged[0] == judged[1]
    assert ran.outcome.replicas_equal
    assert ran.outcome.parameters == 3_217_226
    assert (ran.outcome.loss, ran.outcome.accuracy, ran.outcome.parameters_sha256) == curve(plan)


def test_what_strangers_send_is_dropped(
    peers: Peers, make_plan: MakePlan, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage, a stranger's own signature, another run's peer, an altered and a replayed record: the run continues."""
    plan = make_plan("spirt", workers=2, batches=1, epochs=2, batch_size=4)
    stranger = Identity.fresh()
    record = {"kind": "join", "run": plan.run, "rank": 1, "to": 0, "address": "127.0.0.1", "port": 1}
    publish = Queues.publish
    seen: list[str] = []

    def amidst_strangers(queues: Queues, queue: str, body: bytes, phase: str) -> str:
        seen.append(queue)
        altered = json.dumps({**json.loads(body), "port": 1}).encode()
        for forged in (b"\xff{", b"[]", json.dumps(stranger.sign(record, "guess")).encode(), altered):
            publish(queues, queue, forged, phase)
        publish(queues, queue, body, phase)
        return publish(queues, queue, body, phase)

    monkeypatch.setattr(Queues, "publish", amidst_strangers)
    ran = peers.run(plan)
    assert ran.outcome.replicas_equal
    assert ran.outcome.epochs == 2
    # A request and an answer from each to the other.
    assert len(seen) == len(set(seen)) == 4
    said = capsys.readouterr().out
    problems = ("not JSON", "not a record", "does not know the run's admission secret", "not signed with its key")
    for problem in (*problems, "sent it before"):
        assert problem in said


def test_a_function_that_fails_for_its_own_reasons_ends_the_run_at_once(
    peers: Peers, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 waits at the barrier, for up to 500 s, when rank 1 runs out of memory."""
    waiting: list[float] = []
    announce = Barrier.announce

    def announced(barrier: Barrier, epoch: int, payload: Mapping[str, Any]) -> None:
        announce(barrier, epoch, payload)
        waiting.append(time.time())

    monkeypatch.setattr(Barrier, "announce", announced)

    def fail(name: str, rank: int, epoch: int, _: Any) -> None:
        if (name, rank, epoch) == ("compute_gradients", 1, 0):
            until(lambda: waiting)
            injection._die("out-of-memory")

    with pytest.raises(RunFailed, match="signal: killed") as failed:
        peers.run(make_plan("spirt", workers=2, batches=1), before=fail)
    assert (failed.value.type, failed.value.worker) == ("Runtime.OutOfMemory", 1)
    assert peers.latest is not None
    assert peers.latest.ended_ns / 1e9 - waiting[0] < 10, "the barrier's time-out is 500 s"
    check_nothing_left(peers)


@pytest.mark.parametrize("function", ["init_peers", "init_model"])
def test_a_peer_that_cannot_be_born_ends_the_run(function: str, peers: Peers, make_plan: MakePlan) -> None:
    def fail(name: str, rank: int, _: int, __: Any) -> None:
        if (name, rank) == (function, 0):
            injection._die("out-of-memory")

    with pytest.raises(RunFailed, match="signal: killed") as failed:
        peers.run(make_plan("spirt", workers=1, batches=1), before=fail)
    assert (failed.value.type, failed.value.worker) == ("Runtime.OutOfMemory", 0)
    check_nothing_left(peers)


def test_an_interrupt_leaves_nothing_behind(peers: Peers, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    describe = SpirtDeployment._describe

    def interrupted(deployment: SpirtDeployment, rank: int, epoch: int) -> dict[str, Any] | None:
        if epoch == 1:
            raise KeyboardInterrupt
        return describe(deployment, rank, epoch)

    def hold(name: str, rank: int, epoch: int, _: Any) -> None:
        # What runs when the execution is stopped runs on; here, until all is removed.
        if (name, rank, epoch) == ("auth", 0, 1):
            time.sleep(1.0)

    monkeypatch.setattr(SpirtDeployment, "_describe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        peers.run(make_plan("spirt", workers=1, batches=1, epochs=5), before=hold)
    check_nothing_left(peers)


def test_the_death_of_all_peers_ends_the_run(peers: Peers, make_plan: MakePlan) -> None:
    def kill(name: str, rank: int, _: int, __: Any) -> None:
        if name == "average_gradients":
            peers.kill(rank)

    with pytest.raises(RunFailed, match="no peer is left in epoch 0") as failed:
        peers.run(make_plan("spirt", workers=2, batches=1), before=kill)
    assert failed.value.type == "AllPeersDied"
    check_nothing_left(peers)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"options": {"gradients": "json", "averaging": "naive"}}, "JSON gradients are averaged by a round trip"),
        ({"options": {"barrier-timeout": 0.0}}, "barrier-timeout is 0.0"),
        ({"timeout": 5}, "With a time-out of 5 s peers can't wait for others"),
        ({"options": {"light-memory": 2048}}, "more than the 1024 MB of functions with torch"),
        ({"options": {"gradients": "json", "averaging": "naive"}}, "averaged by a round trip"),
        ({"mode": "per-batch"}, "invoked by its state machines"),
        ({"invoke": "event"}, "invoked by its state machines"),
    ],
)
def test_plans_that_cannot_be(changes: dict[str, Any], problem: str, make_plan: MakePlan) -> None:
    with pytest.raises(PlanError) as refused:
        architecture.requirements(make_plan("spirt", **changes))
    assert problem in refused.value.message


class Watched(Spirt):
    """SPIRT, with its driver's executions inspected before they are deleted, and the leftovers afterwards."""

    def __init__(self) -> None:
        self.histories: list[int] = []
        self.left: list[Any] = []

    def drive(self, plan: Plan, cloud: Cloud, progress: Progress) -> Outcome:
        states = cloud.client("stepfunctions")

        def look(params: Mapping[str, Any], **_: Any) -> None:
            for page in states.get_paginator("list_executions").paginate(stateMachineArn=params["stateMachineArn"]):
                for execution in page["executions"]:
                    history = states.get_paginator("get_execution_history")
                    pages = history.paginate(executionArn=execution["executionArn"])
                    self.histories.append(len(read_transitions(entry for part in pages for entry in part["events"])))

        states.meta.events.register("provide-client-params.sfn.DeleteStateMachine", look)
        clients = {"stepfunctions": states, "lambda": cloud.client("lambda"), "s3": cloud.client("s3")}
        try:
            return super().drive(plan, replace(cloud, client=clients.__getitem__), progress)
        finally:
            self.left += states.list_state_machines()["stateMachines"]
            self.left += clients["lambda"].list_functions()["Functions"]
            self.left += clients["s3"].list_buckets()["Buckets"]
            urls = [*tensor_urls(cloud.environment), queue_url(cloud.environment)]
            for url in [url for url in urls if url.startswith("redis")]:
                with redis.Redis.from_url(url) as client:
                    self.left += [key for key in client.scan_iter() if plan.run.encode() in key]


Emulated = Callable[[Plan], tuple[dict[str, Any], Watched]]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    """Runs a plan as `slslab run` does; its document, and what was looked at."""

    def run(plan: Plan) -> tuple[dict[str, Any], Watched]:
        watched = Watched()
        directory = RunDirectory.create(tmp_path_factory.mktemp("runs") / plan.run)
        system = EmbeddedSystem(plan, watched.requirements(plan))
        document = execute(plan, watched, directory, Silent(), load_book(DEFAULT_BOOK), system)
        return {**document}, watched

    return run


def test_through_the_emulator_it_is_the_same(emulated: Emulated, peers: Peers, make_plan: MakePlan) -> None:
    """Two peers, two minibatches, over RabbitMQ where it is installed: counts, transitions by boto3's histories, and
    all that the same plan makes in memory."""
    # A whole vCPU for each function: with less, every cold start takes seconds.
    queue = "rabbitmq" if find_rabbitmq() else "embedded"
    plan = make_plan("spirt", workers=2, memory_mb=1769, options={"queue": queue, "light-memory": 1769})
    with forked_environments():
        document, watched = emulated(plan)
    assert document["error"] is None
    expected = architecture.counts(2, 2, 1, LENET)
    assert document["counts"] == dict(expected.operations)
    assert document["bytes"] == {"in": expected.bytes_in, "out": expected.bytes_out}
    assert ("RabbitMQ" in document["stack"]["queue"]) == (find_rabbitmq() is not None)
    assert watched.histories == [2 + 8] * 2
    assert document["replicas_equal"]
    assert document["details"]["deaths"] == []
    assert watched.left == []
    peers.run(plan)
    assert peers.latest is not None
    in_memory = peers.latest.recorded.document
    assert in_memory is not None
    same = (
        "parameters_sha256",
        "loss",
        "accuracy",
        "counts",
        "bytes",
        "updates",
        "epochs",
        "replicas_equal",
        "details",
    )
    assert {name: document[name] for name in same} == {name: in_memory[name] for name in same}


@pytest.mark.exhaustive
def test_through_the_emulator_without_enough_memory(emulated: Emulated, make_plan: MakePlan) -> None:
    """128 MB do not hold PyTorch."""
    document, watched = emulated(make_plan("spirt", workers=1, batches=1, memory_mb=128, options={"queue": "embedded"}))
    assert document["status"] == "failed"
    assert document["error"]["type"] == "Runtime.OutOfMemory"
    assert document["error"]["message"].endswith("signal: killed")
    assert document["error"]["worker"] == 0
    assert watched.left == []


def output(ran: Ran, rank: int, epoch: int) -> Any:
    """What a peer's execution of an epoch returned."""
    return json.loads(ran.executions[rank, epoch].ending()["output"])


def whole_epoch(plan: Plan, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All minibatches of all workers as one."""
    dataset = datasets.load(plan.dataset, plan.workers * plan.batches * plan.batch_size, plan.seed)
    indices = datasets.partition(
        len(dataset.train_labels), plan.workers, plan.batches, plan.batch_size, plan.seed, epoch
    )
    prepared = [
        datasets.prepare(
            dataset.train_images[indices[rank, step]],
            dataset.train_labels[indices[rank, step]],
            dataset.policy,
            plan.seed,
            epoch,
            rank,
            step,
        )
        for rank in range(plan.workers)
        for step in range(plan.batches)
    ]
    return torch.cat([inputs for inputs, _ in prepared]), torch.cat([targets for _, targets in prepared])
