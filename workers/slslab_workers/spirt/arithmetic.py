"""SPIRT's arithmetic with models: gradients in parts, and a model's buffers."""

import torch

from slslab_workers.training import gradients
from slslab_workers.training.step import compute_gradient


def accumulated(
    model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor, parts: int
) -> tuple[float, torch.Tensor]:
    """Return the loss and gradient (P,) of a minibatch, as the mean of `parts` weighted by size."""
    if parts == 1:
        return compute_gradient(model, inputs, targets)
    loss, total = 0.0, None
    for some_inputs, some_targets in zip(inputs.chunk(parts), targets.chunk(parts), strict=True):
        weight = len(some_targets) / len(targets)
        part_loss, part = compute_gradient(model, some_inputs, some_targets)
        loss += weight * part_loss
        total = part.mul_(weight) if total is None else total.add_(part, alpha=weight)
    assert total is not None
    return loss, total


def has_buffers(model: torch.nn.Module) -> bool:
    """Return whether the network has buffers (BatchNorm statistics)."""
    return next(model.buffers(), None) is not None


def read_buffers(model: torch.nn.Module) -> torch.Tensor:
    """Return all buffers as one float32 vector in the host's memory. It includes BatchNorm's counters, because they are
    averaged, too."""
    return gradients.flatten(buffer.to(torch.float32) for buffer in model.buffers()).cpu()


def write_buffers(model: torch.nn.Module, vector: torch.Tensor) -> None:
    """Copy a vector from `read_buffers`, or a mean of several, into the network."""
    for buffer, part in gradients.parts(model.buffers(), vector):
        buffer.copy_(part)
