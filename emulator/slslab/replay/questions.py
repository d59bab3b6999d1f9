"""Questions about a recorded run that rows and timelines answer: the cheapest memory size, and who pays for waiting."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slslab.billing import ARCHITECTURES, HOST, METERS, Bill, describe_meter
from slslab.replay.environment import NS
from slslab.replay.outcome import waits
from slslab.replay.timeline import Timeline
from slslab.replay.whatif import Row

# Sizes of a sweep, MB: round ones, and from 1,769 up whole vCPUs.
SIZES = (128, 256, 512, 768, 1024, 1536, 1769, 2048, 3008, 3538, 5307, 7076, 8845, 10_240)


def cheapest(rows: Sequence[Row], deadline_s: float) -> Row | None:
    """Of the rows that are done by the deadline, with no invocation over its time-out, the one that costs least.

    Of equally cheap ones the fastest; None if no row is done in time."""
    able = [row for row in rows if row.figures and row.number("seconds") <= deadline_s and not row.late]
    return min(able, key=lambda row: (row.figures["cost"].value, row.number("seconds")), default=None)


def fastest(rows: Sequence[Row]) -> Row | None:
    """Of the rows with no invocation over its time-out, the one that is done first; of equals the cheapest."""
    able = [row for row in rows if row.figures and not row.late]
    return min(able, key=lambda row: (row.number("seconds"), row.figures["cost"].value), default=None)


def balanced(rows: Sequence[Row]) -> Row | None:
    """Of the rows with no invocation over its time-out, the one with the least cost × time."""
    able = [row for row in rows if row.figures and not row.late]
    return min(able, key=lambda row: row.number("cost") * row.number("seconds"), default=None)


@dataclass(frozen=True)
class Waiting:
    """What one worker waited in one phase: seconds, their share of all that the worker was billed for, and USD."""

    worker: int
    phase: str
    seconds: float
    share: float
    cost: float


def waiting(timeline: Timeline, billed_s: Mapping[int, float], bill: Bill) -> tuple[Waiting, ...]:
    """How much of a bill is waiting, by worker and phase; `billed_s` are each worker's billed seconds.

    A waited second costs its function's memory by the bill's price of a GB-second, or its instance by the second; a
    waiting execution of a state machine costs nothing."""
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
