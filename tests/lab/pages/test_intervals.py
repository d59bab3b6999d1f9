"""Intervals of differences of means, by hand and by their symmetry."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slslab_lab.pages.intervals import step_samples, welch

values = st.lists(st.floats(1, 100, allow_nan=False), min_size=2, max_size=20)


def test_welch_by_hand() -> None:
    """Three values each of variance 1: standard error sqrt(1/3 + 1/3), 4 degrees of freedom, for which tables of
    Student's t have 2.776."""
    found = welch([1, 2, 3], [3, 4, 5])
    assert found is not None
    assert (found.first, found.second, found.difference, found.samples) == (2, 4, 2, (3, 3))
    assert found.high - found.difference == pytest.approx(2.776 * (2 / 3) ** 0.5, rel=1e-3)
    assert found.low == pytest.approx(4 - found.high)
    assert not found.significant
    further = welch([1, 2, 3], [4, 5, 6])
    assert further is not None
    assert further.significant


def test_nothing_is_known_of_single_values_and_of_such_that_do_not_vary() -> None:
    assert welch([1], [1, 2]) is None
    assert welch([2, 2], [3, 3]) is None
    assert welch([2, 2], [3, 4]) is not None


@settings(deadline=None)
@given(values, values)
def test_the_other_way_round_the_sign_changes(first: list[float], second: list[float]) -> None:
    there, back = welch(first, second), welch(second, first)
    assert (there is None) == (back is None)
    if there is not None and back is not None:
        assert there.difference == pytest.approx(-back.difference)
        assert there.low <= there.difference <= there.high or there.low != there.low
        assert there.low == pytest.approx(-back.high, nan_ok=True)


def test_samples_are_of_workers_and_minibatches_on_the_lambda_clock() -> None:
    def event(worker: int, step: int, phase: str, seconds: float, **more: Any) -> dict[str, Any]:
        base = {"worker": worker, "epoch": 0, "step": step, "phase": phase, "op": "compute", "start_ns": 0}
        return base | {"end_ns": int(seconds * 1e9), "host_delay_ns": 0} | more

    events = [
        event(0, 0, "compute", 3, host_delay_ns=10**9),
        event(0, 0, "fetch", 1),
        event(0, 1, "compute", 4),
        event(1, 0, "compute", 5),
        event(1, 0, "other", 9, op="transition"),
        event(0, -1, "compute", 7),
        event(-1, 0, "compute", 7),
    ]
    assert step_samples(events) == {"compute": [2, 4, 5], "fetch": [1, 0, 0], "whole step": [3, 4, 5]}
    assert step_samples([]) == {}
