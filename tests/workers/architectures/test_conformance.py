"""What every synchronous data-parallel architecture must show: trajectory, exact counts, barriers, resumption."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from slslab_lab.runs.planning import architectures
from slslab_workers.plan import Plan
from slslab_workers.training import worker
from slslab_workers.training.state import WorkerState

Train = Callable[..., Any]
MakePlan = Callable[..., Plan]
FUNCTIONS = ("allreduce", "scatterreduce")
ARCHITECTURES = (*FUNCTIONS, "gloo", "gpu")


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_trajectory_is_bit_equal_to_one_process(
    name: str, workers: int, train: Train, make_plan: MakePlan, reference: Callable[[Plan], Any]
) -> None:
    plan = make_plan(name, workers=workers, epochs=2, seed=3)
    trained = train(plan)
    expected, _ = reference(plan)
    assert len(expected) == 4
    assert len(set(expected)) == 4, "every step changes the parameters"
    for rank in range(workers):
        assert trained.fingerprints[rank] == expected
    assert {result["parameters_sha256"] for result in trained.results} == {expected[-1]}


@pytest.mark.parametrize("name", ["scatterreduce", "gloo", "gpu"])
def test_replicas_that_start_apart_are_those_of_one_process(
    name: str, train: Train, make_plan: MakePlan, reference: Callable[[Plan], Any]
) -> None:
    """Each with a model of its own, as in the authors' code."""
    plan = make_plan(name, workers=2, epochs=2, options={"replicas": "unseeded"})
    trained = train(plan)
    assert trained.fingerprints[0] == reference(plan)[0]
    assert trained.fingerprints[0][-1] != trained.fingerprints[1][-1]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_mobilenet_is_within_a_millionth_of_one_process(
    name: str, train: Train, make_plan: MakePlan, reference: Callable[[Plan], Any]
) -> None:
    plan = make_plan(name, model="mobilenet", dataset="synthetic", workers=2, batch_size=4)
    trained = train(plan)
    _, expected = reference(plan)
    difference = (trained.parameters[0] - expected).norm() / expected.norm()
    assert float(difference) <= 1e-6
    assert trained.results[0]["parameters"] == 3_217_226


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize(("workers", "epochs"), [(1, 1), (2, 2), (3, 1), (4, 2), (8, 1), (16, 1)])
def test_counts_and_bytes_are_the_closed_form(
    name: str, workers: int, epochs: int, train: Train, make_plan: MakePlan
) -> None:
    plan = make_plan(name, workers=workers, epochs=epochs, batch_size=4)
    trained = train(plan)
    expected = architectures()[name].counts(workers, plan.batches, epochs, 61_706)
    counted, bytes_in, bytes_out = trained.protocol()
    assert counted == {operation: number for operation, number in expected.operations.items() if number}
    assert (bytes_in, bytes_out) == (expected.bytes_in, expected.bytes_out)
    left = {"allreduce": 1, "gloo": 0, "scatterreduce": workers, "gpu": 2 * workers}[name]
    assert len(trained.keys) == left, "exactly the last merged step remains, of instances' gradients the last two"
    kept = (0, 1) if name == "gpu" else (1,)
    assert all(any(f"e{epochs - 1}_s{step}" in key for step in kept) for key in trained.keys)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_slow_workers_change_nothing(
    name: str, train: Train, make_plan: MakePlan, reference: Callable[[Plan], Any]
) -> None:
    plan = make_plan(name, workers=3, epochs=2)

    def dawdle(rank: int, position: int) -> None:
        time.sleep(0.15 if rank == position % 3 else 0.0)

    trained = train(plan, dawdle)
    assert trained.fingerprints[0] == reference(plan)[0]
    expected = architectures()[name].counts(3, 2, 2, 61_706)
    assert trained.protocol() == (dict(expected.operations), expected.bytes_in, expected.bytes_out)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("warm", [True, False])
def test_per_batch_invocations_have_the_same_trajectory(
    name: str, warm: bool, train: Train, make_plan: MakePlan, reference: Callable[[Plan], Any], monkeypatch: Any
) -> None:
    plan = make_plan(name, workers=2, epochs=2, mode="per-batch")
    if not warm:
        resume = worker.Worker._resume

        def resume_cold(self: worker.Worker) -> WorkerState:
            worker._warm = None
            return resume(self)

        monkeypatch.setattr(worker.Worker, "_resume", resume_cold)
    trained = train(plan)
    assert trained.fingerprints[0] == reference(plan)[0]
    expected = architectures()[name].counts(2, 2, 2, 61_706)
    assert trained.protocol() == (dict(expected.operations), expected.bytes_in, expected.bytes_out)
    stored = [event for event in trained.events if "/state/" in event["resource"]]
    assert stored
    assert all(event["overhead"] for event in stored)


def test_sum_as_released_is_the_mean_with_n_times_the_rate(
    train: Train, make_plan: MakePlan, reference: Callable[[Plan], Any]
) -> None:
    """SGD is linear in the gradient; four is a power of two, so even the bits agree."""
    plan = make_plan("allreduce", workers=4, options={"combine": "sum"})
    released = train(plan)
    assert released.fingerprints[0] == reference(plan)[0]
    mean = train(make_plan("allreduce", workers=4, lr=0.01 * 4, weight_decay=5e-4 / 4))
    assert released.fingerprints[0] == mean.fingerprints[0]
    assert released.fingerprints[0] != train(make_plan("allreduce", workers=4)).fingerprints[0]


def test_counts_by_hand() -> None:
    """Literal numbers: n = 4, b = 24, MobileNet, and the per-step tables."""
    allreduce, scatterreduce = (architectures()[name] for name in FUNCTIONS)
    parameters = 3_217_226
    ar, sr = allreduce.counts(4, 24, 1, parameters), scatterreduce.counts(4, 24, 1, parameters)
    assert ar.operations == {"object.put": 120, "object.get": 168, "object.delete": 24 * 4 + 23}
    assert sr.operations == {"object.put": 384, "object.get": 576, "object.delete": 24 * 12 + 23 * 4}
    assert (ar.bytes_in, ar.bytes_out) == (120 * 12_868_904, 168 * 12_868_904)
    assert (sr.bytes_in, sr.bytes_out) == (1_235_414_784, 1_853_122_176)
    resnet = scatterreduce.counts(4, 24, 1, 11_173_962)
    assert (resnet.bytes_in, resnet.bytes_out) == (4_290_801_408, 6_436_202_112)
    for workers, puts, gets, deletes, size_in, size_out in [
        (4, 16, 24, 12, 51_475_616, 77_213_424),
        (8, 64, 112, 56, 102_951_232, 180_164_656),
        (16, 256, 480, 240, 205_902_464, 386_067_120),
    ]:
        step = scatterreduce.counts(workers, 1, 1, parameters)
        assert step.operations == {"object.put": puts, "object.get": gets, "object.delete": deletes}
        assert (step.bytes_in, step.bytes_out) == (size_in, size_out)
    for workers in (1, 2, 4, 8, 16):
        for epochs in (1, 2, 5):
            many = allreduce.counts(workers, 24, epochs, parameters)
            assert many.operations["object.delete"] == 24 * workers * epochs + 24 * epochs - 1
            many = scatterreduce.counts(workers, 24, epochs, parameters)
            expected = 24 * workers * (workers - 1) * epochs + (24 * epochs - 1) * workers
            assert many.operations["object.delete"] == expected
    assert allreduce.counts(1, 1, 1, 10).operations == {"object.put": 2, "object.get": 1, "object.delete": 1}
    assert scatterreduce.counts(1, 1, 1, 10).operations == {"object.put": 1}


def test_state_travels_bit_for_bit(make_plan: MakePlan) -> None:
    plan = make_plan("allreduce", model="mobilenet")
    state = WorkerState.fresh(plan, 0)
    for _ in range(2):
        state.model.zero_grad()
        state.model(torch.randn(4, 3, 32, 32)).square().mean().backward()
        state.optimiser.step()
    state.position, state.losses = 2, [1.5, 0.1]
    other = WorkerState.fresh(make_plan("allreduce", model="mobilenet", seed=9), 0)
    other.restore(state.to_bytes())
    assert (other.position, other.losses) == (2, [1.5, 0.1])
    assert other.to_bytes() == state.to_bytes()
    for one, two in zip(state.model.state_dict().values(), other.model.state_dict().values(), strict=True):
        assert torch.equal(one, two)
    for half in (state, other):
        half.model.zero_grad()
        torch.manual_seed(0)
        half.model(torch.randn(4, 3, 32, 32)).square().mean().backward()
        half.optimiser.step()
    assert other.to_bytes() == state.to_bytes(), "the next step is the same as well"
