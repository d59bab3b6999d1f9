"""SPIRT's training functions: gradients, their average, the aggregate over peers, the update, and the judgement."""

import hashlib
import json
import math
import time
from collections.abc import Mapping
from typing import Any

import boto3
import torch

from slslab_workers import gradients, models, training
from slslab_workers.barriers import Barrier
from slslab_workers.keys import model_key, result_key, validation_key
from slslab_workers.lifetime import remaining_s
from slslab_workers.spirt.membership import on_peer
from slslab_workers.spirt.peer import Peer
from slslab_workers.spirt.settings import Execution
from slslab_workers.tensors import NoTensor, Unreachable

PATIENCE_EPOCHS = 10
# How long a peer waits at the barrier before it looks whether those who are missing are alive.
LOOK_S = 1.0
RESERVE_S = 5.0

_models: dict[tuple[str, int], torch.nn.Module] = {}


@on_peer
def init_model(peer: Peer, event: Mapping[str, Any]) -> dict[str, Any]:
    """Store the initial parameters and buffers, the same for all peers, and start the first epoch."""
    with peer.tracer.span("build", "other"):
        model = models.build(peer.plan.model, peer.plan.seed)
    peer.database.set(peer.keys.parameters, gradients.flatten(model.parameters()), "other")
    if _has_buffers(model):
        peer.database.set(peer.keys.buffers, _buffers(model), "other")
    if peer.settings.update_rule == "sgd-momentum":
        # A buffer of zeros gives the optimiser's first step: momentum · 0 + gradient.
        count = sum(parameter.numel() for parameter in model.parameters())
        peer.database.set(peer.keys.velocity, torch.zeros(count), "other")
    if event.get("start", True):
        _start(peer, peer.execution)
    return {"rank": peer.rank}


@on_peer
def compute_gradients(peer: Peer, event: Mapping[str, Any]) -> dict[str, Any]:
    """One minibatch: parameters out of the database, gradient into it."""
    batch = int(event["batch"])
    peer.tracer.step = batch
    plan = peer.plan
    torch.set_num_threads(training.thread_count(plan.memory_mb))
    model = _model(peer)
    model.train()
    gradients.write_parameters(model, peer.database.get(peer.keys.parameters, "fetch", overhead=False))
    if _has_buffers(model):
        _write_buffers(model, peer.database.get(peer.keys.buffers, "fetch"))
    inputs, targets = training.fetch_minibatch(peer.objects, plan, peer.rank, peer.epoch, batch)
    with peer.tracer.span("compute", "compute"):
        loss, gradient = _accumulated(model, inputs, targets, peer.settings.accumulate)
    key = peer.keys.gradient(peer.epoch, batch)
    peer.database.set(key, gradient, "synchronise", overhead=False)
    if _has_buffers(model):
        peer.database.set(peer.keys.batch_buffers(peer.epoch, batch), _buffers(model), "synchronise")
    peer.database.command("HSET", peer.keys.losses(peer.epoch), batch, repr(loss))
    return {"batch": batch, "loss": loss}


@on_peer
def average_gradients(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """AverageGradients: the mean of the minibatches' gradients, then the barrier with the other peers."""
    batches = range(peer.plan.batches)
    found = [peer.keys.gradient(peer.epoch, batch) for batch in batches]
    average = peer.keys.average(peer.epoch)
    if peer.settings.averaging == "naive":
        parts = [peer.database.get(key, "synchronise", overhead=False) for key in found]
        with peer.tracer.span("reduce", "synchronise"):
            mean = gradients.sum_in_rank_order(parts).div_(len(parts))
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
    parts: dict[int, torch.Tensor] = {}
    for rank in peer.active():
        key = peer.keys.average(peer.epoch)
        try:
            parts[rank] = peer.database_of(rank).get(key, "synchronise", overhead=False)
        except (Unreachable, NoTensor):
            if rank == peer.rank:
                raise
            peer.mark_dead(rank)
    with peer.tracer.span("reduce", "synchronise"):
        aggregate = AGGREGATIONS["mean"]([parts[rank] for rank in sorted(parts)])
    peer.database.set(peer.keys.aggregate(peer.epoch), aggregate, "synchronise", overhead=False)
    peer.set_active(list(parts))
    return {"active": sorted(parts)}


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
            parameters.sub_(gradient, alpha=plan.lr)
        database.set(keys.parameters, parameters, "update", overhead=False)
    else:
        inputs = [keys.parameters, aggregate]
        database.execute("sgd", inputs, [keys.parameters], "update", arguments=(plan.lr,), overhead=False)
    return {"epoch": peer.epoch}


@on_peer
def check_convergence(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """CheckConvergence: the loss on the validation images, and whether patience is over; kept in the database."""
    plan, database = peer.plan, peer.database
    torch.set_num_threads(training.thread_count(plan.memory_mb))
    parameters = database.get(peer.keys.parameters, "other", overhead=False)
    model = _model(peer)
    gradients.write_parameters(model, parameters)
    if _has_buffers(model):
        _write_buffers(model, database.get(peer.keys.buffers, "other"))
    stored = peer.objects.get(validation_key(plan), "other")
    with peer.tracer.span("validate", "other"):
        loss = training.validation_loss(model, stored)
    if min(peer.active()) == peer.rank:
        with peer.tracer.span("serialise", "other"):
            body = bytearray(gradients.as_bytes(parameters)) + training.buffers_to_bytes(model)
        peer.objects.put(model_key(plan, peer.epoch), body, "other")
    return {"loss": loss, "converged": _out_of_patience(peer, loss)}


@on_peer
def trigger_next_epoch(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """trigger_next: start the next epoch's execution, or leave the result."""
    plan = peer.plan
    peer.database.command("DEL", peer.keys.average(peer.epoch - 1), peer.keys.aggregate(peer.epoch - 1))
    stopped = plan.early_stopping and _stop_state(peer)["since"] >= PATIENCE_EPOCHS
    if peer.epoch + 1 < plan.epochs and not stopped:
        if plan.until_accuracy is None:
            _start(peer, peer.execution.following())
        return {"next": peer.epoch + 1}
    result = _result(peer, "patience" if stopped else None)
    peer.objects.put(result_key(plan, peer.rank), json.dumps(result).encode(), "other")
    return {"next": None}


def _mean(parts: list[torch.Tensor]) -> torch.Tensor:
    return gradients.sum_in_rank_order(parts).div_(len(parts))


# Robust rules take their place beside the mean.
AGGREGATIONS = {"mean": _mean}


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


def _out_of_patience(peer: Peer, loss: float) -> bool:
    """The released rule: stop when the loss was not below the best for ten epochs in a row (protocol reference 2.5)."""
    state = _stop_state(peer)
    better = loss < state["best"]
    state = {"best": loss if better else state["best"], "since": 0 if better else state["since"] + 1}
    peer.database.command("SET", peer.keys.early_stop, json.dumps(state))
    return bool(state["since"] >= PATIENCE_EPOCHS)


def _stop_state(peer: Peer) -> dict[str, Any]:
    stored = peer.database.command("GET", peer.keys.early_stop)
    return {"best": math.inf, "since": 0} if stored is None else json.loads(bytes(stored))


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
        "parameters": parameters.numel(),
        "parameters_sha256": hashlib.sha256(gradients.as_bytes(parameters)).hexdigest(),
        "threads": training.thread_count(peer.plan.memory_mb),
        "torch": torch.__version__,
        "deaths": peer.dead(),
    }


def _start(peer: Peer, execution: Execution) -> None:
    with peer.tracer.span("execute", "other", execution.name) as span:
        session: Any = boto3.session.Session()
        session.client("stepfunctions").start_execution(
            stateMachineArn=execution.machine, name=execution.name, input=json.dumps(execution.to_input())
        )
        span.requests = 1


def _model(peer: Peer) -> torch.nn.Module:
    """The network, built once in the life of an environment; parameters and buffers come from the database."""
    key = (peer.plan.model, peer.plan.seed)
    if key not in _models:
        with peer.tracer.span("build", "other"):
            _models[key] = models.build(*key)
    return _models[key]


def _accumulated(
    model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor, parts: int
) -> tuple[float, torch.Tensor]:
    """Loss and gradient of a minibatch, added up over parts of it, each weighed by its size."""
    if parts == 1:
        return training.compute_gradient(model, inputs, targets)
    loss, total = 0.0, torch.empty(0)
    for some_inputs, some_targets in zip(inputs.chunk(parts), targets.chunk(parts), strict=True):
        weight = len(some_targets) / len(targets)
        part_loss, part = training.compute_gradient(model, some_inputs, some_targets)
        loss += weight * part_loss
        total = part.mul_(weight) if not total.numel() else total.add_(part, alpha=weight)
    return loss, total


def _has_buffers(model: torch.nn.Module) -> bool:
    return next(model.buffers(), None) is not None


def _buffers(model: torch.nn.Module) -> torch.Tensor:
    """All buffers as one float32 vector: BatchNorm's counters, too, are averaged."""
    return torch.cat([buffer.reshape(-1).to(torch.float32) for buffer in model.buffers()])


def _write_buffers(model: torch.nn.Module, vector: torch.Tensor) -> None:
    offset = 0
    for buffer in model.buffers():
        part = vector[offset : offset + buffer.numel()].view_as(buffer)
        buffer.copy_(part)
        offset += buffer.numel()
