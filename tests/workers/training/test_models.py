"""The networks are the papers' networks, and equal seeds give equal bits."""

import pytest
import torch

from slslab_workers.models import spec
from slslab_workers.plan import PlanError
from slslab_workers.training import models


@pytest.mark.parametrize(
    ("name", "parameters", "tensors", "buffers"),
    [
        ("lenet", 61_706, 10, 0),
        ("mobilenet", 3_217_226, 83, 21_915),
        ("resnet18", 11_173_962, 62, 9_620),
        ("resnet34", 21_282_122, 110, 17_060),
        ("resnet50", 23_520_842, 161, 53_173),
    ],
)
def test_sizes_are_those_of_the_protocol_reference(name: str, parameters: int, tensors: int, buffers: int) -> None:
    model = models.build(name, 0)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert len(list(model.parameters())) == tensors
    assert sum(buffer.numel() for buffer in model.buffers()) == buffers
    known = spec(name)
    assert (known.parameters, known.buffers, known.tensors) == (parameters, buffers, len(model.state_dict()))
    assert model(torch.zeros(2, spec(name).channels, 32, 32)).shape == (2, 10)


def test_equal_seeds_give_equal_bits_and_leave_the_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two, other = models.build("lenet", 1), models.build("lenet", 1), models.build("lenet", 2)
    assert torch.equal(torch.rand(3), expected)
    pairs = zip(one.parameters(), two.parameters(), strict=True)
    assert all(torch.equal(first, second) for first, second in pairs)
    assert not torch.equal(next(one.parameters()), next(other.parameters()))


@pytest.mark.parametrize("name", ["lenet", "mobilenet"])
def test_a_memory_format_changes_no_value(name: str) -> None:
    plain, last = models.build(name, 3), models.build(name, 3, "channels-last")
    for one, other in zip(plain.parameters(), last.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one.is_contiguous()
        assert other.is_contiguous(memory_format=torch.channels_last) or other.dim() != 4


def test_unknown_models_are_refused() -> None:
    with pytest.raises(PlanError, match="There is no model 'vgg'"):
        models.build("vgg", 0)
