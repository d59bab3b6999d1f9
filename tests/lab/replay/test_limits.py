"""Which of Lambda's limits a run would exceed there, and how readers are told."""

from typing import Any

import pytest

from slslab.predict.uncertainty import NONE, Uncertainty
from slslab.report.summaries import limit_notes
from slslab.run.document import Crossing
from slslab_lab.replay.modelled import crossings, longest

TIMEOUT_S = 30
# An 80 % range of × 0.71 to 1.41.
UNCERTAIN = Uncertainty({}, {"the replay": 0.27})


def record(init_ms: float | None, duration_ms: float, **more: Any) -> dict[str, Any]:
    base = {"function": "train", "cold_start": True, "init_ms": init_ms, "duration_ms": duration_ms, "error_type": None}
    return base | more


def crossed(
    init_s: float, duration_s: float, *records: dict[str, Any], uncertainty: Uncertainty = UNCERTAIN
) -> list[Crossing]:
    """What is crossed by a function with these seconds on Lambda, and these records here."""
    played = longest([record(init_s * 1000, duration_s * 1000), record(None, 10.0)])
    assert set(played.values()) == {init_s, duration_s}
    return list(crossings(played, dict.fromkeys(played, uncertainty), records, TIMEOUT_S))


def test_limits_that_a_range_does_not_reach_are_not_spoken_of() -> None:
    assert crossed(6.9, 21.0, record(5_000.0, 20_000.0)) == []
    assert crossed(9.9, 29.9, record(5_000.0, 20_000.0), uncertainty=NONE) == []


@pytest.mark.parametrize(
    ("init_s", "duration_s", "limit", "says"),
    [
        (8.0, 1.0, "init", "On Lambda init of train takes 6 to 11 s and may exceed the limit of 10 s, unlike here."),
        (20.0, 1.0, "init", "On Lambda init of train takes 14 to 28 s and exceeds the limit of 10 s, unlike here."),
        (
            1.0,
            25.0,
            "timeout",
            "On Lambda the longest invocation of train takes 18 to 35 s and may exceed the timeout of 30 s, "
            "unlike here.",
        ),
    ],
)
def test_a_limit_that_was_kept_here_and_may_not_be_on_lambda(
    init_s: float, duration_s: float, limit: str, says: str
) -> None:
    (found,) = crossed(init_s, duration_s, record(5_000.0, 20_000.0), record(None, 1.0, cold_start=False))
    assert (found["function"], found["limit"], found["kept_here"]) == ("train", limit, True)
    assert found["low"] < max(init_s, duration_s) < found["high"]
    assert limit_notes({"lambda": {"status": "modelled", "limits": [found]}}) == [says]


@pytest.mark.parametrize(
    ("records", "limit", "says"),
    [
        # An init that took too long is repeated in the invocation, which is all that its record shows.
        ([record(None, 25_000.0)], "init", "keeps the limit of 10 s"),
        ([record(1.0, 30_000.0, error_type="Sandbox.Timedout")], "timeout", "keeps the timeout of 30 s"),
    ],
)
def test_a_limit_that_was_exceeded_here_and_may_be_kept_on_lambda(
    records: list[dict[str, Any]], limit: str, says: str
) -> None:
    (found,) = crossed(4.0, 15.0, *records)
    assert (found["limit"], found["kept_here"]) == (limit, False)
    (note,) = limit_notes({"lambda": {"status": "modelled", "limits": [found]}})
    assert f"{says}, unlike here." in note
    assert all(one["limit"] != limit for one in crossed(20.0, 60.0, *records))


def test_the_worst_of_several_functions_is_named() -> None:
    alike: list[Crossing] = [
        {"function": name, "limit": "init", "limit_seconds": 10.0, "kept_here": True, "low": 8.0, "high": high}
        for name, high in (("one", 12.0), ("other", 14.0), ("third", 11.0))
    ]
    (note,) = limit_notes({"lambda": {"status": "modelled", "limits": alike}})
    assert "init of other takes 8 to 14 s" in note
    assert note.endswith("unlike here, and so for 2 other functions.")
    assert limit_notes({"lambda": {"status": "not modelled", "reason": "Why."}}) == limit_notes({}) == []
