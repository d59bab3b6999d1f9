"""Gradients as vectors: order, views, bytes."""

import hashlib

import numpy as np
import pytest
import torch

from slslab_workers.training import gradients


def small_model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Linear(4, 3))


def test_vector_is_in_order_of_parameters() -> None:
    model = small_model()
    vector = gradients.flatten(model.parameters())
    expected = np.concatenate([p.detach().numpy().ravel(order="C") for p in model.parameters()])
    assert vector.dtype == torch.float32
    assert np.array_equal(vector.numpy(), expected)
    assert gradients.sha256(vector) == hashlib.sha256(expected.astype("<f4").tobytes()).hexdigest()


def test_the_order_is_the_same_whatever_the_memory_format() -> None:
    """Weights (2, 3, 2, 2) of 0, 1, 2, …: channels last stores 0, 4, 8 next to each other."""
    model = torch.nn.Conv2d(3, 2, 2, bias=False)
    gradients.write_parameters(model, torch.arange(24.0))
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert model.weight.stride() == (12, 1, 6, 3)
    assert torch.equal(gradients.flatten(model.parameters()), torch.arange(24.0))
    gradients.write_parameters(model, torch.arange(24.0, 48.0))
    assert model.weight[1, 2, 0, 1] == 24 + 12 + 8 + 1
    gradients.set_gradient(model, torch.arange(24.0))
    assert torch.equal(gradients.flat_gradient(model), torch.arange(24.0))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_parameters_and_gradients_take_a_vector(memory_format: torch.memory_format) -> None:
    model = small_model().to(memory_format=memory_format)  # type: ignore[call-overload]
    count = sum(p.numel() for p in model.parameters())
    vector = torch.arange(count, dtype=torch.float32)
    gradients.write_parameters(model, vector)
    assert torch.equal(gradients.flatten(model.parameters()), vector)
    gradients.set_gradient(model, vector)
    assert torch.equal(gradients.flat_gradient(model), vector)
    vector[0] = -7
    [first, *_] = model.parameters()
    assert first.grad is not None
    assert first.grad.flatten()[0] == -7, "gradients are views, not copies"


def test_parameter_outside_the_loss_is_refused() -> None:
    model = small_model()
    with pytest.raises(ValueError, match="does not depend on it"):
        gradients.flat_gradient(model)


def test_bytes_are_the_vectors_own_memory() -> None:
    vector = torch.tensor([1.0, 2.0, 3.0])
    assert bytes(gradients.as_bytes(vector[1:])) == np.array([2, 3], "<f4").tobytes()
    body = bytearray(gradients.as_bytes(vector))
    again = gradients.from_bytes(body)
    assert torch.equal(again, vector)
    body[:4] = np.array([9], "<f4").tobytes()
    assert again[0] == 9, "no copy"
    assert gradients.as_bytes(vector[3:]).nbytes == 0
    assert gradients.from_bytes(bytearray()).shape == (0,)
