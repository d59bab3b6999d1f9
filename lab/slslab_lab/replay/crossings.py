"""Where two ways to train cross: LambdaML's two patterns, functions and instances with GPUs.

All figures are modelled; bills are exact arithmetic on modelled usage.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise

import numpy as np

from slslab.errors import RequestError
from slslab.predict.environment import NS
from slslab.predict.profiles.profile import Figure, Profile, with_figures
from slslab.run.bill import Bill, Book, Hosts, Usage, compute_bill
from slslab.run.metrics import grouped
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.outcome import Totals

TIE = 0.15
# Object store latencies to try, as multiples of the profile's.
FACTORS = tuple(10 ** (exponent / 2) for exponent in range(-4, 5))
MOST_EPOCHS = 1_000_000
# A sweep stops halving when two neighbouring values with different winners are within this ratio: a play takes time, an
# interpolation doesn't.
NARROW, EXACT = 1.001, 1 + 1e-12


def step_seconds(timeline: Timeline) -> float:
    """Return the mean seconds of a training step, from the start of the first step to the end of the last."""
    within = [entry for entry, step in enumerate(timeline.steps) if step.epoch >= 0 and step.step >= 0]
    begin, end = min(timeline.begin[entry] for entry in within), max(timeline.end[entry] for entry in within)
    return (end - begin) / NS / (timeline.program.epochs * timeline.program.batches)


def with_latency(profile: Profile, factor: float) -> Profile:
    """Return the profile with the latency of the object store's requests multiplied by `factor`."""

    def slower(_: str, figure: Figure) -> Figure:
        return Figure(value=figure.value * factor, status="assumed", source="a multiple of the profile's")

    return with_figures(profile, slower, "channels.object.operations.*.latency_ms")


def pipe_share(profile: Profile, size: int) -> float:
    """Return latency × bandwidth ÷ size for gets from the object store: 1 if latency and transfer take equally long.

    RequestError for a profile without a bandwidth for gets, since size doesn't matter there.
    """
    get = profile.operation("object.get")
    if get.bandwidth_mb_s is None:
        raise RequestError(f"The profile {profile.name} has no bandwidth for object.get.", "choose another --network.")
    return get.latency_ms.value / 1e3 * get.bandwidth_mb_s.value * 1e6 / size


def sweep_latency(programs: Mapping[str, tuple[Program, Profile]]) -> dict[str, tuple[float, ...]]:
    """Return the seconds of a training step by pattern, each on its profile, for each latency in FACTORS."""
    return {
        name: tuple(step_seconds(play(program, with_latency(profile, factor))) for factor in FACTORS)
        for name, (program, profile) in programs.items()
    }


def winner(seconds: Mapping[str, float], tie: float = TIE) -> str:
    """Return the faster of two; empty for a tie, if they differ by less than this share."""
    fast, slow = sorted(seconds, key=lambda name: seconds[name])
    return fast if seconds[slow] >= (1 + tie) * seconds[fast] else ""


@dataclass(frozen=True)
class Interval:
    """An interval of latency × bandwidth ÷ size; `winner` is empty for a tie."""

    begin: float
    end: float
    winner: str


def intervals(
    shares: Sequence[float], seconds: Mapping[str, Sequence[float]], tie: float = TIE
) -> tuple[Interval, ...]:
    """Return the intervals in which each of two ways wins by more than `tie`, along shares that rise by equal ratios.
    Logarithms are interpolated linearly between two points."""
    known = {name: np.log(of_way) for name, of_way in seconds.items()}

    def winner_at(share: float) -> str:
        at = math.log(share)
        return winner({name: math.exp(np.interp(at, np.log(shares), of_way)) for name, of_way in known.items()}, tie)

    return sweep(winner_at, shares[0], shares[-1], len(shares), EXACT)


def sweep(
    winner_at: Callable[[float], str], begin: float, end: float, points: int, narrow: float = NARROW
) -> tuple[Interval, ...]:
    """Return the winners from `begin` to `end`, tried at `points` values spaced evenly by ratio. Where two neighbours
    differ, their distance is halved until the border is known within the ratio `narrow`."""

    def halve(left: tuple[float, str], right: tuple[float, str]) -> list[tuple[float, str]]:
        if left[1] == right[1]:
            return []
        if right[0] < narrow * left[0]:
            return [right]
        share = math.sqrt(left[0] * right[0])
        middle = (share, winner_at(share))
        return halve(left, middle) + halve(middle, right)

    shares = [begin * (end / begin) ** (number / (points - 1)) for number in range(points)]
    tried = [(share, winner_at(share)) for share in shares]
    borders = [tried[0], *(border for pair in pairwise(tried) for border in halve(*pair))]
    ends = [share for share, _ in borders[1:]] + [end]
    return tuple(Interval(share, until, name) for (share, name), until in zip(borders, ends, strict=True))


@dataclass(frozen=True)
class Course:
    """A way to train: `fixed_s` and `epoch_s` give its time for any number of epochs; `usage` is for `epochs`."""

    fixed_s: float
    epoch_s: float
    epochs: int
    usage: Usage

    def figure(self, name: str, epochs: int, book: Book) -> float | Decimal:
        """Return `seconds`, or `cost` in USD, for this number of epochs."""
        return self.seconds(epochs) if name == "seconds" else self.bill(epochs, book).total

    def seconds(self, epochs: int) -> float:
        """Return how long this number of epochs takes."""
        return self.fixed_s + epochs * self.epoch_s

    def bill(self, epochs: int, book: Book) -> Bill:
        """Return the bill of this number of epochs: time-based usage grows with time, requests with epochs."""
        longer, more = self.seconds(epochs) / self.seconds(self.epochs), epochs / self.epochs
        usage = self.usage
        return compute_bill(
            replace(
                usage,
                invocations=tuple(
                    {**one, "billed_ms": math.ceil(one["billed_ms"] * longer)} for one in usage.invocations
                ),
                object_requests={op: round(number * more) for op, number in usage.object_requests.items()},
                transitions=round(usage.transitions * more),
                hosts=_longer(usage.hosts, longer),
                service_hosts=_longer(usage.service_hosts, longer),
                containers=_longer(usage.containers, longer),
            ),
            book,
        )


def _longer(hosts: Hosts, factor: float) -> Hosts:
    return tuple((kind, Decimal(math.ceil(float(s) * factor * 1000)) / 1000) for kind, s in hosts)


def course(timeline: Timeline, played: Totals, usage: Usage) -> Course:
    """Extend a timeline of at least two epochs to more: each takes the mean of those after the first."""
    ends = grouped((step.epoch, end) for step, end in zip(timeline.steps, timeline.end, strict=True) if step.epoch >= 0)
    first, last, epochs = min(ends), max(ends), timeline.program.epochs
    epoch_s = (max(ends[last]) - max(ends[first])) / NS / (last - first)
    return Course(played.seconds - epochs * epoch_s, epoch_s, epochs, usage)


def crossing(ways: tuple[Course, Course], figure: str, book: Book, factor: float = 1.0) -> int | None:
    """Return the first number of epochs from which on the other way has the smaller `seconds` or `cost`; None if that
    doesn't happen up to MOST_EPOCHS.

    `factor` multiplies the first way's figure, so the other way may win from one epoch on.
    """

    def leads(epochs: int, factor: float = factor) -> bool:
        of_first, of_second = (float(way.figure(figure, epochs, book)) for way in ways)
        return of_first * factor <= of_second

    first = leads(1, 1.0)
    if leads(1) != first:
        return 1
    low, high = 1, 2
    while leads(high) == first:
        if high >= MOST_EPOCHS:
            return None
        low, high = high, min(2 * high, MOST_EPOCHS)
    return bisect_left(range(high), True, low + 1, key=lambda epochs: leads(epochs) != first)
