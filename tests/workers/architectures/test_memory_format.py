"""Channels last: computed with in every architecture, the same messages, and the same parameters up to rounding."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.workers.architectures.peers import Peers, Steps, check_counts, distance

from slslab_lab.runs.planning import architectures
from slslab_workers.plan import Plan
from slslab_workers.training import gradients, loop, models, step
from slslab_workers.training import state as state_module

Train = Callable[..., Any]
MakePlan = Callable[..., Plan]
LAST = "channels-last"
LENET = 61_706


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return for each gradient whether minibatch and weights, except vectors, were channels last."""
    found = []
    compute = step.compute_gradient

    def watched(model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, torch.Tensor]:
        images = [inputs, *(parameter for parameter in model.parameters() if parameter.dim() == 4)]
        found.append(all(image.is_contiguous(memory_format=torch.channels_last) for image in images))
        return compute(model, inputs, targets)

    monkeypatch.setattr(step, "compute_gradient", watched)
    monkeypatch.setattr(loop.Trainer, "minibatch_gradient", staticmethod(watched))
    return found


@pytest.mark.parametrize("name", ["allreduce", "scatterreduce", "mlless", "gpu"])
def test_parameters_are_those_of_the_default_format_and_counts_too(
    name: str, train: Train, make_plan: MakePlan, computed: list[bool], reference: Callable[[Plan], Any]
) -> None:
    options = {"filter": "none", "store": "s3"} if name == "mlless" else {}
    plan = make_plan(name, workers=2, options=options, memory_format=LAST)
    trained = train(plan)
    assert computed == [True] * 4
    assert trained.fingerprints[0] == trained.fingerprints[1] == reference(plan)[0]
    assert distance(trained.parameters[0], reference(make_plan(name, workers=2, options=options))[1]) <= 1e-6
    expected = architectures()[name].counts(2, 2, 1, LENET, options)
    operations = {op: number for op, number in expected.operations.items() if number}
    assert trained.protocol() == (operations, expected.bytes_in, expected.bytes_out)


def test_mobilenet_is_near_the_default_format(
    train: Train, make_plan: MakePlan, computed: list[bool], reference: Callable[[Plan], Any]
) -> None:
    """No nearer, for its first gradients multiply the rounding of BatchNorm's sums, which is another one here."""
    more: dict[str, Any] = {"model": "mobilenet", "dataset": "synthetic", "workers": 2, "batch_size": 8, "batches": 1}
    trained = train(make_plan("allreduce", **more, memory_format=LAST))
    assert computed == [True] * 2
    _, in_one_process = reference(make_plan("allreduce", **more, memory_format=LAST))
    assert torch.equal(trained.parameters[0], in_one_process)
    assert distance(in_one_process, reference(make_plan("allreduce", **more))[1]) <= 1e-2


def test_mobilenet_s_gradient_is_the_same_but_for_rounding() -> None:
    """In double precision, which hardly leaves anything to round."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(4, 3, 32, 32, dtype=torch.float64, generator=generator)
    targets = torch.tensor([3, 1, 4, 1])
    found = []
    for one in ("default", LAST):
        model = models.build("mobilenet", 0, one).double()
        found.append(step.compute_gradient(model, models.arranged(inputs, one), targets)[1])
    assert distance(*found) <= 1e-9


def test_peers_have_the_parameters_of_the_default_format(
    peers: Peers, make_plan: MakePlan, computed: list[bool], reference: Callable[[Plan], Any]
) -> None:
    plans = [make_plan("spirt", workers=2, batches=2, batch_size=8, memory_format=one) for one in (LAST, "default")]
    found = []
    for plan in plans:
        steps = Steps(peers)
        ran = peers.run(plan, after=steps)
        check_counts(ran)
        assert ran.outcome.replicas_equal
        found.append(steps.last)
    assert computed == [True] * 4 + [False] * 4
    assert torch.equal(found[0], reference(plans[0])[1])
    assert distance(*found) <= 1e-6


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_state_travels_bit_for_bit_and_into_either_format(optimiser: str, make_plan: MakePlan) -> None:
    def fresh(memory_format: str, seed: int) -> state_module.WorkerState:
        options = {"optimiser": optimiser}
        plan = make_plan("mlless", model="mobilenet", seed=seed, memory_format=memory_format, options=options)
        return state_module.WorkerState.fresh(plan, 0)

    def train_step(state: state_module.WorkerState) -> None:
        torch.manual_seed(1)
        inputs = torch.randn(2, 3, 32, 32).contiguous(memory_format=torch.channels_last)
        _, gradient = step.compute_gradient(state.model, inputs, torch.tensor([1, 7]))
        gradients.set_gradient(state.model, gradient)
        state.optimiser.step()

    state = fresh(LAST, 0)
    train_step(state)
    restored, default = fresh(LAST, 9), fresh("default", 9)
    for other in (restored, default):
        other.restore(state.to_bytes())
        assert other.to_bytes() == state.to_bytes()
    for parameter, other_parameter in zip(state.model.parameters(), restored.model.parameters(), strict=True):
        assert parameter.stride() == other_parameter.stride()
    train_step(state)
    train_step(restored)
    assert restored.to_bytes() == state.to_bytes(), "the next step is the same as well"
