"""Questions about a recorded run that rows and timelines answer: the cheapest memory size, and the cost of waiting."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from slslab.predict.environment import NS
from slslab.predict.uncertainty import NONE, Uncertainty, ratio_range
from slslab.run.bill import ARCHITECTURES, HOST, METERS, Bill, describe_meter
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.outcome import waits
from slslab_lab.replay.whatif import Row

# Sizes of a sweep, MB: round ones, and from 1,769 up whole vCPUs.
SIZES = (128, 256, 512, 768, 1024, 1536, 1769, 2048, 3008, 3538, 5307, 7076, 8845, 10_240)


# Figures whose product a question is about.
BALANCE = ("cost", "seconds")


def cheapest(rows: Sequence[Row], deadline_s: float) -> Row | None:
    """Return the cheapest of the rows that surely end by the deadline, with no invocation over its time-out.

    A row surely ends in time if the upper end of its 80 % range does. Of equally cheap rows return the fastest; None if
    no row ends in time.
    """
    return _cheapest(in_time(rows, deadline_s))


def likely_cheapest(rows: Sequence[Row], deadline_s: float) -> Row | None:
    """Return the cheapest of the rows that more likely than not end by the deadline, None if there are none."""
    return _cheapest([row for row in _without_timeout(rows) if row.number("seconds") <= deadline_s])


def in_time(rows: Sequence[Row], deadline_s: float) -> list[Row]:
    """Return the rows that surely end by the deadline, with no invocation over its time-out."""
    return [row for row in _without_timeout(rows) if _latest(row) <= deadline_s]


def fastest(rows: Sequence[Row]) -> Row | None:
    """Return the row that ends first, of those with no invocation over its time-out; of equals the cheapest."""
    return min(_without_timeout(rows), key=lambda row: (row.number("seconds"), row.figures["cost"].value), default=None)


def balanced(rows: Sequence[Row]) -> Row | None:
    """Return the row with the least cost × time, of those with no invocation over its time-out."""
    return min(_without_timeout(rows), key=lambda row: row.number("cost") * row.number("seconds"), default=None)


def alike(rows: Sequence[Row], best: Row | None, figures: Sequence[str]) -> list[Row]:
    """Return the rows that can't be told apart from the best one of them by a figure, or by a product of figures.

    These are the rows for which the 80 % range of the ratio holds 1. The rows are of one recording, so they share this
    machine's error. Rows with an invocation over its time-out are left out.
    """
    if best is None:
        return []
    return [row for row in _without_timeout(rows) if row is not best and _holds_1(row, best, figures)]


def _holds_1(row: Row, best: Row, figures: Sequence[str]) -> bool:
    values = tuple(math.prod(one.number(name) for name in figures) for one in (row, best))
    if not values[1]:
        return not values[0]
    low, high = ratio_range((values[0], values[1]), (_uncertainty(row, figures), _uncertainty(best, figures)))
    return low <= 1 <= high


def _uncertainty(row: Row, figures: Sequence[str]) -> Uncertainty:
    known = [row.uncertainties.get(name, NONE).of_one_recording() for name in figures]
    return reduce(Uncertainty.of_product, known)


def _cheapest(rows: Sequence[Row]) -> Row | None:
    return min(rows, key=lambda row: (row.figures["cost"].value, row.number("seconds")), default=None)


def _latest(row: Row) -> float:
    seconds = row.figures["seconds"]
    return float(seconds.value) if seconds.high is None else seconds.high


def _without_timeout(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that have figures and no invocation over its time-out."""
    return [row for row in rows if row.figures and not row.late]


@dataclass(frozen=True)
class Waiting:
    """The waiting of one worker in one phase: seconds, their share of all that the worker was billed for, and USD."""

    worker: int
    phase: str
    seconds: float
    share: float
    cost: float


def waiting(timeline: Timeline, billed_s: Mapping[int, float], bill: Bill) -> tuple[Waiting, ...]:
    """Return how much of a bill is waiting, by worker and phase; `billed_s` are each worker's billed seconds.

    A waited second costs its function's memory by the bill's price of a GB-second, or its instance by the second; a
    waiting execution of a state machine costs nothing.
    """
    prices = {line.item: float(line.amount / line.quantity) for line in bill.lines if line.quantity}
    # A bill has functions of one architecture.
    durations = (METERS[f"lambda.duration.{arch}"][0] for arch in ARCHITECTURES)
    gb_s = next((prices[item] for item in durations if item in prices), 0.0)
    rates = [
        gb_s * track.memory_mb / 1024
        if track.kind == "invocation"
        else prices.get(describe_meter(HOST + track.name)[0], 0.0)
        for track in timeline.program.tracks
    ]
    seconds: dict[tuple[int, str], float] = defaultdict(float)
    costs: dict[tuple[int, str], float] = defaultdict(float)
    waited = waits(timeline)
    for entry in np.flatnonzero(waited).tolist():
        number = timeline.track[entry]
        track = timeline.program.tracks[number]
        if track.kind != "execution":
            key = (track.worker, timeline.steps[entry].phase)
            seconds[key] += int(waited[entry]) / NS
            costs[key] += int(waited[entry]) / NS * rates[number]
    return tuple(
        Waiting(*key, total, total / billed_s[key[0]] if billed_s.get(key[0]) else 0.0, costs[key])
        for key, total in sorted(seconds.items())
    )
