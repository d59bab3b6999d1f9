"""One step's minibatch and its gradient, and the model after an epoch."""

import torch

from slslab_workers.channels.objects import ObjectChannel
from slslab_workers.plan import Plan
from slslab_workers.training import datasets, gradients, models
from slslab_workers.training.keys import minibatch_key, model_key
from slslab_workers.training.state import buffers_to_bytes


def fetch_minibatch(
    objects: ObjectChannel, plan: Plan, rank: int, epoch: int, step: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fetch a worker's minibatch from the object store and augment it.

    Return inputs, (B, C, H, W) float32 in the plan's memory format or rows (B, D), and targets (B,) int64.
    """
    stored = objects.get(minibatch_key(plan, epoch=epoch, step=step, rank=rank), "fetch")
    with objects.tracer.span("prepare", "fetch", bytes=len(stored.body)):
        samples = datasets.decode_minibatch(stored.body, stored.metadata)
        inputs, targets = datasets.prepare(*samples, plan.seed, epoch, rank, step)
        return models.arranged(inputs, plan.memory_format), targets


def compute_gradient(model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, torch.Tensor]:
    """Return the mean loss of a minibatch, and its gradient (P,) float32."""
    for parameter in model.parameters():
        parameter.grad = None
    loss = models.loss(model, model(inputs), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item(), gradients.flat_gradient(model)


def store_model(objects: ObjectChannel, plan: Plan, epoch: int, model: torch.nn.Module) -> None:
    """Store the parameters and buffers after an epoch, which the driver evaluates."""
    with objects.tracer.span("serialise", "other") as span:
        body = bytearray(gradients.as_bytes(gradients.flatten(model.parameters()).cpu()))
        body += buffers_to_bytes(model)
        span.bytes = len(body)
    objects.put(model_key(plan, epoch=epoch), body, "other")
