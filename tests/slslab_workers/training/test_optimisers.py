"""Optimisers by name: each against its rule, written out."""

from typing import Any

import pytest
import torch

from slslab_workers.plan import Plan, PlanError
from slslab_workers.training.optimisers import OPTIMISERS, make_optimiser


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


def test_an_unknown_optimiser_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(PlanError, match="There is no optimiser 'lion'") as refused:
        stepped((), optimiser="lion")
    assert refused.value.hint == f"choose {', '.join(OPTIMISERS)}."
