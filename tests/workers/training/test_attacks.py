"""What Byzantine workers send: against the papers' formulas and EPFL's byzfl, who attacks, and what is refused."""

import math
from typing import Any

import pytest
import torch

from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import attacks
from slslab_workers.training.attacks import Attack

HONEST = [torch.tensor([1.0, 2.0]), torch.tensor([2.0, 6.0]), torch.tensor([3.0, 1.0])]


def plan(attack: str, workers: int = 5, model: str = "lenet", **options: Any) -> Plan:
    shape: dict[str, Any] = {"dataset": "digits", "batch_size": 8, "batches": 2, "memory_mb": 1024}
    options = {"attack": attack, **options}
    return Plan(run="run", architecture="gpu", workers=workers, model=model, **shape, options=options)


def attack(name: str, model: str = "lenet") -> Attack:
    return Attack.of(plan(name, model=model))


@pytest.mark.parametrize(
    ("name", "expected"), [("sign-flip", -10.0), ("scaled", 100.0), ("zero", 0.0), ("inf", math.inf)]
)
def test_attackers_send_something_else_and_the_others_their_gradient(name: str, expected: float) -> None:
    made, gradient = attack(f"{name}:1,4"), torch.ones(3)
    assert made.gradient(0, gradient, 0) is gradient
    for rank in (1, 4):
        assert made.gradient(rank, gradient, 0).tolist() == [expected] * 3
    assert gradient.tolist() == [1.0] * 3


def test_nan_and_noise() -> None:
    assert attack("nan:1").gradient(1, torch.ones(3), 0).isnan().all()
    made, gradient = attack("gaussian:1,2"), torch.ones(10_000)
    noise = made.gradient(1, gradient, 0)
    assert float(noise.mean()) == pytest.approx(0, abs=4)
    assert float(noise.std()) == pytest.approx(100, rel=0.05)
    assert torch.equal(noise, made.gradient(1, gradient, 0)), "equal seeds give equal noise"
    assert not torch.equal(noise, made.gradient(2, gradient, 0))
    assert not torch.equal(noise, made.gradient(1, gradient, 1))


def test_labels_are_flipped_before_the_gradient_is_computed() -> None:
    labels = torch.tensor([0, 3, 9])
    assert attack("label-flip:1").targets(1, labels).tolist() == [9, 6, 0]
    assert attack("label-flip:1").targets(0, labels) is labels
    assert attack("sign-flip:1").targets(1, labels) is labels
    assert attack("label-flip:1", "lr-30").targets(1, torch.tensor([0, 1])).tolist() == [1, 0]
    gradient = torch.ones(3)
    assert attack("label-flip:1").gradient(1, gradient, 0) is gradient


def test_alie_and_ipm_are_of_the_honest() -> None:
    """The mean is (2, 3); the deviations, with n - 1, are 1 and √7."""
    made = attack("alie:3").of_honest(HONEST)
    torch.testing.assert_close(made, torch.tensor([2 + 1.5, 3 + 1.5 * math.sqrt(7)]))
    torch.testing.assert_close(attack("ipm:3").of_honest(HONEST), torch.tensor([-1.0, -1.5]))
    assert attack("alie:3").omniscient
    assert not attack("nan:3").omniscient
    assert attack("ipm:3").gradient(3, HONEST[0], 0) is HONEST[0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("flip:1", "There is no attack 'flip'"),
        ("sign-flip", "does not say which ranks attack"),
        ("sign-flip:x", "does not say which ranks attack"),
        ("sign-flip:5", "There is no worker 5"),
        ("ipm:0,1,2,3,4", "fewer than 1 honest"),
        ("alie:0,1,2,3", "fewer than 2 honest"),
    ],
)
def test_attacks_that_cannot_be_are_refused(name: str, message: str) -> None:
    with pytest.raises(PlanError, match=message) as refused:
        attacks.check(plan(name))
    assert refused.value.hint


def test_models_are_not_attacked() -> None:
    with pytest.raises(PlanError, match="Attacks are on gradients"):
        attacks.check(plan("sign-flip:1", algorithm="ma"))
    attacks.check(plan("none", algorithm="ma"))
    assert Attack.of(plan("none")).ranks == ()
