"""Which row is the answer, and whose waiting is billed."""

from decimal import Decimal

import pytest
from tests.slslab.replay.platform import platform
from tests.slslab.replay.recordings import MS

from slslab.billing.bill import compute_bill, load_book
from slslab.replay.kernel.kernel import play
from slslab.replay.kernel.program import Program, Step, Track
from slslab.replay.outcome import outcome
from slslab.replay.questions import SIZES, balanced, cheapest, fastest, waiting
from slslab.replay.whatif import Row, Valued, check_memory

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
