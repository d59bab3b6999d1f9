"""Optimisers by name: each against its rule, written out, and against PyTorch's own class."""

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch

from slslab_workers.plan import Plan
from slslab_workers.training.optimisers import make_optimiser


def stepped(gradients: tuple[float, ...], **options: Any) -> float:
    """A weight of 1 after a step with each of these gradients."""
    plan = Plan("run", "any", "lenet", "digits", 16, 2, 1024, lr=0.1, momentum=0.5, weight_decay=0.25, options=options)
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    optimiser = make_optimiser(plan, model)
    for gradient in gradients:
        model.weight.grad = torch.tensor([[gradient]])
        optimiser.step()
    return model.weight.item()


def test_sgd_is_the_default_with_the_plan_s_momentum_and_weight_decay() -> None:
    """v ← 0.5 v + g + 0.25 w; w ← w - 0.1 v."""
    velocity, weight = 0.0, 1.0
    for gradient in (2.0, -1.0):
        velocity = 0.5 * velocity + gradient + 0.25 * weight
        weight -= 0.1 * velocity
    assert stepped((2.0, -1.0)) == stepped((2.0, -1.0), optimiser="sgd") == pytest.approx(weight)


def test_adam_s_first_step_is_the_rate_whatever_the_gradient_s_size() -> None:
    assert stepped((2.0,), optimiser="adam") == pytest.approx(0.9)
    assert stepped((-0.01,), optimiser="adam") == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("name", "momentum", "theirs"),
    [
        ("sgd", 0.0, lambda weights: torch.optim.SGD(weights, lr=0.1, weight_decay=0.25)),
        ("sgd", 0.5, lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.5, weight_decay=0.25)),
        ("adam", 0.5, lambda weights: torch.optim.Adam(weights, lr=0.1)),
    ],
)
def test_each_has_the_bits_of_pytorchs_own(name: str, momentum: float, theirs: Any) -> None:
    """In a layer without a gradient in the second step, too."""
    options = {"optimiser": name}
    plan = Plan(
        "run", "any", "lenet", "digits", 16, 2, 1024, lr=0.1, momentum=momentum, weight_decay=0.25, options=options
    )
    torch.manual_seed(0)
    ours = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    other = copy.deepcopy(ours)
    pairs = [(ours, make_optimiser(plan, ours)), (other, theirs(other.parameters()))]
    for step in range(4):
        inputs = torch.randn(8, 3)
        for model, optimiser in pairs:
            model.zero_grad()
            model(inputs).square().sum().backward()
            if step == 1:
                model[0].weight.grad = None
            optimiser.step()
        assert all(map(torch.equal, ours.parameters(), other.parameters()))


def test_a_workers_step_does_not_import_what_only_compilers_need() -> None:
    """It would take every worker another second of CPU time."""
    code = """
import sys, torch
from slslab_workers.plan import Plan
from slslab_workers.training.state import WorkerState
from slslab_workers.training.gradients import flatten
for name in ("sgd", "adam"):
    state = WorkerState.fresh(Plan("run", "any", "lenet", "digits", 16, 2, 1024, options={"optimiser": name}), 0)
    state.update(flatten(state.model.parameters()))
    state.restore(state.to_bytes())
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
