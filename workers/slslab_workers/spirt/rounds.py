"""SPIRT's functions between gradients and the next epoch: average, barrier, aggregate, update. They need no torch."""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from slslab_workers.barriers import Barrier, prepare_epoch
from slslab_workers.keys import result_key
from slslab_workers.lifetime import remaining_s
from slslab_workers.plan import thread_count
from slslab_workers.spirt import joining
from slslab_workers.spirt.arithmetic import step_outside
from slslab_workers.spirt.membership import on_peer
from slslab_workers.spirt.peer import LOOK_S, RESERVE_S, Peer
from slslab_workers.stopping import PATIENCE_EPOCHS
from slslab_workers.tensors import NoTensor, Unreachable, Vector

# Between two looks at parameters that are just being changed.
CHANGING_S = 0.05


@on_peer
def average_gradients(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """AverageGradients: the mean of the minibatches' gradients, then the barrier with the other peers."""
    batches = range(peer.plan.batches)
    _average(peer)
    if peer.database.command("EXISTS", peer.keys.buffers(peer.epoch)):
        left = [peer.keys.batch_buffers(peer.epoch, batch) for batch in batches]
        peer.database.execute("average", left, [peer.keys.buffers(peer.epoch + 1)], "synchronise")
    announced = _pass_barrier(peer)
    peer.database.command("SET", peer.keys.lineages(peer.epoch), json.dumps(announced))
    peer.set_active(list(announced))
    return {"active": sorted(announced)}


def _average(peer: Peer) -> None:
    """The mean of the minibatches' gradients into its key, where and how the plan wants it."""
    database, batches = peer.database, peer.plan.batches
    found = [peer.keys.gradient(peer.epoch, batch) for batch in range(batches)]
    average = peer.keys.average(peer.epoch)
    if peer.settings.gradients == "json":
        mean = database.average_json(peer.keys.json_gradients(peer.epoch), batches, "synchronise", overhead=False)
    elif peer.settings.averaging == "naive":
        mean = _mean(peer, (database.get(key, "synchronise", overhead=False) for key in found))
    else:
        database.execute("average", found, [average], "synchronise", overhead=False)
        if peer.settings.averaging == "in-database":
            return
        mean = database.get(average, "synchronise", overhead=False)
    database.set(average, mean, "synchronise", overhead=False)


@on_peer
def aggregation(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """Aggregation: the mean over the averages of all active peers, in rank order; the divisor is their number."""
    reached: list[int] = []

    def averages() -> Iterator[Vector]:
        for rank in peer.active():
            vector = _average_of(peer, rank)
            if vector is not None:
                reached.append(rank)
                yield vector

    # Robust rules take their place beside the mean.
    aggregate = _mean(peer, averages())
    peer.database.set(peer.keys.aggregate(peer.epoch), aggregate, "synchronise", overhead=False)
    peer.set_active(reached)
    return {"active": reached}


@on_peer
def update_model(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """Update: one step of SGD with the aggregate, in the database.

    Peers that aggregated the averages of the same ranks in every epoch have the same parameters. When one dies while
    the others aggregate, some may have read its average and some not; and who came to a barrier after its time-out was
    left out. They are told apart by a digest of all these ranks, which everyone announces at the next barrier: whoever
    has another than the lowest active rank takes over that peer's parameters first.
    """
    ranks = peer.active()
    announced: dict[str, str] = json.loads(bytes(peer.database.command("GET", peer.keys.lineages(peer.epoch))))
    digest, leader = announced[str(peer.rank)], ranks[0]
    if digest != announced[str(leader)]:
        taken = _take_over(peer, leader)
        if taken is not None and taken["epoch"] > peer.epoch:
            # The other peer has made this update already, and perhaps more.
            peer.set_lineage(taken["epoch"], taken["digest"])
            return {"epoch": peer.epoch, "taken_over": leader}
        digest = digest if taken is None else taken["digest"]
    peer.set_lineage(peer.epoch, digest, changing=True)
    _step(peer)
    peer.set_lineage(peer.epoch + 1, hashlib.sha256(f"{digest} {ranks}".encode()).hexdigest())
    return {"epoch": peer.epoch}


@on_peer
def trigger_next_epoch(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """trigger_next: start the next epoch's execution, or leave the result."""
    plan = peer.plan
    # Everyone has announced this epoch, so nobody reads the one before.
    peer.database.command("DEL", *peer.keys.of_epoch(peer.epoch - 1))
    stopped = plan.early_stopping and peer.stop_state()["since"] >= PATIENCE_EPOCHS
    more = peer.epoch + 1 < plan.epochs and not stopped
    # Where the driver decides after each epoch whether there is another, each may be the last.
    if not more or plan.until_accuracy is not None:
        result = _result(peer, "patience" if stopped else None)
        peer.objects.put(result_key(plan, peer.rank), json.dumps(result).encode(), "other")
    else:
        peer.start(peer.execution.following())
    newcomers = sorted(rank for rank, first in peer.first_epochs().items() if first == peer.epoch + 1)
    return {"next": peer.epoch + 1 if more else None, "newcomers": newcomers}


def _pass_barrier(peer: Peer) -> dict[int, str]:
    """Announce this peer's average and wait for those of all others that live; by rank that is there, its lineage.

    Announced is also whom this peer has admitted, so that all agree who takes part from the next epoch.

    A peer that is missing is looked after every second; one whose database does not answer is dead, and one that is
    silent until the barrier's time-out is left out of this epoch. A database that averages texts answers nobody until
    it is done.
    """
    barrier = Barrier(peer.queues, peer.plan.run, peer.rank)
    expected, newcomers, reachable = peer.taking_part(), joining.newcomers(peer), joining.reachable(peer)
    own = {"lineage": str(peer.lineage()["digest"]), "reachable": reachable}
    barrier.prepare(peer.epoch + 1)
    # For those, too, that may take part from then on: they have no function yet that could.
    prepare_epoch(peer.queues, peer.plan.run, peer.epoch + 1, sorted(set(reachable) - expected))
    barrier.announce(peer.epoch, own)
    patience_s = min(peer.settings.barrier_timeout, remaining_s(peer.context) - RESERVE_S)
    deadline = time.monotonic() + patience_s
    while True:
        left_s = deadline - time.monotonic()
        heard = barrier.wait(peer.epoch, expected, max(0.0, min(LOOK_S, left_s)), last=left_s <= LOOK_S)
        missing = expected - heard.keys()
        if not missing or left_s <= 0:
            break
        for rank in sorted(missing):
            if not peer.is_alive(rank, busy=peer.settings.gradients == "json"):
                peer.mark_dead(rank)
                expected.discard(rank)
        late = [rank for rank in newcomers if rank in missing & expected]
        joining.hand_over(peer, late)
        expected -= joining.put_off(peer, late, heard)
    barrier.discard(peer.epoch)
    announced = {rank: payload for rank, payload in heard.items() if rank in expected} | {peer.rank: own}
    joining.agree(peer, {rank: payload["reachable"] for rank, payload in announced.items()})
    return {rank: str(payload["lineage"]) for rank, payload in sorted(announced.items())}


def _average_of(peer: Peer, rank: int) -> Vector | None:
    """A peer's average of this epoch; None if the peer has died, or is so far ahead that it has deleted it."""
    key = peer.keys.average(peer.epoch)
    for _ in range(2):
        try:
            return peer.database_of(rank).get(key, "synchronise", overhead=False)
        except NoTensor:
            if rank == peer.rank:
                raise
            return None
        except Unreachable:
            if rank == peer.rank:
                raise
            # A connection may break while both live.
            if not peer.is_alive(rank):
                peer.mark_dead(rank)
                return None
    return None


def _step(peer: Peer) -> None:
    """The update itself, by the plan's rule and where the plan wants it."""
    plan, keys, database = peer.plan, peer.keys, peer.database
    aggregate = keys.aggregate(peer.epoch)
    momentum = peer.settings.update_rule == "sgd-momentum"
    if peer.settings.update == "naive":
        parameters = database.get(keys.parameters, "update", overhead=False)
        change = database.get(aggregate, "update", overhead=False)
        velocity = database.get(keys.velocity, "update", overhead=False) if momentum else None
        with peer.tracer.span("update", "update"):
            step_outside(plan, parameters, change, velocity)
        if velocity is not None:
            database.set(keys.velocity, change, "update", overhead=False)
        database.set(keys.parameters, parameters, "update", overhead=False)
    elif momentum:
        inputs, outputs = [keys.parameters, aggregate, keys.velocity], [keys.parameters, keys.velocity]
        rates = (plan.lr, plan.momentum, plan.weight_decay)
        database.execute("sgd_momentum", inputs, outputs, "update", arguments=rates, overhead=False)
    else:
        inputs = [keys.parameters, aggregate]
        database.execute("sgd", inputs, [keys.parameters], "update", arguments=(plan.lr,), overhead=False)


def _take_over(peer: Peer, rank: int) -> dict[str, Any] | None:
    """Copy another peer's parameters and velocity, and return its lineage; None if that peer has died."""
    names = [peer.keys.parameters]
    if peer.settings.update_rule == "sgd-momentum":
        names.append(peer.keys.velocity)
    try:
        other = peer.database_of(rank)
        while True:
            before = peer.lineage(other)
            vectors = [other.get(name, "update") for name in names]
            # Read twice, so that parameters and velocity are of one update.
            if not before["changing"] and peer.lineage(other) == before:
                break
            with peer.tracer.span("wait", "wait"):
                time.sleep(CHANGING_S)
    except (KeyError, Unreachable):
        return None
    for name, vector in zip(names, vectors, strict=True):
        peer.database.set(name, vector, "update")
    return before


def _result(peer: Peer, ended: str | None) -> dict[str, Any]:
    first = peer.first_epochs()
    losses: list[float | None] = [None] * (first[peer.rank] * peer.plan.batches)
    for epoch in range(first[peer.rank], peer.epoch + 1):
        found = peer.database.command("HMGET", peer.keys.losses(epoch), *range(peer.plan.batches))
        losses += [float(bytes(loss)) for loss in found]
    parameters = peer.database.get(peer.keys.parameters, "other")
    return {
        "status": "finished",
        "rank": peer.rank,
        "position": (peer.epoch + 1) * peer.plan.batches,
        "ended": ended,
        "losses": losses,
        "updates": peer.epoch + 1,
        "parameters": parameters.size,
        "parameters_sha256": hashlib.sha256(parameters.data).hexdigest(),
        "threads": thread_count(peer.plan.memory_mb),
        "torch": version("torch"),
        "deaths": peer.dead(),
        "joined": {rank: epoch for rank, epoch in first.items() if 0 < epoch <= peer.epoch},
    }


def _mean(peer: Peer, vectors: Iterator[Vector]) -> Vector:
    """Mean of vectors (P,) in their order, of which two are held at a time; none may be zero."""
    total, count = next(vectors), 1
    for vector in vectors:
        with peer.tracer.span("reduce", "synchronise"):
            total += vector
        count += 1
    with peer.tracer.span("reduce", "synchronise"):
        total /= np.float32(count)
    return total
