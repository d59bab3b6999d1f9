"""Gradients as one vector: flatten, cut into chunks, sum in rank order, fingerprint.

The order is that of `model.parameters()`, each in C order, float32; on every wire little-endian.
"""

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def flatten(tensors: Iterable["torch.Tensor"]) -> "torch.Tensor":
    """One new float32 vector (P,) of all tensors' elements."""
    import torch

    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def flat_gradient(model: "torch.nn.Module") -> "torch.Tensor":
    """The model's gradient as one vector (P,)."""
    return flatten(_gradient(parameter) for parameter in model.parameters())


def write_parameters(model: "torch.nn.Module", vector: "torch.Tensor") -> None:
    """Copy a vector (P,) into the model's parameters."""
    import torch

    offset = 0
    with torch.no_grad():
        for parameter in model.parameters():
            size = parameter.numel()
            parameter.copy_(vector[offset : offset + size].view_as(parameter))
            offset += size


def set_gradient(model: "torch.nn.Module", vector: "torch.Tensor") -> None:
    """Make the model's gradients views of a vector (P,), without a copy."""
    offset = 0
    for parameter in model.parameters():
        size = parameter.numel()
        parameter.grad = vector[offset : offset + size].view_as(parameter)
        offset += size


def chunk(parameters: int, workers: int, index: int) -> slice:
    """Where chunk `index` of `workers` lies in a vector of `parameters` elements.

    q = P div n, r = P mod n; the first r chunks have q + 1 elements (protocol reference 4.2, LambdaML). With more
    workers than parameters, the last chunks are empty.
    """
    quotient, remainder = divmod(parameters, workers)
    start = quotient * index + min(remainder, index)
    return slice(start, start + quotient + (index < remainder))


def sum_in_rank_order(parts: Iterable["torch.Tensor"]) -> "torch.Tensor":
    """Clone of the first part with the others added in their order, so that equal inputs give equal bits.

    Of parts that are made one by one, two are held at a time.
    """
    return _sum(parts)[0]


def mean_in_rank_order(parts: Iterable["torch.Tensor"]) -> "torch.Tensor":
    """The same, divided by how many there are."""
    total, count = _sum(parts)
    return total.div_(count)


def _sum(parts: Iterable["torch.Tensor"]) -> tuple["torch.Tensor", int]:
    rest = iter(parts)
    total, count = next(rest).clone(), 1
    for part in rest:
        total.add_(part)
        count += 1
    return total, count


def as_bytes(vector: "torch.Tensor") -> memoryview:
    """The vector's own memory as raw little-endian float32, without a copy."""
    return vector.numpy().data.cast("B") if vector.numel() else memoryview(b"")


def from_bytes(data: Any) -> "torch.Tensor":
    """A float32 vector over a writable buffer, without a copy."""
    import torch

    return torch.frombuffer(data, dtype=torch.float32) if len(data) else torch.empty(0)


def sha256(vector: "torch.Tensor") -> str:
    """Fingerprint of a float32 vector's raw bytes."""
    return hashlib.sha256(as_bytes(vector.contiguous())).hexdigest()


def _gradient(parameter: "torch.nn.Parameter") -> "torch.Tensor":
    if parameter.grad is None:
        raise ValueError("a parameter has no gradient: the loss does not depend on it")
    return parameter.grad
