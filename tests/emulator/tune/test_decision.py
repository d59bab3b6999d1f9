"""Which of several sizes is best, and which can't be told apart: laws, and cases by hand."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slslab.tune.decision import GOALS, Best, Estimate, best, excess, in_time, may_win


def size(memory_mb: int, seconds: float, cost: float, own: float = 1.01, shared: float = 1.0) -> Estimate:
    """A size with an error of its own and one that all share, as factors of the ends of their ranges."""
    plain = {"seconds": seconds, "cost": cost}
    moved = {f"own {memory_mb}": own, "shared": shared}
    ends = {
        name: tuple({figure: value * by for figure, value in plain.items()} for by in (1 / factor, factor))
        for name, factor in moved.items()
    }
    return Estimate(memory_mb, True, plain, {name: (low, high) for name, (low, high) in ends.items()})


def test_a_clear_winner_by_each_goal() -> None:
    sizes = [size(128, 8, 1), size(512, 2, 1.2), size(1769, 0.6, 3)]
    assert best(sizes, "cheapest") == Best(128, [])
    assert best(sizes, "fastest") == Best(1769, [])
    assert best(sizes, "balanced") == Best(1769, [])


def test_shared_errors_cancel_and_own_ones_do_not() -> None:
    assert size(128, 1, 1, shared=3).ratio(size(256, 1, 2, shared=3), "cheapest") == pytest.approx(
        (0.493, 0.507), rel=1e-2
    )
    low, high = size(128, 1, 1, own=2).ratio(size(256, 1, 1, own=2), "cheapest")
    assert (low, high) == pytest.approx((2 ** -math.sqrt(2), 2 ** math.sqrt(2)))


def test_equal_sizes_are_named_and_the_smaller_cost_wins() -> None:
    sizes = [size(512, 2, 1.0, own=1.1), size(1024, 1, 1.05, own=1.1), size(1769, 0.99, 1.5, own=1.1)]
    assert best(sizes, "cheapest") == Best(512, [1024])
    # The two fastest take equally long.
    assert best(sizes, "fastest") == Best(1024, [1769])


def test_of_equal_balances_the_smaller_wins() -> None:
    sizes = [size(512, 2, 1.0, own=1.3), size(1024, 1, 1.8, own=1.3)]
    assert best(sizes, "balanced") == Best(1024, [512])


def test_of_equal_costs_the_larger_memory_size_wins() -> None:
    sizes = [size(512, 2, 1.0, own=1.1), size(1024, 1, 1.005, own=1.1)]
    assert best(sizes, "cheapest") == Best(1024, [512])


def test_a_size_that_is_surely_worse_by_all_goals_may_not_win() -> None:
    sizes = [size(512, 1, 1), size(1024, 1, 2)]
    assert not may_win(size(2048, 1.2, 4), sizes)
    assert may_win(size(256, 1.2, 1.1, own=1.5), sizes), "it may cost less"
    assert may_win(size(2048, 0.9, 4), sizes), "it is faster"
    assert not may_win(size(2048, 1.0, 4, own=1.5), sizes), "it costs more, and isn't faster as far as known"
    threads = replace(
        size(2048, 1.0, 4, own=1.5), moved={"threads": ({"seconds": 0.5, "cost": 2.0}, {"seconds": 1.0, "cost": 4.0})}
    )
    assert may_win(threads, sizes), "more threads may run at once"


def test_a_deadline_is_kept_by_the_upper_end() -> None:
    assert [one.memory_mb for one in in_time([size(128, 1.0, 1, own=1.2), size(256, 0.5, 1)], 1.1)] == [256]


def test_without_sizes_there_is_no_best() -> None:
    assert best([], "cheapest") is None


FACTOR = st.floats(1.0, 3.0)
SIZES = st.lists(
    st.builds(size, st.integers(128, 10240), st.floats(0.01, 100), st.floats(0.01, 100), FACTOR, FACTOR),
    min_size=1,
    max_size=6,
    unique_by=lambda one: one.memory_mb,
)


@given(SIZES, st.sampled_from(sorted(GOALS)))
def test_the_best_is_the_least_or_alike(sizes: list[Estimate], goal: str) -> None:
    """Every size that isn't named as alike is surely worse than the least."""
    found = best(sizes, goal)
    assert found is not None
    least = min(sizes, key=lambda one: one.value(goal))
    named = {found.memory_mb, *found.alike}
    assert least.memory_mb in named
    assert all(one.ratio(least, goal)[0] > 1 for one in sizes if one.memory_mb not in named)
    assert may_win(next(one for one in sizes if one.memory_mb == found.memory_mb), sizes)


@given(SIZES)
def test_a_range_holds_its_value(sizes: list[Estimate]) -> None:
    for one in sizes:
        low, high = one.range("seconds")
        assert low <= one.plain["seconds"] * (1 + 1e-9)
        assert one.plain["seconds"] <= high * (1 + 1e-9)
        low, high = excess(one, sizes)
        assert low <= high
