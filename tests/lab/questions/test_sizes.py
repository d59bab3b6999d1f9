"""Which row is the answer."""

from dataclasses import replace
from decimal import Decimal

import pytest

from slslab.aws.limits import lambda_limits
from slslab.predict.uncertainty import HOST, REPLAY, Uncertainty
from slslab.run.bill import DEFAULT_BOOK, Usage, compute_bill, load_book
from slslab_lab.questions.sizes import BALANCE, COST, SECONDS, _alone, alike, best, in_time
from slslab_lab.replay.whatif import SIZES, Row, Valued, Variant


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
    cheapest = best(in_time(ROWS, deadline), COST)
    assert (cheapest.label if cheapest else None) == found


def uncertain(label: str, seconds: float, cost: str, host: float = 0.0, replay: float = 0.0) -> Row:
    """A row with a deviation of the logarithm of 0.3 that all rows share."""
    error = Uncertainty({"dense work on Lambda": 0.3}, {HOST: host, REPLAY: replay})
    values: dict[str, float | Decimal] = {"seconds": seconds, "cost": Decimal(cost)}
    figures = {name: Valued(value, "modelled", *error.around(float(value))) for name, value in values.items()}
    return Row(label, figures, uncertainties=dict.fromkeys(figures, error))


def test_a_deadline_holds_for_the_upper_end_of_the_range() -> None:
    rows = [uncertain("cheap", 20, "2"), uncertain("good", 9, "3")]
    # The upper ends are 29.4 and 13.2 s.
    found = {deadline: [one.label for one in in_time(rows, deadline)] for deadline in (30, 29, 13)}
    assert found == {30: ["cheap", "good"], 29: ["good"], 13: []}
    likely = {deadline: [one.label for one in in_time(rows, deadline, likely=True)] for deadline in (20, 19, 8)}
    assert likely == {20: ["cheap", "good"], 19: ["good"], 8: []}


def test_sizes_of_one_recording_are_told_apart_but_for_the_replays_own_error() -> None:
    certain = [uncertain("one", 10, "2", host=0.5), uncertain("two", 10.1, "2.2", host=0.5)]
    assert alike(certain, certain[0], SECONDS) == [], "shared errors and this machine's cancel"
    # The ratio's deviation is 0.05 √2, and 80 % of it are within 1.095.
    for seconds, told in ((10.9, False), (11.0, True)):
        rows = [uncertain("one", 10, "2", 0.5, 0.05), uncertain("two", seconds, "2", 0.5, 0.05)]
        assert (alike(rows, rows[0], SECONDS) == []) is told
        assert alike(rows, rows[0], COST) == [rows[1]]
        # Of a product the errors add up.
        assert alike(rows, rows[0], BALANCE) == [rows[1]]
    assert alike(ROWS, None, COST) == []
    assert alike(ROWS, ROWS[4], SECONDS) == [ROWS[5]], "rows without uncertainties are alike if they are equal"


def test_fastest_and_balanced() -> None:
    found = [best(ROWS, figures) for figures in (SECONDS, BALANCE)]
    assert [one.label for one in found if one] == ["fast", "good"]  # 27 against 40 and 40
    assert [best(rows, SECONDS) for rows in (ROWS[:2], ROWS[:1], [])] == [None, None, None]


def test_another_size_may_be_cheapest_with_a_cache_of_its_own() -> None:
    def priced(memory_mb: int, mb_s: int, seconds: int) -> Row:
        record = {"memory_mb": 1024, "billed_ms": mb_s, "architecture": "x86_64", "ephemeral_mb": 512}
        bill = compute_bill(Usage([record], service_hosts=(("cache.t3.medium", seconds),)), load_book(DEFAULT_BOOK))
        return replace(row("", seconds, str(bill.total)), bill=bill, variant=Variant(memory_mb=memory_mb))

    # The second is faster, and so has a smaller share of the cache; the first uses Lambda less.
    rows = [priced(512, 1000, 100), priced(1024, 2000, 10)]
    assert _alone(rows, best(rows, COST)) == {"cheapest_alone": 512}
    assert _alone(rows[1:], rows[1]) == _alone(ROWS, None) == {}
    # An error of the replay leaves it open which of them uses Lambda less.
    for replay, told in ((0.001, True), (0.1, False)):
        unsure = [replace(each, uncertainties={"cost": Uncertainty({}, {REPLAY: replay})}) for each in rows]
        assert bool(_alone(unsure, best(unsure, COST))) is told


def test_sizes_of_a_sweep_exist_and_rise() -> None:
    assert list(SIZES) == sorted(set(SIZES))
    limits = lambda_limits().memory_mb
    assert (SIZES[0], SIZES[-1]) == (limits.minimum, limits.maximum)
