"""MLLess's scale-in auto-tuner: knee, curves and decisions against known curves and a clock that tests turn."""

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import curve_fit, nnls

from slslab_workers.mlless import tuner
from slslab_workers.mlless.schedule import Schedule
from slslab_workers.mlless.tuner import Decision, Knee, Tuner

STEP_S = {4: 1.0, 3: 1.1, 2: 1.2, 1: 1.3}


def learning(step: int) -> float:
    """A loss that falls from 2.5 towards 0.5 and is flat after some hundred steps."""
    return 0.5 + 2 * math.exp(-step / 30)


class Clock:
    """Time, s, as far as the test lets it go."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def decided(
    losses: Any, steps: int, *, threshold: float = 15.0, interval_s: float = 20.0, workers: int = 4, seconds: Any = None
) -> Iterator[Decision]:
    """Yield the decisions over these steps; their duration depends on the remaining workers."""
    clock = Clock()
    tuned = Tuner(threshold, interval_s, workers, clock)
    for step in range(steps):
        took = STEP_S[workers] if seconds is None else seconds(step)
        clock.now += took or 0.0
        tuned.record(step, losses(step), took)
        if (decision := tuned.decide(step)) is not None:
            yield decision
            workers -= decision.remove


def run(losses: Any, steps: int, **options: Any) -> list[Decision]:
    """Return all decisions over these steps."""
    return list(decided(losses, steps, **options))


def second(losses: Any, **options: Any) -> Decision:
    """Return the second decision."""
    return next(islice(decided(losses, 1000, **options), 1, None))


@cache
def first_step() -> int:
    """Return the step of the first decision."""
    return next(decided(learning, 1000)).step


def test_nobody_leaves_before_the_knee_and_the_first_after_it_without_a_reason() -> None:
    decisions = run(learning, 1000)
    first = decisions[0]
    slope = np.diff(tuner.smoothed([learning(step) for step in range(first.step + 1)]))
    flat = int(np.argmax(tuner.smoothed(slope) > tuner.KNEE_SLOPE))
    assert 0 < flat == first.knee <= first.step
    assert (first.remove, first.workers, first.r, first.loss_base) == (True, 4, None, None)
    assert first.steps_per_second == pytest.approx(1.0)
    assert run(learning, first.step) == []


def test_the_loss_has_not_flattened_as_long_as_it_falls() -> None:
    assert run(lambda step: 10 - 0.001 * step, 2000) == []


def test_never_below_one_worker_and_never_twice_within_the_interval() -> None:
    decisions = run(learning, 2000, threshold=1e9, interval_s=20.0)
    assert [decision.workers for decision in decisions] == [4, 3, 2]
    assert all(decision.remove for decision in decisions)
    for one, two in pairwise(decisions):
        elapsed_s = (two.step - one.step) * STEP_S[two.workers]
        assert 20 <= elapsed_s < 20 + STEP_S[two.workers]
    assert run(learning, 2000, interval_s=1e9) == []
    assert run(learning, 2000, workers=1) == []


@pytest.mark.parametrize(("offset", "removes"), [(1.05, True), (1.1, True), (1.2, False), (3.0, False)])
def test_later_ones_leave_if_the_projected_loss_is_worse_by_less_than_the_threshold(
    offset: float, removes: bool
) -> None:
    """After the first removal, the loss stays at this multiple of where all workers' curve ends."""
    knee = first_step()
    decision = second(lambda step: learning(step) if step <= knee else offset * learning(step + 600))
    assert decision.remove is removes
    assert decision.r is not None
    assert decision.loss_base is not None
    assert decision.loss_now is not None
    assert decision.r == pytest.approx(100 * (decision.loss_base - decision.loss_now) / decision.loss_base)
    assert decision.loss_base == pytest.approx(0.5, rel=0.03)
    assert decision.loss_now == pytest.approx(0.5 * offset, rel=1e-3)
    assert removes == (decision.r > -15)


def test_a_decision_to_keep_all_is_one_too_for_the_interval() -> None:
    knee = first_step()
    decisions = run(lambda step: learning(step) if step <= knee else 3.0, knee + 120)
    assert [decision.remove for decision in decisions] == [True] + [False] * (len(decisions) - 1)
    assert len(decisions) == 1 + int(120 * STEP_S[3] // 20.9)


@pytest.mark.parametrize(
    "losses",
    [
        lambda _step: 1.0,
        lambda _step: 0.0,
        lambda step: 1.0 + step,
        lambda _step: math.nan,
        lambda _step: math.inf,
        lambda step: learning(step) if step < 40 else math.nan,
    ],
)
def test_nobody_leaves_on_nonsense(losses: Any) -> None:
    assert run(losses, 500, threshold=1e9, interval_s=0.0) == []


def test_after_the_first_removal_a_loss_that_is_no_number_or_rises_decides_nothing_or_no() -> None:
    knee = first_step()
    assert len(run(lambda step: learning(step) if step <= knee else math.nan, 1000, threshold=1e9)) == 1
    rising = run(lambda step: learning(step) if step <= knee else 1.0 + step, 1000)
    assert len(rising) > 5
    assert not any(decision.remove for decision in rising[1:])


def test_the_clock_alone_does_not_remove_while_there_are_too_few_points() -> None:
    """The interval is over at once, but a curve of four coefficients needs four steps; the speed is of four workers."""
    assert second(learning, threshold=1e9, interval_s=0.0).step - first_step() == tuner.MIN_POINTS


@pytest.mark.parametrize("seconds", [lambda _step: None, lambda _step: math.nan, lambda step: (step % 2 + 0.5) * 2])
def test_without_a_regular_speed_nothing_is_decided(seconds: Any) -> None:
    """The last one alternates between 1 s and 3 s: each is more than 5 % from their median."""
    assert run(learning, 500, seconds=seconds, interval_s=0.0) == []


def test_what_it_knows_outlives_an_invocation() -> None:
    """A tuner that goes through JSON after every step decides the same."""
    clock, other_clock = Clock(), Clock()
    one = Tuner(15.0, 20.0, 4, clock)
    two = Tuner(15.0, 20.0, 4, other_clock)
    decisions = 0
    for step in range(400):
        clock.now = other_clock.now = clock.now + 1
        for tuned in (one, two):
            tuned.record(step, learning(step), 1.0 + step / 1e5)
        expected = one.decide(step)
        assert two.decide(step) == expected
        decisions += expected is not None
        two = Tuner.from_document(json.loads(json.dumps(two.to_document())), 15.0, 20.0, other_clock)
    assert decisions >= 3


def test_steps_right_after_a_removal_do_not_tell_the_speed() -> None:
    """Four steps of 100 s after the first removal."""
    knee = first_step()
    decision = second(learning, seconds=lambda step: 100.0 if knee < step <= knee + 4 else 1.0, interval_s=450.0)
    assert decision.steps_per_second == pytest.approx(1.0)


def test_a_knee_must_stay_the_best_candidate() -> None:
    """Found at the sixth look after its index was last surpassed; a later dip withdraws it before that."""
    losses = [learning(step) for step in range(400)]
    knee, candidates = Knee(), []
    for count in range(1, 400):
        knee.look(losses[:count])
        candidates.append(knee.candidate)
        if knee.found is not None:
            break
    assert knee.found is not None
    assert len(set(candidates[-6:])) == 1 < len(set(candidates[-7:])), "five looks after the first"
    assert (knee.looks, knee.found) == (5, candidates[-1])
    withdrawn = Knee(candidate=3, looks=4)
    withdrawn.look([3.0, 2.0, 1.0, 0.0])
    assert (withdrawn.candidate, withdrawn.found) == (None, None)


def test_smoothing_is_the_mean_of_the_weighted_averages_from_both_ends() -> None:
    """Against the definition: weights (1 - 2/21)^age."""
    values = [3.0, -1.0, 4.0, 1.0, -5.0]

    def average(last: int, direction: int) -> float:
        reached = values[: last + 1][::-1] if direction > 0 else values[last:]
        weights = [(19 / 21) ** age for age in range(len(reached))]
        return sum(w * v for w, v in zip(weights, reached, strict=True)) / sum(weights)

    expected = [(average(i, 1) + average(i, -1)) / 2 for i in range(5)]
    assert tuner.smoothed(values) == pytest.approx(expected)


def test_times_far_from_the_rolling_median_are_left_out() -> None:
    regular = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.02, 1.0, 1.01, 1.0]
    spikes = regular.copy()
    spikes[3], spikes[11] = 2.0, 0.5
    assert tuner.without_outliers(regular).tolist() == regular
    assert tuner.without_outliers(spikes).tolist() == regular[:3] + regular[4:11]
    assert tuner.without_outliers([1.0, 9.0]).tolist() == [1.0, 9.0], "ten make a median"
    drifting = [float(n) for n in range(100, 140)]
    kept = [
        n
        for i, n in enumerate(drifting)
        if abs(n - statistics.median(drifting[max(i - 9, 0) : max(i, 9) + 1])) <= n / 20
    ]
    assert tuner.without_outliers(drifting).tolist() == kept


def test_the_speed_curve_recovers_known_times_and_extrapolates() -> None:
    found = tuner.fit_seconds({workers: [0.3 + 0.2 * (workers - 1)] * 12 for workers in (4, 3)})
    assert found == pytest.approx((0.3, 0.2))
    assert tuner.fit_seconds({4: [2.0] * 3}) == pytest.approx((2.0, 0.0))
    assert tuner.fit_seconds({4: [1.0] * 3, 2: [5.0] * 3}) == pytest.approx((3.0, 0.0)), "more workers are never faster"
    assert tuner.fit_seconds({}) is None


COEFFICIENTS = st.tuples(st.floats(0.01, 1), st.floats(0.2, 2), st.floats(0.4, 2), st.floats(0, 0.8))


@settings(max_examples=40, deadline=None)
@given(COEFFICIENTS, st.integers(20, 200))
def test_the_base_curve_is_found_again(coefficients: tuple[float, float, float, float], steps: int) -> None:
    """Its values, also ahead; the coefficients themselves may trade against each other."""
    x = np.arange(steps, dtype=float)
    y, _ = tuner.base_curve(np.array(coefficients), x)
    found = tuner.fit_base(range(steps), y.tolist())
    assert found is not None
    assert found.min() >= 0
    assert tuner.base_curve(found, x)[0] == pytest.approx(y, rel=0.02)
    ahead = np.array([steps + 10.0])
    assert tuner.base_curve(found, ahead)[0] == pytest.approx(
        tuner.base_curve(np.array(coefficients), ahead)[0], rel=0.02
    )


def test_derivatives_are_those_of_the_curves() -> None:
    x, at = np.array([0.0, 0.1, 1.0, 7.0]), np.array([0.3, 0.4, 1.3, 0.2])
    for curve in (tuner.base_curve, tuner.recent_curve):
        _, derivatives = curve(at, x)
        for index in range(4):
            ahead, behind = at.copy(), at.copy()
            ahead[index] += 1e-6
            behind[index] -= 1e-6
            assert derivatives[:, index] == pytest.approx((curve(ahead, x)[0] - curve(behind, x)[0]) / 2e-6, abs=1e-6)


def test_noisy_curves_are_fitted_as_well_as_scipy_does() -> None:
    """SciPy's trust region of the same weighted error, from its own start; runs that it gives up are left out."""
    generator = np.random.default_rng(0)
    compared = 0
    for _ in range(12):
        steps, first = int(generator.integers(10, 150)), int(generator.integers(1, 800))
        x = np.arange(first, first + steps, dtype=float)
        for name, fit in (("base_curve", tuner.fit_base), ("recent_curve", tuner.fit_recent)):
            curve = getattr(tuner, name)
            y = 0.5 + 1.5 * np.exp(-(x - first) / 40) + generator.normal(0, 0.02, steps)
            weights = np.arange(1, steps + 1) if name == "base_curve" else np.ones(steps)
            found = fit(x.astype(int).tolist(), y.tolist())
            assert found is not None

            def value(x: Any, *at: float, curve: Any = curve) -> Any:
                return curve(np.array(at), x)[0]

            try:
                with np.errstate(all="ignore"):
                    other, _ = curve_fit(value, x, y, sigma=1 / weights, p0=[0.1, 0.1, 0.1, 0.1], bounds=(0, np.inf))
            except RuntimeError:
                continue
            errors = [float(np.sum((weights * (y - value(x, *at))) ** 2)) for at in (found, other)]
            assert errors[0] <= 1.02 * errors[1]
            compared += 1
    assert compared > 8


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3), st.integers(3, 8), st.integers(0, 10_000))
def test_non_negative_least_squares_is_scipys(count: int, rows: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    columns, y = generator.normal(size=(rows, count)), generator.normal(size=rows)
    assert tuner.non_negative_least_squares(columns, y) == pytest.approx(nnls(columns, y)[0], abs=1e-8)


@pytest.mark.parametrize("losses", [[], [1.0], [1.0, 0.5], [2.0, 1.0, 0.5]])
def test_too_few_points_are_no_curve(losses: list[float]) -> None:
    steps = list(range(len(losses)))
    assert tuner.fit_base(steps, losses) is None
    assert tuner.fit_recent(steps, losses) is None


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=4, max_size=30))
def test_any_losses_give_a_curve_without_negative_coefficients(losses: list[float]) -> None:
    """Some have no curve of all workers: no exponent brings it near them."""
    steps = list(range(5, 5 + len(losses)))
    base, recent = tuner.fit_base(steps, losses), tuner.fit_recent(steps, losses)
    assert recent is not None
    for found in (recent, *(() if base is None else (base,))):
        assert np.isfinite(found).all()
        assert found.min() >= 0


def test_the_supervisor_needs_neither_torch_nor_scipy() -> None:
    code = "import sys, slslab_workers.mlless.supervisor; print(sorted({'torch', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def naive(workers: int, batches: int, removals: dict[int, int], steps: int) -> list[tuple[int, int, dict[int, int]]]:
    """Epoch, step in it and minibatches by rank of each step, counted one by one."""
    minibatches, left = workers * batches, list(range(workers))
    numbers, epoch, step, told = {rank: rank for rank in left}, 0, 0, []
    for position in range(steps):
        told.append((epoch, step, {rank: numbers[rank] for rank in left}))
        numbers = {rank: (number + len(left)) % minibatches for rank, number in numbers.items()}
        step += 1
        if step == math.ceil(minibatches / len(left)):
            epoch, step = epoch + 1, 0
        if position in removals:
            left.remove(removals[position])
    return told


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(1, 6), st.integers(1, 7))
def test_schedule_is_what_counting_step_by_step_gives(data: Any, workers: int, batches: int) -> None:
    ranks = data.draw(st.permutations(range(workers)))[: data.draw(st.integers(0, workers - 1))]
    positions = sorted(data.draw(st.lists(st.integers(0, 40), min_size=len(ranks), max_size=len(ranks), unique=True)))
    removals = list(zip(positions, ranks, strict=True))
    told = naive(workers, batches, dict(removals), 80)
    schedule = Schedule(workers, batches, removals)
    for position, (epoch, step, minibatches) in enumerate(told):
        assert schedule.place(position) == (epoch, step)
        assert {rank: schedule.minibatch(rank, position) for rank in minibatches} == minibatches
        if step == 0:
            assert schedule.start(epoch) == schedule.actual(epoch * batches) == position
    assert set(schedule.ranks) == set(told[-1][2])
    grown = Schedule(workers, batches)
    for removal in removals:
        grown = grown.after(*removal)
    assert grown.removals == schedule.removals


def test_without_removals_the_schedule_is_the_partition_itself() -> None:
    schedule = Schedule(4, 5)
    for position in range(23):
        assert schedule.place(position) == divmod(position, 5)
        assert schedule.actual(position) == position
        assert [divmod(schedule.minibatch(rank, position), 4) for rank in range(4)] == [
            (position % 5, r) for r in range(4)
        ]
