"""SPIRT's functions between gradients and the next epoch, which need no torch: average, barrier, aggregate, update."""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np

from slslab_workers.channels.queues.barriers import Barrier, prepare_epoch
from slslab_workers.channels.stream import Unreachable
from slslab_workers.channels.tensors import NoTensor, Vector
from slslab_workers.driver.stopping import PATIENCE_EPOCHS
from slslab_workers.plan import Plan, thread_count
from slslab_workers.spirt import joining
from slslab_workers.spirt.membership import on_peer
from slslab_workers.spirt.peer import LOOK_S, Peer
from slslab_workers.spirt.settings import RESERVE_S
from slslab_workers.training import robust
from slslab_workers.training.attacks import Attack
from slslab_workers.training.keys import result_key
from slslab_workers.training.lifetime import remaining_s

# Pause between two reads of parameters that another peer is updating, s.
CHANGING_S = 0.05


@on_peer
def average_gradients(peer: Peer, _event: Mapping[str, Any]) -> None:
    """Run AverageGradients: average the minibatches' gradients, then wait for the other peers at the barrier."""
    _average(peer)
    attack, key = Attack.of(peer.plan), peer.keys.average(epoch=peer.epoch)
    if attack.replaces(peer.rank):
        made = attack.vector(peer.rank, peer.database.get(key, "synchronise"), peer.epoch * peer.plan.batches)
        peer.database.set(key, made, "synchronise")
    if peer.database.command("EXISTS", peer.keys.buffers(epoch=peer.epoch)):
        buffers = [peer.keys.batch_buffers(epoch=peer.epoch, batch=batch) for batch in range(peer.plan.batches)]
        peer.database.execute("average", buffers, [peer.keys.buffers(epoch=peer.epoch + 1)], "synchronise")
    lineages = _pass_barrier(peer)
    peer.database.command("SET", peer.keys.lineages(epoch=peer.epoch), json.dumps(lineages))
    peer.set_active(list(lineages))


def _average(peer: Peer) -> None:
    database, batches = peer.database, peer.plan.batches
    gradients = [peer.keys.gradient(epoch=peer.epoch, batch=batch) for batch in range(batches)]
    average = peer.keys.average(epoch=peer.epoch)
    if peer.options["gradients"] == "json":
        mean = database.average_json(peer.keys.json_gradients(epoch=peer.epoch), batches, "synchronise", overhead=False)
    elif peer.options["averaging"] == "naive":
        mean = _mean(peer, (database.get(key, "synchronise", overhead=False) for key in gradients))
    else:
        database.execute("average", gradients, [average], "synchronise", overhead=False)
        if peer.options["averaging"] == "in-database":
            return
        mean = database.get(average, "synchronise", overhead=False)
    database.set(average, mean, "synchronise", overhead=False)


@on_peer
def aggregation(peer: Peer, _event: Mapping[str, Any]) -> None:
    """Run Aggregation: average the averages of all active peers, in rank order, and divide by their number. A rule that
    withstands Byzantine peers runs in the database."""
    rule = robust.name_of(peer.options)
    peer.set_active(_withstand(peer, rule) if rule is not None else _average_averages(peer))


def _average_averages(peer: Peer) -> list[int]:
    """Store the mean of all active peers' averages; return the ranks of the peers that were reached."""
    reached: list[int] = []

    def averages() -> Iterator[Vector]:
        for rank in peer.active():
            vector = _average_of(peer, rank)
            if vector is not None:
                reached.append(rank)
                yield vector

    peer.database.set(peer.keys.aggregate(epoch=peer.epoch), _mean(peer, averages()), "synchronise", overhead=False)
    return reached


def _withstand(peer: Peer, rule: str) -> list[int]:
    """Combine all active peers' averages in the peer's database by a robust rule; return the ranks of the peers that
    were reached. The other averages are first copied into it, one by one."""
    names: dict[int, str] = {}
    for rank in peer.active():
        if rank == peer.rank:
            names[rank] = peer.keys.average(epoch=peer.epoch)
        elif (vector := _average_of(peer, rank)) is not None:
            names[rank] = peer.keys.received(epoch=peer.epoch, rank=rank)
            peer.database.set(names[rank], vector, "synchronise", overhead=False)
    byzantine = int(robust.BYZANTINE.of(peer.options))
    robust.check_count(rule, len(names), byzantine)
    function, arguments = robust.script(rule, len(names), byzantine)
    inputs, output = list(names.values()), peer.keys.aggregate(epoch=peer.epoch)
    peer.database.execute(function, inputs, [output], "synchronise", arguments=arguments, overhead=False)
    if received := [name for rank, name in names.items() if rank != peer.rank]:
        peer.database.command("DEL", *received)
    return list(names)


@on_peer
def update_model(peer: Peer, _event: Mapping[str, Any]) -> None:
    """Run Update: apply one SGD step with the aggregate, in the database.

    Peers that aggregated the same ranks in every epoch have the same parameters. Parameters can differ when a peer
    fails while only some have read its average, or when a peer reaches a barrier after the time-out and is left out. So
    each peer keeps a digest of all these ranks, the lineage, and announces it at the next barrier. If a peer's lineage
    differs from the lowest active rank's, it first copies that peer's parameters.
    """
    ranks = peer.active()
    lineages: dict[str, str] = json.loads(peer.stored(peer.keys.lineages(epoch=peer.epoch)))
    digest, leader = lineages[str(peer.rank)], ranks[0]
    if digest != lineages[str(leader)]:
        taken_over = _take_over(peer, leader)
        if taken_over is not None and taken_over["epoch"] > peer.epoch:
            # The lowest active rank has made this update already, and perhaps later ones.
            peer.set_lineage(taken_over["epoch"], taken_over["digest"])
            return
        digest = digest if taken_over is None else taken_over["digest"]
    peer.set_lineage(peer.epoch, digest, changing=True)
    _step(peer)
    peer.set_lineage(peer.epoch + 1, hashlib.sha256(f"{digest} {ranks}".encode()).hexdigest())


@on_peer
def trigger_next_epoch(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """Run trigger_next: start the next epoch's execution, or store the result."""
    plan = peer.plan
    # All peers have announced this epoch's averages, so the previous ones are no longer read.
    keys, before = peer.keys, peer.epoch - 1
    unneeded = (keys.average, keys.aggregate, keys.active, keys.lineages, keys.buffers)
    peer.database.command("DEL", *(name(epoch=before) for name in unneeded))
    stopped = plan.early_stopping and peer.stop_state()["since"] >= PATIENCE_EPOCHS
    more = peer.epoch + 1 < plan.epochs and not stopped
    # With until_accuracy the driver decides after each epoch whether to continue, so each may be the last.
    if not more or plan.until_accuracy is not None:
        result = _result(peer, "patience" if stopped else None)
        peer.objects.put(result_key(plan, rank=peer.rank), json.dumps(result).encode(), "other")
    else:
        peer.start(replace(peer.execution, epoch=peer.epoch + 1))
    return {
        "next": peer.epoch + 1 if more else None,
        "newcomers": sorted(rank for rank, first in peer.first_epochs().items() if first == peer.epoch + 1),
    }


def _pass_barrier(peer: Peer) -> dict[int, str]:
    """Announce this peer's average and wait until all other active peers have, too; return the lineages by rank.

    The announcement also names the peers that this one has admitted, so that all agree which peers take part from the
    next epoch.

    A missing peer is pinged every second. If its database doesn't answer, it has failed; if it sends nothing until the
    barrier's time-out, it is left out of this epoch. A database that is averaging texts doesn't answer pings until it
    has finished.
    """
    barrier = Barrier(peer.queues, peer.plan.run, peer.rank)
    expected, newcomers, reachable = peer.taking_part(), joining.newcomers(peer), joining.reachable(peer)
    announcement = {"lineage": str(peer.lineage(peer.database)["digest"]), "reachable": reachable}
    barrier.prepare(peer.epoch + 1)
    # Also declare the queues of peers that may join next: none of their functions runs yet.
    prepare_epoch(peer.queues, peer.plan.run, peer.epoch + 1, sorted(set(reachable) - expected))
    barrier.announce(peer.epoch, announcement)
    deadline = time.monotonic() + min(float(peer.options["barrier-timeout"]), remaining_s(peer.context) - RESERVE_S)
    while True:
        left_s = deadline - time.monotonic()
        received = barrier.wait(peer.epoch, expected, max(0.0, min(LOOK_S, left_s)), last=left_s <= LOOK_S)
        missing = expected - received.keys()
        if not missing or left_s <= 0:
            break
        for rank in sorted(missing):
            if not peer.check_alive(rank, busy=peer.options["gradients"] == "json"):
                expected.discard(rank)
        late = [rank for rank in newcomers if rank in missing & expected]
        joining.hand_over(peer, late)
        expected -= joining.put_off(peer, late, received)
    barrier.discard(peer.epoch)
    if late := sorted(expected - received.keys()):
        peer.leave_out(late)
    announced = {rank: payload for rank, payload in received.items() if rank in expected} | {peer.rank: announcement}
    joining.agree(peer, {rank: payload["reachable"] for rank, payload in announced.items()})
    return {rank: str(payload["lineage"]) for rank, payload in sorted(announced.items())}


def _average_of(peer: Peer, rank: int) -> Vector | None:
    """Return a peer's average of this epoch; None if the peer has failed, or has run ahead and deleted it."""
    key = peer.keys.average(epoch=peer.epoch)
    for _ in range(2):
        try:
            return peer.database_of(rank).get(key, "synchronise", overhead=False)
        except (NoTensor, Unreachable) as error:
            if rank == peer.rank:
                raise
            # A connection may break while both peers are alive, so try once more.
            if isinstance(error, NoTensor) or not peer.check_alive(rank):
                break
    return None


def _step(peer: Peer) -> None:
    keys, database = peer.keys, peer.database
    outputs = [keys.parameters, keys.velocity] if has_momentum(peer.plan) else [keys.parameters]
    inputs = [keys.parameters, keys.aggregate(epoch=peer.epoch), *outputs[1:]]
    if peer.options["update"] == "in-database":
        function, rates = update_script(peer.plan)
        database.execute(function, inputs, outputs, "update", arguments=rates, overhead=False)
        return
    parameters, change, *velocity = (database.get(key, "update", overhead=False) for key in inputs)
    with peer.tracer.span("update", "update"):
        step_outside(peer.plan, parameters, change, *velocity)
    database.set(keys.parameters, parameters, "update", overhead=False)
    if velocity:
        # With momentum, `step_outside` leaves the new velocity in the aggregate.
        database.set(keys.velocity, change, "update", overhead=False)


def has_momentum(plan: Plan) -> bool:
    """Return whether peers keep a velocity."""
    return plan.options["update-rule"] == "sgd-momentum"


def update_script(plan: Plan) -> tuple[str, tuple[float, ...]]:
    """Return the function in `channels/scripts.py` that updates a model, and its arguments."""
    if has_momentum(plan):
        return "sgd_momentum", (plan.lr, plan.momentum, plan.weight_decay)
    return "sgd", (plan.lr,)


def step_outside(plan: Plan, parameters: Vector, change: Vector, velocity: Vector | None = None) -> None:
    """Apply one SGD step to `parameters` (P,) in place, with momentum if there is a velocity. `change` is the gradient;
    with momentum it is overwritten with the new velocity."""
    if velocity is not None:
        change += np.float32(plan.weight_decay) * parameters
        change += np.float32(plan.momentum) * velocity
    parameters -= np.float32(plan.lr) * change


def _take_over(peer: Peer, rank: int) -> dict[str, Any] | None:
    names = [peer.keys.parameters, *([peer.keys.velocity] if has_momentum(peer.plan) else [])]
    try:
        other = peer.database_of(rank)
        while True:
            before = peer.lineage(other)
            vectors = [other.get(name, "update") for name in names]
            # Read the lineage before and after, so that parameters and velocity are from the same update.
            if not before["changing"] and peer.lineage(other) == before:
                break
            peer.database.pause(CHANGING_S)
    except (KeyError, Unreachable):
        return None
    for name, vector in zip(names, vectors, strict=True):
        peer.database.set(name, vector, "update")
    return before


def _result(peer: Peer, ended: str | None) -> dict[str, Any]:
    first = peer.first_epochs()
    losses: list[float | None] = [None] * (first[peer.rank] * peer.plan.batches)
    for epoch in range(first[peer.rank], peer.epoch + 1):
        stored = peer.database.command("HMGET", peer.keys.losses(epoch=epoch), *range(peer.plan.batches))
        losses += [float(bytes(loss)) for loss in stored]
    parameters = peer.database.get(peer.keys.parameters, "other")
    deaths, late = peer.absent()
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
        "deaths": deaths,
        "late": late,
        "joined": {rank: epoch for rank, epoch in first.items() if 0 < epoch <= peer.epoch},
    }


def _mean(peer: Peer, vectors: Iterator[Vector]) -> Vector:
    """Return the mean of at least one vector (P,), added in order; only two are in memory at a time."""
    total, count = next(vectors), 1
    for count, vector in enumerate(vectors, 2):  # noqa: B007
        with peer.tracer.span("reduce", "synchronise", "add", bytes=total.nbytes):
            total += vector
    with peer.tracer.span("reduce", "synchronise", "mean", bytes=total.nbytes):
        total /= np.float32(count)
    return total
