"""Where two ways to train cross: LambdaML's two patterns, functions and instances with GPUs.

All figures are modelled; bills are exact arithmetic on modelled usage.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fnmatch import fnmatchcase
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


def step_seconds(timeline: Timeline) -> float:
    """Return the mean seconds of a training step, from the start of the first step to the end of the last."""
    within = [entry for entry, step in enumerate(timeline.steps) if step.epoch >= 0 and step.step >= 0]
    begin, end = min(timeline.begin[entry] for entry in within), max(timeline.end[entry] for entry in within)
    return (end - begin) / NS / (timeline.program.epochs * timeline.program.batches)


def with_latency(profile: Profile, factor: float) -> Profile:
    """Return the profile with the latency of the object store's requests multiplied by `factor`."""

    def slower(entry: str, figure: Figure) -> Figure:
        if not fnmatchcase(entry, "channels.object.operations.*.latency_ms"):
            return figure
        return Figure(value=figure.value * factor, status="assumed", source="a multiple of the profile's")

    return with_figures(profile, slower)


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
    """Return the intervals in which each of two ways wins by more than `tie`, along rising shares. Logarithms are
    interpolated linearly between two points."""
    (first, firsts), (second, seconds_of_second) = seconds.items()
    border = math.log1p(tie)
    at = [math.log(share) for share in shares]
    # Above zero the first way is faster.
    leads = [math.log(slow / fast) for fast, slow in zip(firsts, seconds_of_second, strict=True)]
    cuts = [at[0]]
    for (left, before), (right, after) in pairwise(zip(at, leads, strict=True)):
        levels = [level for level in (-border, border) if min(before, after) < level < max(before, after)]
        cuts += sorted(left + (right - left) * (level - before) / (after - before) for level in levels)
    cuts.append(at[-1])
    merged: list[Interval] = []
    for begin, end in pairwise(cuts):
        lead = float(np.interp((begin + end) / 2, at, leads))
        ahead = first if lead > border else second if lead < -border else ""
        if merged and merged[-1].winner == ahead:
            begin = math.log(merged.pop().begin)
        merged.append(Interval(math.exp(begin), math.exp(end), ahead))
    return tuple(merged)


@dataclass(frozen=True)
class Course:
    """A way to train: `fixed_s` and `epoch_s` give its time for any number of epochs; `usage` is for `epochs`."""

    fixed_s: float
    epoch_s: float
    epochs: int
    usage: Usage

    def figure(self, name: str, epochs: int, book: Book) -> float | Decimal:
        """Return `seconds` or `cost` for this number of epochs."""
        return self.seconds(epochs) if name == "seconds" else self.cost(epochs, book)

    def seconds(self, epochs: int) -> float:
        """Return how long this number of epochs takes."""
        return self.fixed_s + epochs * self.epoch_s

    def cost(self, epochs: int, book: Book) -> Decimal:
        """Return the cost of this number of epochs in USD."""
        return self.bill(epochs, book).total

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
