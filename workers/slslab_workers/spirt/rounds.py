"""SPIRT's functions between gradients and the next epoch: average, barrier, aggregate, update. They need no torch."""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from slslab_workers.barriers import Barrier
from slslab_workers.keys import result_key
from slslab_workers.lifetime import remaining_s
from slslab_workers.plan import thread_count
from slslab_workers.spirt.membership import on_peer
from slslab_workers.spirt.peer import PATIENCE_EPOCHS, Peer
from slslab_workers.tensors import NoTensor, Unreachable, Vector

# How long a peer waits at the barrier before it looks whether those who are missing are alive.
LOOK_S = 1.0
RESERVE_S = 5.0


@on_peer
def average_gradients(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """AverageGradients: the mean of the minibatches' gradients, then the barrier with the other peers."""
    batches = range(peer.plan.batches)
    found = [peer.keys.gradient(peer.epoch, batch) for batch in batches]
    average = peer.keys.average(peer.epoch)
    if peer.settings.averaging == "naive":
        mean = _mean(peer, (peer.database.get(key, "synchronise", overhead=False) for key in found))
        peer.database.set(average, mean, "synchronise", overhead=False)
    else:
        peer.database.execute("average", found, [average], "synchronise", overhead=False)
        if peer.settings.averaging == "round-trip":
            mean = peer.database.get(average, "synchronise", overhead=False)
            peer.database.set(average, mean, "synchronise", overhead=False)
    if peer.database.command("EXISTS", peer.keys.buffers):
        left = [peer.keys.batch_buffers(peer.epoch, batch) for batch in batches]
        peer.database.execute("average", left, [peer.keys.buffers], "synchronise")
    active = _pass_barrier(peer)
    peer.set_active(active)
    return {"active": active}


@on_peer
def aggregation(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """Aggregation: the mean over the averages of all active peers, in rank order; the divisor is their number."""
    reached: list[int] = []

    def averages() -> Iterator[Vector]:
        for rank in peer.active():
            key = peer.keys.average(peer.epoch)
            try:
                vector = peer.database_of(rank).get(key, "synchronise", overhead=False)
            except (Unreachable, NoTensor):
                if rank == peer.rank:
                    raise
                peer.mark_dead(rank)
                continue
            reached.append(rank)
            yield vector

    # Robust rules take their place beside the mean.
    aggregate = _mean(peer, averages())
    peer.database.set(peer.keys.aggregate(peer.epoch), aggregate, "synchronise", overhead=False)
    peer.set_active(reached)
    return {"active": reached}


@on_peer
def update_model(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """Update: one step of SGD with the aggregate, in the database."""
    plan, keys, database = peer.plan, peer.keys, peer.database
    aggregate = keys.aggregate(peer.epoch)
    if peer.settings.update_rule == "sgd-momentum":
        inputs, outputs = [keys.parameters, aggregate, keys.velocity], [keys.parameters, keys.velocity]
        rates = (plan.lr, plan.momentum, plan.weight_decay)
        database.execute("sgd_momentum", inputs, outputs, "update", arguments=rates, overhead=False)
    elif peer.settings.update == "naive":
        parameters = database.get(keys.parameters, "update", overhead=False)
        gradient = database.get(aggregate, "update", overhead=False)
        with peer.tracer.span("update", "update"):
            parameters -= np.float32(plan.lr) * gradient
        database.set(keys.parameters, parameters, "update", overhead=False)
    else:
        inputs = [keys.parameters, aggregate]
        database.execute("sgd", inputs, [keys.parameters], "update", arguments=(plan.lr,), overhead=False)
    return {"epoch": peer.epoch}


@on_peer
def trigger_next_epoch(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """trigger_next: start the next epoch's execution, or leave the result."""
    plan = peer.plan
    peer.database.command("DEL", peer.keys.average(peer.epoch - 1), peer.keys.aggregate(peer.epoch - 1))
    stopped = plan.early_stopping and peer.stop_state()["since"] >= PATIENCE_EPOCHS
    more = peer.epoch + 1 < plan.epochs and not stopped
    # Where the driver decides after each epoch whether there is another, each may be the last.
    if not more or plan.until_accuracy is not None:
        result = _result(peer, "patience" if stopped else None)
        peer.objects.put(result_key(plan, peer.rank), json.dumps(result).encode(), "other")
    else:
        peer.start(peer.execution.following())
    return {"next": peer.epoch + 1 if more else None}


def _pass_barrier(peer: Peer) -> list[int]:
    """Announce this peer's average and wait for those of all others that live; the ranks that are there.

    A peer that is missing is looked after every second; one whose database does not answer is dead, and one that is
    silent until the barrier's time-out is left out of this epoch.
    """
    barrier = Barrier(peer.queues, peer.plan.run, peer.rank)
    barrier.prepare(peer.epoch + 1)
    barrier.announce(peer.epoch, {})
    expected = {peer.rank, *peer.trusted()}
    patience_s = min(peer.settings.barrier_timeout, remaining_s(peer.context) - RESERVE_S)
    deadline = time.monotonic() + patience_s
    arrived: set[int] = set()
    while not arrived >= expected and time.monotonic() < deadline:
        arrived |= set(barrier.wait(peer.epoch, expected, min(LOOK_S, deadline - time.monotonic())))
        for rank in sorted(expected - arrived):
            if not peer.is_alive(rank):
                peer.mark_dead(rank)
                expected.discard(rank)
    barrier.discard(peer.epoch)
    return sorted(arrived & expected)


def _result(peer: Peer, ended: str | None) -> dict[str, Any]:
    losses: list[float] = []
    for epoch in range(peer.epoch + 1):
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
