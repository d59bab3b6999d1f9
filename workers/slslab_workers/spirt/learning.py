"""SPIRT's functions that need torch: initial models, gradients, and the convergence check."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from slslab_workers.channels.stream import Unreachable
from slslab_workers.models import spec_of
from slslab_workers.plan import thread_count
from slslab_workers.spirt.membership import on_peer
from slslab_workers.spirt.model_buffers import has_buffers, read_buffers, write_buffers
from slslab_workers.spirt.peer import Peer
from slslab_workers.training import datasets, evaluation, gradients, models, step
from slslab_workers.training.attacks import Attack
from slslab_workers.training.keys import validation_key


@on_peer
def init_model(peer: Peer, _event: Mapping[str, Any]) -> None:
    """Store the initial parameters and buffers, the same for all peers, and start the first epoch."""
    with peer.tracer.span("build", "other"):
        model = models.build(spec_of(peer.plan), peer.plan.seed)
    peer.database.set(peer.keys.parameters, gradients.flatten(model.parameters()).numpy(), "other")
    if has_buffers(model):
        peer.database.set(peer.keys.buffers(epoch=0), read_buffers(model).numpy(), "other")
    if peer.options["update-rule"] == "sgd-momentum":
        # A velocity of zeros gives the optimiser's first step: momentum · 0 + gradient.
        count = sum(parameter.numel() for parameter in model.parameters())
        peer.database.set(peer.keys.velocity, np.zeros(count, np.float32), "other")
    peer.set_lineage(0, "")
    peer.start(peer.execution)


@on_peer
def compute_gradients(peer: Peer, event: Mapping[str, Any]) -> None:
    """Compute one minibatch: read the parameters from the database and store the gradient there."""
    batch = int(event["batch"])
    peer.tracer.step = batch
    plan = peer.plan
    torch.set_num_threads(thread_count(plan.memory_mb))
    model = models.kept(plan, peer.tracer)
    model.train()
    gradients.write_parameters(
        model, torch.from_numpy(peer.database.get(peer.keys.parameters, "fetch", overhead=False))
    )
    if has_buffers(model):
        write_buffers(model, torch.from_numpy(peer.database.get(peer.keys.buffers(epoch=peer.epoch), "fetch")))
    inputs, targets = step.fetch_minibatch(peer.objects, plan, peer.rank, peer.epoch, batch)
    device = next(model.parameters()).device
    inputs, targets = inputs.to(device), Attack.of(plan).targets(peer.rank, targets).to(device)
    with peer.tracer.span("compute", "compute") as span:
        loss, gradient = step.compute_gradient(model, inputs, targets)
        gradient, span.loss = gradient.cpu(), loss
    if peer.options["gradients"] == "json":
        key = peer.keys.json_gradients(epoch=peer.epoch)
        peer.database.push_json(key, gradient.numpy(), "synchronise", overhead=False)
    else:
        key = peer.keys.gradient(epoch=peer.epoch, batch=batch)
        peer.database.set(key, gradient.numpy(), "synchronise", overhead=False)
    if has_buffers(model):
        peer.database.set(
            peer.keys.batch_buffers(epoch=peer.epoch, batch=batch), read_buffers(model).numpy(), "synchronise"
        )
    peer.database.command("HSET", peer.keys.losses(epoch=peer.epoch), batch, repr(loss))


@on_peer
def check_convergence(peer: Peer, _event: Mapping[str, Any]) -> None:
    """Run CheckConvergence: compute the loss on the validation images, and store the best and its age.

    All peers use the buffers (BatchNorm statistics) of the lowest living rank, so that they decide alike. That peer
    stores the model for the driver.
    """
    plan, database = peer.plan, peer.database
    torch.set_num_threads(thread_count(plan.memory_mb))
    parameters = database.get(peer.keys.parameters, "other", overhead=False)
    model = models.kept(plan, peer.tracer)
    gradients.write_parameters(model, torch.from_numpy(parameters))
    judge = _take_buffers(peer, model) if has_buffers(model) else peer.first_alive(peer.active())
    stored = peer.objects.get(validation_key(plan), "other")
    with peer.tracer.span("validate", "other", bytes=len(stored.body)):
        _, loss = evaluation.judge(model, *datasets.decode_minibatch(stored.body, stored.metadata))
    if judge == peer.rank:
        step.store_model(peer.objects, plan, peer.epoch, model)
    # As released, training stops after ten epochs in a row without a better loss (docs/protocols.md, "SPIRT").
    state = peer.stop_state()
    state = {"best": loss, "since": 0} if loss < state["best"] else {**state, "since": state["since"] + 1}
    database.command("SET", peer.keys.early_stop, json.dumps(state))


def _take_buffers(peer: Peer, model: torch.nn.Module) -> int:
    """Load the buffers of the lowest living rank, as they are after this epoch; return that rank."""
    for rank in peer.active():
        try:
            vector = peer.database_of(rank).get(peer.keys.buffers(epoch=peer.epoch + 1), "other")
        except (KeyError, Unreachable):
            if rank == peer.rank:
                raise
            continue
        write_buffers(model, torch.from_numpy(vector))
        return rank
    raise AssertionError("a peer is always among its own active peers")
