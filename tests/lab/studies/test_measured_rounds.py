"""Rounds as they were measured, of traces made by hand and of committed ones."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.lab.replay.recordings import TRACES, write_run

from slslab.errors import RunError
from slslab_lab.replay.programs.recording import read_recording
from slslab_lab.studies.measured_rounds import Exchange, describe, measured_rounds, read_exchanges
from slslab_lab.studies.minibatches import Estimate

S = 1_000_000_000


def event(worker: int, step: int, op: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    base = {"worker": worker, "epoch": 0, "step": step, "op": op, "phase": "synchronise", "failed": False}
    return {**base, "start_ns": round(start * S), "end_ns": round(end * S), **more}


def rounds(*events: dict[str, Any]) -> tuple[tuple[float, float], ...]:
    recording: Any = SimpleNamespace(events=events, plan=SimpleNamespace(run="run", workers=2))
    return measured_rounds(recording)


FIRST = (event(0, 0, "object.put", 0, 9), event(1, 0, "object.put", 0, 9))


def test_a_round_is_from_the_last_workers_begin_to_the_last_sum() -> None:
    found = rounds(
        *FIRST,
        event(0, 1, "compute", 9, 10, phase="compute"),
        event(0, 1, "object.put", 10, 11),
        event(1, 1, "object.put", 13, 14),
        event(0, 1, "object.get", 14, 15),
        event(0, 1, "object.put", 15, 16),
        event(1, 1, "object.get", 14, 14.5, failed=True),
        event(1, 1, "wait", 14.5, 16.5, phase="wait"),
        event(1, 1, "object.get", 16.5, 17),
        # After the sum, or of nobody who exchanges.
        event(0, 1, "object.list", 16, 18),
        event(0, 1, "object.delete", 18, 19),
        event(1, 1, "object.put", 17, 20, phase="log"),
        event(2, 1, "object.put", 17, 30),
        event(1, -1, "object.put", 17, 40),
    )
    assert found == ((4.0, 3.0),)


def test_a_round_with_log_traffic_begins_with_the_first_line() -> None:
    found = rounds(
        *FIRST,
        event(0, 1, "object.put", 10, 11),
        event(1, 1, "object.get", 12, 12.5, phase="log"),
        event(1, 1, "object.put", 13, 14),
    )
    assert found == ((2.0, 2.0),)


def test_a_recording_of_one_step_has_none() -> None:
    with pytest.raises(RunError, match="run has only one step") as refused:
        rounds(*FIRST)
    assert refused.value.hint == "record more --batches."


def test_a_trace_made_by_hand(tmp_path: Path) -> None:
    """In the second epoch worker 0 puts from 1,265 ms on, worker 1 gets from 1,465 to 1,470."""
    (found,) = measured_rounds(read_recording(write_run(tmp_path / "run")))
    assert found == pytest.approx((0.005, 0.2))


def test_recordings_are_told_apart_by_what_was_run(tmp_path: Path) -> None:
    for name, trace in (
        ("mobilenet-allreduce", "allreduce"),
        ("mobilenet-scatterreduce-as-released", "scatterreduce-logged"),
        ("mobilenet-spirt", "spirt"),
    ):
        (tmp_path / name).symlink_to(TRACES / trace)
    logged, plain = read_exchanges(tmp_path)
    assert (plain.pattern, plain.logged, plain.polling) == ("allreduce", False, "adaptive")
    assert (logged.pattern, logged.logged) == ("scatterreduce", True)
    assert 0 < plain.seconds.value < 10
    assert plain.size == logged.size


def test_a_directory_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no recordings of Table 2"):
        read_exchanges(tmp_path)


def test_without_the_projects_own_recordings_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slslab_lab.studies.FOLDERS", ())
    assert read_exchanges() == ()
    assert list(describe(())) == ["Nothing was measured: no recording matches a row's model, workers and variant."]


def test_what_must_be_known_of_measured_rounds() -> None:
    known = [
        Exchange("run", "allreduce", 4, 1000, "adaptive", False, Estimate(1.0, 0.5, 1.5, 3), apart, busy)
        for apart, busy in ((1.25, True), (0.5, False))
    ]
    what, host = describe(known)
    assert "loopback, which isn't S3" in what
    assert "up to 1.2 s earlier" in what
    assert host.startswith("1 of these 2 runs were oversubscribed")
    assert len(list(describe(known[1:]))) == 1
