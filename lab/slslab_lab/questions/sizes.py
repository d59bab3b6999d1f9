"""A run with other memory sizes and numbers of workers, and which memory size is best."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import product
from typing import Any

from slslab.errors import RequestError, read_numbers
from slslab.predict.uncertainty import NONE, Uncertainty, ratio_range
from slslab_lab.questions.setup import Asked, priced, read_memory
from slslab_lab.replay.combining import check_one_plan, combine
from slslab_lab.replay.whatif import LARGEST_FLEET, SIZES, Row, Variant, as_document, evaluate, measured_row

# The best row has the smallest product of these figures.
COST, SECONDS, BALANCE = ("cost",), ("seconds",), ("cost", "seconds")


def replay(asked: Asked, memory: str | None, workers: str | None) -> dict[str, Any]:
    """Answer `slslab replay`: a measured row, a modelled one, and one for each variant."""
    fleets = read_numbers("--workers", workers, 1, LARGEST_FLEET)
    check_one_plan([setup.run for setup in asked.setups])
    if asked.on is not None and not fleets and memory is None:
        raise RequestError(
            "--on needs a list to spread over many cores.", "name several: --memory 1024,1769 or --workers 8,64."
        )
    sizes = max(read_memory(setup, memory) for setup in asked.setups)
    variants = list(product(fleets or (None,), sizes or (None,)))
    played = [_rows(replace(asked, setups=(setup,)), variants) for setup in asked.setups]
    return {
        "recordings": [setup.name for setup in asked.setups],
        "oversubscribed": any(setup.run.document["host"]["oversubscribed"] for setup in asked.setups),
        "rows": [as_document(combine(same)) for same in zip(*played, strict=True)],
    }


def _rows(asked: Asked, variants: Sequence[tuple[int | None, int | None]]) -> list[Row]:
    setup, platform, plain = asked.setup, asked.setup.platform, Variant()
    rows = [measured_row(setup.run, platform)]
    if setup.prices != platform.book:
        rows.append(priced(measured_row(setup.run, replace(platform, book=setup.prices)), setup.prices))
    rows.append(evaluate(setup.run, plain, platform))
    if (setup.variant, setup.prices) != (plain, platform.book) or variants != [(None, None)]:
        rows += asked.play("playing variants", variants, setup.row)
    return rows


def cheapest(asked: Asked, deadline: float, memory: str | None) -> dict[str, Any]:
    """Answer `slslab ask cheapest`."""
    rows = _sweep(asked, memory)
    surely = in_time(rows, deadline)
    found = best(surely, COST)
    likely = best(in_time(rows, deadline, likely=True), COST)
    return {
        "rows": list(map(as_document, rows)),
        "deadline_s": deadline,
        "cheapest": _size(found),
        "alike": _sizes(alike(surely, found, COST)),
        **_alone(surely, found),
        "likely": None if likely is None else {"memory_mb": _size(likely), "likelihood": _likelihood(likely, deadline)},
        "fastest": _size(best(rows, SECONDS)),
    }


def memory(asked: Asked, memory: str | None) -> dict[str, Any]:
    """Answer `slslab ask memory`."""
    rows = _sweep(asked, memory)
    figures = {"cheapest": COST, "fastest": SECONDS, "balanced": BALANCE}
    found = {name: best(rows, least) for name, least in figures.items()}
    return {
        "rows": list(map(as_document, rows)),
        **{name: _size(row) for name, row in found.items()},
        "alike": {name: _sizes(alike(rows, row, figures[name])) for name, row in found.items()},
        **_alone(rows, found["cheapest"]),
    }


def _sweep(asked: Asked, memory: str | None) -> list[Row]:
    sizes = read_memory(asked.setup, memory, SIZES)
    return asked.play("playing memory sizes", [(None, size) for size in sizes], asked.setup.row)


def _alone(rows: Sequence[Row], cheapest: Row | None) -> dict[str, Any]:
    """Return the cheapest size if the run has its hosts to itself, where that is surely another one."""
    bills = [(row, row.bill) for row in _usable(rows) if row.bill is not None]
    if cheapest is None or not bills:
        return {}
    other, least = min(bills, key=lambda each: each[1].alone)
    own = next(bill for row, bill in bills if row is cheapest)
    errors = [
        _uncertainty(row, COST).of_sum(float(bill.total / bill.alone))
        for row, bill in ((other, least), (cheapest, own))
    ]
    _, high = ratio_range((float(least.alone), float(own.alone)), (errors[0], errors[1]))
    return {"cheapest_alone": _size(other)} if high < 1 else {}


def _size(row: Row | None) -> int | None:
    return None if row is None else row.variant.memory_mb


def _sizes(rows: Sequence[Row]) -> list[int]:
    return [size for size in map(_size, rows) if size is not None]


def _likelihood(row: Row, deadline: float) -> float:
    return round(row.uncertainties["seconds"].likelihood(row.number("seconds"), deadline), 3)


def in_time(rows: Sequence[Row], deadline_s: float, likely: bool = False) -> list[Row]:
    """Return the rows that finish by the deadline, judged by the upper end of their 80 % range; with `likely`, judged
    by their most likely time."""
    return [
        row
        for row in _usable(rows)
        if (row.number("seconds") if likely else row.figures["seconds"].high or row.number("seconds")) <= deadline_s
    ]


def best(rows: Sequence[Row], figures: Sequence[str]) -> Row | None:
    """Return the row with the smallest product of figures; among equals the fastest, then the cheapest.

    Skip rows with an invocation over its time-out; None if no other row exists.
    """
    return min(
        _usable(rows), key=lambda row: (_product(row, figures), row.number("seconds"), row.number("cost")), default=None
    )


def alike(rows: Sequence[Row], other: Row | None, figures: Sequence[str]) -> list[Row]:
    """Return the rows that can't be told apart from one of them by a product of figures.

    These are the rows where the 80 % range of the ratio contains 1. All rows come from one recording, so they share
    this machine's error. Skip rows with an invocation over its time-out.
    """
    if other is None:
        return []
    return [row for row in _usable(rows) if row is not other and _holds_1(row, other, figures)]


def _holds_1(row: Row, other: Row, figures: Sequence[str]) -> bool:
    values = _product(row, figures), _product(other, figures)
    if not values[1]:
        return not values[0]
    low, high = ratio_range(values, (_uncertainty(row, figures), _uncertainty(other, figures)))
    return low <= 1 <= high


def _product(row: Row, figures: Sequence[str]) -> float:
    return math.prod(map(row.number, figures))


def _uncertainty(row: Row, figures: Sequence[str]) -> Uncertainty:
    return reduce(Uncertainty.of_product, (row.uncertainties.get(name, NONE).of_one_recording() for name in figures))


def _usable(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.figures and not row.late]
