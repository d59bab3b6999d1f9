"""MLLess's significance filters: what is sent and what is kept, and that both outlive an invocation."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slslab_workers.architecture import architectures
from slslab_workers.mlless.filters import Coordinate, Filter, NormRatio, make_filter
from slslab_workers.mlless.settings import check
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import gradients
from slslab_workers.training.optimisers import Sgd
from slslab_workers.training.state import WorkerState

LR = 0.1
NUMBERS = st.floats(-100, 100, width=32)
THRESHOLDS = st.sampled_from([0.0, 0.01, 0.5, 1.0, 3.0, 100.0, math.inf])


def make_plan(**options: Any) -> Plan:
    return Plan("run", "mlless", "lenet", "digits", 16, 2, 1024, options=architectures()["mlless"].complete(options))


def make_state(weights: list[float]) -> WorkerState:
    model = torch.nn.Linear(len(weights), 1, bias=False)
    gradients.write_parameters(model, torch.tensor(weights))
    return WorkerState(model, Sgd(make_plan(), model.parameters()))


def residual(state: WorkerState) -> torch.Tensor:
    """What is kept, (P,), zero if nothing is."""
    parameters = sum(parameter.numel() for parameter in state.model.parameters())
    return state.memory.get("residual", torch.zeros(parameters))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[float], list[list[float]]]:
    """Weights (P,), and gradients (T, P)."""
    parameters = draw(st.integers(1, 6))
    vectors = st.lists(NUMBERS, min_size=parameters, max_size=parameters)
    return draw(vectors), draw(st.lists(vectors, min_size=1, max_size=12))


@settings(max_examples=200, deadline=None)
@given(histories(), THRESHOLDS, st.sampled_from([NormRatio, Coordinate]))
def test_what_was_sent_and_what_is_kept_is_the_sum_of_all_gradients(
    history: tuple[list[float], list[list[float]]], threshold: float, kind: Any
) -> None:
    """Up to the rounding of float32 sums: 24 bits, at most 12 additions of at most 100 each."""
    weights, steps = history
    state, chosen = make_state(weights), kind(threshold, LR)
    sent = torch.zeros(len(weights), dtype=torch.float64)
    for step, gradient in enumerate(steps):
        update = chosen.significant(state, torch.tensor(gradient), step)
        if update is not None:
            assert len(update), "an update is never empty"
            sent += chosen.decode(update, len(weights))
    total = torch.tensor(steps, dtype=torch.float64).sum(0)
    torch.testing.assert_close(sent + residual(state), total, rtol=0, atol=12 * 12 * 100 * 2.0**-24)
    if threshold == 0:
        assert not residual(state).any()
    if threshold == math.inf:
        assert not sent.any()


@pytest.mark.parametrize("chosen", [kind(0.0, LR) for kind in (Filter, NormRatio, Coordinate)])
def test_threshold_zero_sends_every_gradient_as_it_is(chosen: Filter) -> None:
    """Even a subnormal number, and from weights of zero; the gradient itself is left alone."""
    state = make_state([0.0, 1.0, -2.0, 3.0])
    for step in range(3):
        gradient = torch.tensor([1.0, 1e-44, -(10.0**30), 0.1]) * (step + 1)
        before = gradient.clone()
        update = chosen.significant(state, gradient, step)
        assert update is not None
        assert torch.equal(chosen.decode(update.clone(), 4), before)
        assert torch.equal(gradient, before)
    assert not residual(state).any()


def test_norm_ratio_sends_all_once_the_sum_of_ratios_is_above_the_threshold() -> None:
    """‖w‖ = 5; ‖a‖ is 1, 2, 3, …, so V is 0.2, 0.6, 1.2."""
    state, chosen, gradient = make_state([3.0, 4.0]), NormRatio(1.0, LR), torch.tensor([0.6, 0.8])
    for _ in range(2):
        for step in range(2):
            assert chosen.significant(state, gradient, step) is None
        assert float(state.memory["significance"]) == pytest.approx(0.6, rel=1e-6)
        update = chosen.significant(state, gradient, 2)
        assert update is not None
        torch.testing.assert_close(update, 3 * gradient)
        assert state.memory == {}


def test_norm_ratio_of_a_model_of_zeros_is_finite_and_sends() -> None:
    update = NormRatio(1.0, LR).significant(make_state([0.0]), torch.tensor([1e-3]), 0)
    assert update is not None
    assert update.tolist() == pytest.approx([1e-3])


def test_coordinates_are_sent_by_their_relative_change_and_the_threshold_sinks() -> None:
    """lr · |r| > v / √(t + 1) · |w|, with v = 1 and w = (1, 10): 0.1 · 12 > 1, but 1.2 < 10 and 2.4 < 10 / √2."""
    state, chosen = make_state([1.0, 10.0]), Coordinate(1.0, LR)
    first = chosen.significant(state, torch.tensor([12.0, 12.0]), 0)
    assert first is not None
    assert chosen.decode(first, 2).tolist() == [12.0, 0.0]
    assert chosen.significant(state, torch.tensor([-7.0, 12.0]), 1) is None
    assert residual(state).tolist() == [-7.0, 24.0]
    late = chosen.significant(state, torch.tensor([-1.0, 0.0]), 99)
    assert late is not None
    assert chosen.decode(late, 2).tolist() == [-8.0, 24.0], "in step 99 a tenth of the weight is enough"


def test_coordinates_travel_with_their_indices_bit_for_bit() -> None:
    """Indices of any size, as bits of floats, through bytes: 8 bytes a coordinate."""
    parameters = 3_000_001
    state = WorkerState(torch.nn.Linear(parameters, 1, bias=False), Sgd(make_plan(), []))
    gradients.write_parameters(state.model, torch.ones(parameters))
    gradient = torch.zeros(parameters)
    chosen_indices = [0, 1, 255, 8_388_609 % parameters, 2_999_999, 3_000_000]
    gradient[chosen_indices] = torch.arange(1.0, 7.0)
    chosen = Coordinate(0.0, LR)
    update = chosen.significant(state, gradient, 0)
    assert update is not None
    wire = bytearray(gradients.as_bytes(update))
    assert len(wire) == 8 * 6
    assert torch.equal(chosen.decode(gradients.from_bytes(wire), parameters), gradient)


@pytest.mark.parametrize("name", ["none", "norm-ratio", "coordinate"])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_state_of_a_filter_survives_a_checkpoint_bit_for_bit(name: str, optimiser: str) -> None:
    """Residual, significance and moments; and the steps after it are the same as without it."""
    plan = make_plan(filter=name, threshold=0.05, optimiser=optimiser)
    chosen = make_filter(plan)
    draws = torch.Generator().manual_seed(7)
    state, resumed = WorkerState.fresh(plan, 0), WorkerState.fresh(plan, 0)
    sent, remembered = 0, 0

    def step(one: WorkerState, gradient: torch.Tensor, position: int) -> bool:
        update = chosen.significant(one, gradient, position)
        if update is None:
            return False
        gradients.set_gradient(one.model, chosen.decode(update, gradient.numel()))
        one.optimiser.step()
        return True

    for position in range(6):
        gradient = torch.randn(61_706, generator=draws) * 1e-3
        sent += step(state, gradient.clone(), position)
        step(resumed, gradient, position)
        other = WorkerState.fresh(make_plan(filter=name, optimiser=optimiser), 3)
        other.restore(resumed.to_bytes())
        assert other.memory.keys() == state.memory.keys()
        assert other.to_bytes() == state.to_bytes()
        resumed = other
        remembered += bool(state.memory)
    assert sent, "the filter let something through"
    assert bool(remembered) == (name != "none")


@pytest.mark.parametrize("option", ["threshold", "end-threshold", "max-time"])
@pytest.mark.parametrize("value", [-1.0, math.nan])
def test_what_cannot_be_is_refused(option: str, value: float) -> None:
    with pytest.raises(PlanError, match=option):
        check(make_plan(**{option: value}))


def test_an_infinite_threshold_travels_in_json() -> None:
    """JSON has no infinite numbers, and Lambda refuses what is not JSON."""
    document = make_plan(threshold=math.inf).to_document()
    assert document["options"]["threshold"] == "inf"
    chosen: Any = make_filter(Plan.from_document(document))
    assert chosen._threshold == math.inf
