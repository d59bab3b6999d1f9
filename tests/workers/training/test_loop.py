"""The training loop's parts: threads, the watchdog, what travels between invocations, evaluation."""

import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from slslab_workers.architecture import architectures
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Objects
from slslab_workers.plan import Assignment, Plan, thread_count
from slslab_workers.training import datasets, evaluation, gradients, lifetime
from slslab_workers.training import state as state_module
from slslab_workers.training import worker as worker_module


class Context:
    """A Lambda context with a fixed remaining time."""

    aws_request_id = "request"
    function_name = "function"

    def __init__(self, remaining_s: float) -> None:
        self._remaining_s = remaining_s

    def get_remaining_time_in_millis(self) -> int:
        return int(self._remaining_s * 1000)


def make_plan(**changes: Any) -> Plan:
    values: dict[str, Any] = {
        "run": "run",
        "architecture": "allreduce",
        "model": "lenet",
        "dataset": "digits",
        "batch_size": 16,
        "batches": 2,
        "memory_mb": 1024,
    }
    values |= changes
    return Plan(**{**values, "options": architectures()["allreduce"].complete(values.get("options", {}))})


@pytest.mark.parametrize(
    ("memory_mb", "threads"), [(128, 1), (1769, 1), (1770, 2), (3008, 2), (3538, 2), (3539, 3), (10_240, 6)]
)
def test_threads_are_the_cpu_share_rounded_up(memory_mb: int, threads: int) -> None:
    assert thread_count(memory_mb) == threads


def test_remaining_time_is_on_the_lambda_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLSLAB_CLOCK_FILE", raising=False)
    assert lifetime.remaining_s(Context(12.5)) == 12.5
    clock = tmp_path / "clock"
    overrun = time.monotonic_ns() - 4_000_000_000
    clock.write_bytes(struct.pack("<QQ", overrun, 6_000_000_000))
    monkeypatch.setenv("SLSLAB_CLOCK_FILE", str(clock))
    assert 1.9 < lifetime.remaining_s(Context(0)) <= 2.0, "4 s of wall over, 6 s of them the host's"


@pytest.mark.parametrize(
    ("timeout", "remaining_s", "longest_s", "elapsed_s", "leaves"),
    [
        (900, 800, 0, 1, False),
        (900, 35, 10, 1, True),  # 35 − 9 < 30
        (900, 60, 10, 1, False),
        (900, 240, 100, 50, True),  # 240 − 50 < 200
        (900, 260, 100, 50, False),
        (100, 25, 1, 0.5, False),  # a tenth of a short time-out is reserve enough
        (100, 10, 1, 0.5, True),
        (100, 70, 0, 30, True),  # a first step of 60 s would not be followed by another
        (100, 90, 0, 10, False),
    ],
)
def test_watchdog_leaves_while_a_step_and_its_checkpoint_still_fit(
    timeout: int, remaining_s: float, longest_s: float, elapsed_s: float, leaves: bool
) -> None:
    plan = make_plan(timeout=timeout)
    objects = Objects(None, "bucket", Tracer(lambda _event: None))
    worker = worker_module.Worker(Assignment(plan, "bucket", 0, 0, 2, False), Context(remaining_s), objects)
    worker.longest_step_s, worker.step_began = longest_s, time.monotonic() - elapsed_s
    assert worker.is_short_of_time() is leaves


def test_replicas_start_equal_unless_told_otherwise() -> None:
    def fingerprint(rank: int, **changes: Any) -> str:
        state = state_module.WorkerState.fresh(make_plan(**changes), rank)
        return gradients.sha256(gradients.flatten(state.model.parameters()))

    assert fingerprint(0) == fingerprint(3)
    assert fingerprint(0) != fingerprint(0, seed=1)
    unseeded: dict[str, Any] = {"options": {"replicas": "unseeded"}}
    assert fingerprint(0, **unseeded) != fingerprint(1, **unseeded)
    assert fingerprint(1, **unseeded) == fingerprint(1, **unseeded), "equal plans give equal bits"


def test_state_before_the_first_step_has_no_momentum() -> None:
    state = state_module.WorkerState.fresh(make_plan(), 0)
    other = state_module.WorkerState.fresh(make_plan(seed=7), 0)
    other.restore(state.to_bytes())
    assert len(state.to_bytes()) < 2 * 4 * 61_706
    assert other.to_bytes() == state.to_bytes()


def test_evaluation_uses_the_stored_parameters_and_buffers() -> None:
    """Against the trained model itself in eval mode; its BatchNorm statistics have moved."""
    plan = make_plan(model="mobilenet", dataset="synthetic")
    state = state_module.WorkerState.fresh(plan, 0)
    dataset = datasets.load("synthetic", 100, 0)
    images, labels = dataset.test_images[:30], dataset.test_labels[:30]
    inputs, targets = datasets.prepare_test(images, labels, dataset.policy)
    state.model(inputs)
    stored = bytearray(gradients.as_bytes(gradients.flatten(state.model.parameters())))
    stored += state_module.buffers_to_bytes(state.model)
    fresh = state_module.WorkerState.fresh(make_plan(model="mobilenet", seed=5), 0).model
    accuracy, loss = evaluation.evaluate(fresh, stored, images, labels, dataset.policy)
    state.model.eval()
    with torch.no_grad():
        scores = state.model(inputs)
    assert accuracy == int((scores.argmax(1) == targets).sum()) / len(targets)
    assert loss == pytest.approx(float(torch.nn.functional.cross_entropy(scores, targets)), rel=1e-5)
    for one, two in zip(state.model.buffers(), fresh.buffers(), strict=True):
        assert torch.equal(one, two)


def test_accuracy_is_over_all_images_whatever_the_batches() -> None:
    """1,203 images are three batches; the model answers each image's brightness class."""

    class Answers(torch.nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(inputs[:, 0, 0, 0].round().long(), 10).float()

    labels = np.arange(1_203, dtype=np.int64) % 10
    images = np.zeros((1_203, 1, 32, 32), np.uint8)
    images[:, 0, 0, 0] = np.where(np.arange(1_203) < 401, labels, (labels + 1) % 10)
    policy = datasets.Policy((0.0,), (1 / 255,), 0, False)
    accuracy, _ = evaluation.evaluate(Answers(), bytearray(), images, labels, policy)
    assert accuracy == 401 / 1_203
