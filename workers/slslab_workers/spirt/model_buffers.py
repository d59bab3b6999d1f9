"""Read and write a model's buffers."""

import torch

from slslab_workers.training import gradients


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
