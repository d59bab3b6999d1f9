"""Which row is the answer, and whose waiting is billed."""

from decimal import Decimal

import pytest
from tests.lab.replay.platform import platform
from tests.lab.replay.recordings import MS

from slslab.predict.uncertainty import HOST, REPLAY, Uncertainty
from slslab.run.bill import compute_bill, load_book
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program, Step, Track
from slslab_lab.replay.outcome import outcome
from slslab_lab.replay.questions import (
    BALANCE,
    SIZES,
    alike,
    balanced,
    cheapest,
    fastest,
    in_time,
    likely_cheapest,
    waiting,
)
from slslab_lab.replay.whatif import Row, Valued, check_memory

BOOK = load_book("aws-us-east-1")


def row(label: str, seconds: float, cost: str, late: bool = False) -> Row:
    figures = {"seconds": Valued(seconds, "modelled"), "cost": Valued(Decimal(cost), "modelled")}
    return Row(label, figures, late=(("train", 0, seconds),) if late else ())


ROWS = [
    Row("too small", {}, trouble="refused"),
    row("slow", 40, "1", late=True),
    row("cheap", 20, "2"),
    row("good", 9, "3"),
    row("fast", 8, "5"),
    row("as fast", 8, "6"),
]


@pytest.mark.parametrize(("deadline", "found"), [(40, "cheap"), (20, "cheap"), (19.9, "good"), (8, "fast"), (7, None)])
def test_the_cheapest_that_is_done_in_time(deadline: float, found: str | None) -> None:
    best = cheapest(ROWS, deadline)
    assert (best.label if best else None) == found


def uncertain(label: str, seconds: float, cost: str, host: float = 0.0, replay: float = 0.0) -> Row:
    """A row with a deviation of the logarithm of 0.3 that all rows share."""
    error = Uncertainty({"dense work on Lambda": 0.3}, {HOST: host, REPLAY: replay})
    values: dict[str, float | Decimal] = {"seconds": seconds, "cost": Decimal(cost)}
    figures = {name: Valued(value, "modelled", *error.around(float(value))) for name, value in values.items()}
    return Row(label, figures, uncertainties=dict.fromkeys(figures, error))


def test_a_deadline_holds_for_the_upper_end_of_the_range() -> None:
    rows = [uncertain("cheap", 20, "2"), uncertain("good", 9, "3")]
    # The upper ends are 29.4 and 13.2 s.
    assert [one.label if one else None for one in (cheapest(rows, 30), cheapest(rows, 29), cheapest(rows, 13))] == [
        "cheap", "good", None,
    ]  # fmt: skip
    assert [one.label for one in in_time(rows, 29)] == ["good"]
    assert [one.label if one else None for one in (likely_cheapest(rows, 20), likely_cheapest(rows, 8))] == [
        "cheap", None,
    ]  # fmt: skip


def test_sizes_of_one_recording_are_told_apart_but_for_the_replays_own_error() -> None:
    certain = [uncertain("one", 10, "2", host=0.5), uncertain("two", 10.1, "2.2", host=0.5)]
    assert alike(certain, certain[0], ("seconds",)) == [], "shared errors and this machine's cancel"
    # The ratio's deviation is 0.05 √2, and 80 % of it are within 1.095.
    for seconds, told in ((10.9, False), (11.0, True)):
        rows = [uncertain("one", 10, "2", 0.5, 0.05), uncertain("two", seconds, "2", 0.5, 0.05)]
        assert (alike(rows, rows[0], ("seconds",)) == []) is told
        assert alike(rows, rows[0], ("cost",)) == [rows[1]]
        # Of a product the errors add up.
        assert alike(rows, rows[0], BALANCE) == [rows[1]]
    assert alike(ROWS, None, ("cost",)) == []
    assert alike(ROWS, ROWS[4], ("seconds",)) == [ROWS[5]], "rows without uncertainties are alike if they are equal"


def test_fastest_and_balanced() -> None:
    assert [one.label for one in (fastest(ROWS), balanced(ROWS)) if one] == ["fast", "good"]  # 27 against 40 and 40
    assert (fastest(ROWS[:2]), balanced(ROWS[:1]), cheapest([], 1)) == (None, None, None)


def test_sizes_of_a_sweep_exist_and_rise() -> None:
    assert [check_memory(size) for size in SIZES] == sorted(set(SIZES))
    assert (SIZES[0], SIZES[-1]) == (128, 10_240)


def test_waiting_is_told_by_worker_and_phase_with_its_price() -> None:
    """Worker 1 (1024 MB) waits 70 of its 100 ms for worker 0; an instance waits as long, an execution for nothing."""
    meet = Step("meet", "synchronise", awaits=(0,))
    program = Program(
        "allreduce",
        3,
        (
            Track("train", "invocation", 0, (Step("compute", "compute", 100 * MS, opens=(0,)),), 1769),
            Track("train", "invocation", 1, (Step("compute", "compute", 30 * MS), meet), 3538),
            Track("g4dn.xlarge", "instance", 2, (Step("wait for it", "wait", awaits=(1,)),)),
            Track("machine", "execution", 0, (Step("join", "wait", awaits=(0,)),)),
            Track("late", "execution", 0, (Step("transition", "other", opens=(1,)),), awaits=(2,)),
            Track("later", "invocation", 0, (Step("compute", "compute", 31_000 * MS, opens=(2,)),), 1769),
        ),
        (1, 1, 1),
    )
    timeline = play(program, platform())
    found = outcome(timeline)
    bill = compute_bill(found.usage(), BOOK)
    rows = waiting(timeline, {one.worker: one.billed for one in found.workers}, bill)
    # Cold until 100; worker 0 is there at 200, worker 1 at 130. The instance has booted at 30 s, and the transition
    # after it at 100 + 31,000 has ended at 31,130.
    assert [(one.worker, one.phase) for one in rows] == [(1, "synchronise"), (2, "wait")]
    assert rows[0].seconds == pytest.approx(0.07)
    assert rows[0].share == pytest.approx(0.7)
    assert rows[0].cost == pytest.approx(0.07 * 3538 / 1024 * 0.0000166667)
    assert rows[1].seconds == pytest.approx(1.13)
    assert rows[1].share == pytest.approx(1.13 / 60)
    # By the second, of which 60 are billed at least: what an instance costs is spread over what is billed.
    assert rows[1].cost == pytest.approx(1.13 * 0.526 / 3600)
