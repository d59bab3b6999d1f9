"""Gradients as one vector: flatten it, turn it into bytes, compute its fingerprint.

Vectors are float32, in the order of `model.parameters()`, each parameter in C order. They are sent little-endian.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import torch

Tensor = TypeVar("Tensor", bound=torch.Tensor)


def flatten(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return one new float32 vector (P,) of all tensors' elements."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def flat_gradient(model: torch.nn.Module) -> torch.Tensor:
    """Return the model's gradient as one vector (P,)."""
    return flatten(_gradient(parameter) for parameter in model.parameters())


def parts(tensors: Iterable[Tensor], vector: torch.Tensor) -> Iterator[tuple[Tensor, torch.Tensor]]:
    """Yield each of these tensors with its part of a vector (P,), a view in the tensor's shape."""
    offset = 0
    for tensor in tensors:
        size = tensor.numel()
        yield tensor, vector[offset : offset + size].view_as(tensor)
        offset += size


def write_parameters(model: torch.nn.Module, vector: torch.Tensor) -> None:
    """Copy a vector (P,) into the model's parameters."""
    for parameter, part in parts(model.parameters(), vector):
        parameter.detach().copy_(part)


def set_gradient(model: torch.nn.Module, vector: torch.Tensor) -> None:
    """Make the model's gradients views of a vector (P,), without a copy."""
    for parameter, part in parts(model.parameters(), vector):
        parameter.grad = part


def as_bytes(vector: torch.Tensor) -> memoryview:
    """Return the vector's own memory as raw little-endian float32, without a copy."""
    return vector.numpy().data.cast("B") if vector.numel() else memoryview(b"")


def from_bytes(data: Any) -> torch.Tensor:
    """Return a float32 vector over a writable buffer, without a copy."""
    return torch.frombuffer(data, dtype=torch.float32) if len(data) else torch.empty(0)


def sha256(vector: torch.Tensor) -> str:
    """Return the SHA-256 of a float32 vector's raw bytes, hexadecimal."""
    return hashlib.sha256(as_bytes(vector.contiguous())).hexdigest()


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    if parameter.grad is None:
        raise ValueError("A parameter has no gradient: the loss does not depend on it.")
    return parameter.grad
