"""Where two ways cross, calculated by hand."""

import math
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lab.replay.platform import platform
from tests.lab.replay.recordings import MS

from slslab.run.bill import Usage, load_book
from slslab_lab.replay.crossings import (
    FACTORS,
    TIE,
    Course,
    course,
    crossing,
    intervals,
    pipe_share,
    step_seconds,
    sweep_latency,
    winner,
    with_latency,
)
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program, Step, Track
from slslab_lab.replay.outcome import outcome

BOOK = load_book("aws-us-east-1")
# On a busy host the first example may be long in coming.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def requests(number: int, size: int, epochs: int = 1) -> Program:
    """One worker that makes this many gets of this size in each step, and a get of 40 ms before any step."""
    steps = [Step("build", "other", 40 * MS)]
    for epoch in range(epochs):
        steps.append(
            Step("object.get", "synchronise", requests=number, bytes=number * size, epoch=epoch, step=0),
        )
    return Program("a", 1, (Track("train", "invocation", 0, tuple(steps), 1769),), (), epochs=epochs)


def test_seconds_of_a_step() -> None:
    # 2 gets of 5 ms and 10 ms for 10⁶ bytes each, in each of 3 epochs.
    assert step_seconds(play(requests(2, 1_000_000, 3), platform())) == pytest.approx(0.03)


def test_latency_times_bandwidth_over_size() -> None:
    # 5 ms × 100 MB/s ÷ 1 MB
    assert pipe_share(platform(), 1_000_000) == pytest.approx(0.5)
    assert pipe_share(with_latency(platform(), 10), 1_000_000) == pytest.approx(5)
    assert step_seconds(play(requests(1, 0), with_latency(platform(), 3))) == pytest.approx(0.015)


def test_few_large_requests_and_many_small_ones_cross_where_calculated() -> None:
    """One get of 5 MB takes L + 50 ms, ten of 0.1 MB take 10 L + 10 ms: equal at L = 4.44 ms, less at 5."""
    programs = {"few": requests(1, 5_000_000), "many": requests(10, 100_000)}
    swept = sweep_latency({name: (program, platform()) for name, program in programs.items()})
    shares = [pipe_share(platform(), 1_000_000) * factor for factor in FACTORS]
    seconds = {name: by_factor[FACTORS.index(1)] for name, by_factor in swept.items()}
    assert seconds == {"few": pytest.approx(0.055), "many": pytest.approx(0.06)}
    assert winner(seconds) == "", "less than 15 % is a tie"
    first, tie, last = intervals(shares, swept)
    assert (first.winner, tie.winner, last.winner) == ("many", "", "few")
    assert (first.begin, last.end) == pytest.approx((0.005, 50))
    # 1.15 (10 L + 10) = L + 50 at L = 3.66, and 1.15 (L + 50) = 10 L + 10 at 5.37; between points it is interpolated.
    assert first.end == tie.begin == pytest.approx(0.366, rel=0.1)
    assert winner(seconds, 0.05) == "few"
    (_, narrow, _) = intervals(shares, swept, 0.05)
    assert tie.begin < narrow.begin < narrow.end < tie.end
    assert tie.end == last.begin == pytest.approx(0.537, rel=0.1)


def test_one_that_always_wins() -> None:
    for times, ahead in ((2, "a"), (1.1, ""), (0.5, "b")):
        (one,) = intervals((1, 10), {"a": (1, 1), "b": (times, times)})
        assert (one.begin, one.end) == pytest.approx((1, 10))
        assert one.winner == ahead


@PATIENT
@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=2, max_size=8))
def test_intervals_lie_side_by_side_and_agree_with_the_points(pairs: list[tuple[float, float]]) -> None:
    shares = [2.0**place for place in range(len(pairs))]
    found = intervals(shares, {"a": [one for one, _ in pairs], "b": [other for _, other in pairs]})
    assert found[0].begin == pytest.approx(1)
    assert found[-1].end == pytest.approx(shares[-1])
    for left, right in pairwise(found):
        assert left.end == pytest.approx(right.begin)
        assert left.winner != right.winner
    for share, (one, other) in zip(shares, pairs, strict=True):
        lead = math.log(other / one)
        if abs(abs(lead) - math.log(1 + TIE)) > 1e-6:
            expected = "" if abs(lead) < math.log(1 + TIE) else "a" if lead > 0 else "b"
            assert expected in {
                span.winner for span in found if span.begin <= share * 1.0001 and share <= span.end * 1.0001
            }


def test_further_epochs_take_what_those_after_the_first_do() -> None:
    # Cold 100, build 40, three epochs of 5 + 10.
    timeline = play(requests(1, 1_000_000, 3), platform())
    found = outcome(timeline)
    way = course(timeline, found, found.as_usage())
    assert (way.fixed_s, way.epoch_s) == pytest.approx((0.14, 0.015))
    assert way.seconds(100) == pytest.approx(1.64)


def instances(fixed_s: float, epoch_s: float) -> Course:
    """One instance, known for 10 epochs."""
    seconds = Decimal(str(fixed_s + 10 * epoch_s))
    return Course(fixed_s, epoch_s, 10, Usage(hosts=(("g4dn.xlarge", seconds),)))


def functions(fixed_s: float, epoch_s: float) -> Course:
    """One function of 10,240 MB, known for 10 epochs, each with 1000 puts."""
    record = {
        "memory_mb": 10_240, "billed_ms": round(1000 * (fixed_s + 10 * epoch_s)), "architecture": "x86_64",
        "ephemeral_mb": 512,
    }  # fmt: skip
    return Course(fixed_s, epoch_s, 10, Usage([record], {"object.put": 10_000}))


def test_cost_grows_with_time_and_requests() -> None:
    # 2 + 20 × 3 s × 10 GB, 20,000 puts, and one request.
    expected = Decimal(620) * Decimal("0.0000166667") + Decimal("0.1") + Decimal("0.0000002")
    assert functions(2, 3).bill(20, BOOK).total == expected
    # Of instances begun seconds count whole, and 60 at least.
    assert instances(30, 0.1).bill(20, BOOK).total == pytest.approx(Decimal(60) * Decimal("0.526") / 3600)
    assert instances(30, 3).bill(20, BOOK).total == pytest.approx(Decimal(90) * Decimal("0.526") / 3600)


def test_the_first_epoch_from_which_on_the_other_is_better() -> None:
    ways = functions(2, 3), instances(60, 0.5)
    # 2 + 3 E > 60 + E ÷ 2 from E > 23.2 on.
    assert crossing(ways, "seconds", BOOK) == 24
    assert [way.seconds(23) for way in ways] == pytest.approx([71, 71.5])
    assert [way.seconds(24) for way in ways] == pytest.approx([74, 72])
    # One epoch: 0.0058 USD of functions against 0.0089 of an instance; two are 0.0113 against 0.0089.
    assert crossing(ways, "cost", BOOK) == 2
    assert crossing((functions(2, 3), instances(60, 3)), "seconds", BOOK) is None


@PATIENT
@given(st.floats(0, 100), st.floats(0.01, 10), st.floats(0, 100), st.floats(0.01, 10))
def test_a_crossing_is_where_the_lead_changes(fixed: float, epoch: float, others: float, other: float) -> None:
    ways = functions(fixed, epoch), instances(others, other)
    for figure in ("seconds", "cost"):
        found = crossing(ways, figure, BOOK)
        if found is not None:
            (before, against), (after, then) = (
                [way.figure(figure, at, BOOK) for way in ways] for at in (found - 1, found)
            )
            assert (before <= against) != (after <= then)
