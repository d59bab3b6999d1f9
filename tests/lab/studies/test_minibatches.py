"""What one minibatch took, by hand: of workers who train on, and of functions that live for one."""

import math
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab.replay.platform import platform
from tests.lab.replay.recordings import write_run

from slslab.errors import RunError
from slslab.run.run import Run
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.programs.recorded import make_program
from slslab_lab.replay.programs.recording import read_recording
from slslab_lab.studies.minibatches import (
    Call,
    estimate,
    mean_of,
    measured_calls,
    played_calls,
)


@pytest.fixture
def recording(tmp_path: Path) -> Run:
    """Two workers, two epochs of one minibatch; worker 0 computes 100 ms and puts 1 MB, worker 1 200 ms and gets it."""
    return read_recording(write_run(tmp_path / "run"))


def rounded(calls: Iterable[Call]) -> list[tuple[int, int, float, bool]]:
    return sorted((call.worker, call.epoch, round(call.seconds, 6), call.first) for call in calls)


def test_measured(recording: Run) -> None:
    assert rounded(measured_calls(recording)) == [
        (0, 0, 0.105, True),
        (0, 1, 0.105, False),
        (1, 0, 0.205, True),
        (1, 1, 0.205, False),
    ]


def test_played(recording: Run) -> None:
    """A put of 1 MB takes 10 + 10 ms there, a get 5 + 10 ms."""
    timeline = play(make_program(recording), platform())
    assert rounded(played_calls(timeline, recording)) == [
        (0, 0, 0.12, True),
        (0, 1, 0.12, False),
        (1, 0, 0.215, True),
        (1, 1, 0.215, False),
    ]


def test_estimate(recording: Run) -> None:
    """One step isn't a first step: the mean of its two workers, without an interval."""
    found = estimate(measured_calls(recording), 24)
    assert (round(found.value, 6), found.low, found.high, found.samples) == (0.155, None, None, 1)


def test_estimate_needs_more_than_first_ones() -> None:
    with pytest.raises(RunError, match="first one"):
        estimate([Call(0, 0, 0, 1.0, first=True)], 24)


def test_interval() -> None:
    """Samples 1, 2, 3 of 24: mean 2, deviation 1, t(2) = 4.302653, and √(1 - 3/24) for the finite epoch."""
    found = mean_of([1.0, 2.0, 3.0], 24)
    half = 4.302653 / math.sqrt(3) * math.sqrt(21 / 24)
    assert found.value == 2
    assert found.low == pytest.approx(2 - half, rel=1e-6)
    assert found.high == pytest.approx(2 + half, rel=1e-6)


def test_all_samples_have_no_interval() -> None:
    assert mean_of([1.0, 2.0, 3.0], 3).low is None


@given(st.lists(st.floats(0.001, 1000), min_size=2, max_size=23))
def test_interval_holds_mean(samples: list[float]) -> None:
    found = mean_of(samples, 24)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value <= found.high
    assert min(samples) * (1 - 1e-9) <= found.value <= max(samples) * (1 + 1e-9)
