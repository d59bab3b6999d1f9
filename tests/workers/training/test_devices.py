"""What workers compute on, and how much of a GPU a function may use."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from slslab_workers.plan import GPU_MEMORY, Plan
from slslab_workers.training.devices import choose_device, function_device

PLAN = Plan("one", "allreduce", "lenet", "digits", batch_size=8, batches=1, memory_mb=1024)
ON_MODAL = replace(PLAN, platform="modal-t4")


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A GPU of 32 GiB as torch shows it; returns the shares of its memory that are set as limits."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=32 * 2**30))
    shares: list[float] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", shares.append)
    return shares


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == "cpu"
    assert function_device(ON_MODAL) == "cpu"
    with pytest.raises(RuntimeError, match="no CUDA device"):
        choose_device("cuda")


def test_devices_with_a_gpu(limits: list[float]) -> None:
    assert choose_device("cpu") == "cpu"
    assert function_device(PLAN) == "cpu", "Lambda has no GPUs"
    assert torch.backends.cudnn.allow_tf32
    assert choose_device("auto") == choose_device("cuda") == "cuda"
    assert torch.backends.cudnn.allow_tf32 is False
    assert limits == []


def test_a_function_gets_as_much_memory_as_the_platforms_gpu_has(
    limits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert function_device(ON_MODAL) == "cuda"
    assert limits == [], "of a kind whose memory isn't known"
    for memory_mb in (16 * 1024, 64 * 1024):
        monkeypatch.setenv(GPU_MEMORY, str(memory_mb))
        assert function_device(ON_MODAL) == "cuda"
    assert limits == [0.5, 1.0]
