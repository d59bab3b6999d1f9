"""Questions about a recorded run that rows and timelines answer: the cheapest memory size, and the cost of waiting."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slslab.billing.bill import ARCHITECTURES, HOST, METERS, Bill, describe_meter
from slslab.replay.kernel.environment import NS
from slslab.replay.kernel.timeline import Timeline
from slslab.replay.outcome import waits
from slslab.replay.whatif import Row

# Sizes of a sweep, MB: round ones, and from 1,769 up whole vCPUs.
SIZES = (128, 256, 512, 768, 1024, 1536, 1769, 2048, 3008, 3538, 5307, 7076, 8845, 10_240)


def cheapest(rows: Sequence[Row], deadline_s: float) -> Row | None:
    """Return the cheapest of the rows that end by the deadline, with no invocation over its time-out.

    Of equally cheap ones the fastest; None if no row ends in time.
    """
    return min(
        (row for row in _without_timeout(rows) if row.number("seconds") <= deadline_s),
        key=lambda row: (row.figures["cost"].value, row.number("seconds")),
        default=None,
    )


def fastest(rows: Sequence[Row]) -> Row | None:
    """Return the row that ends first, of those with no invocation over its time-out; of equals the cheapest."""
    return min(_without_timeout(rows), key=lambda row: (row.number("seconds"), row.figures["cost"].value), default=None)


def balanced(rows: Sequence[Row]) -> Row | None:
    """Return the row with the least cost × time, of those with no invocation over its time-out."""
    return min(_without_timeout(rows), key=lambda row: row.number("cost") * row.number("seconds"), default=None)


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
