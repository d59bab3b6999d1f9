"""One round of AllReduce or ScatterReduce by itself: how long until every worker has the sum of all gradients.

Nothing is measured for it: programs are the patterns of the architectures, with the CPU time of a recorded run or with
none at all, and the kernel plays them. Everything here is modelled."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from slslab.replay.crossings import TIE, Interval, pipe_share
from slslab.replay.environment import NS
from slslab.replay.kernel import play
from slslab.replay.profiles import Profile
from slslab.replay.program import Gathering, Program, Step, Track
from slslab.replay.scaling import Cost, StepCosts, generate
from slslab_workers.architecture import Architecture
from slslab_workers.communication import Workload
from slslab_workers.logs import LOG_TRAFFIC
from slslab_workers.logs import PHASE as LOG
from slslab_workers.polling import policy

PHASE = "synchronise"
DELETE = "object.delete"
# What workers do after they have the sum, or beside it: nobody waits for that.
CLEANING = (DELETE, "object.list")
# Two neighbouring values of a sweep are at most so far apart where the winner changes.
NARROW = 1.001
FREE = Cost(0.0, 0.0, 0.0, 0.0, 0.0, False, 0.0)


@dataclass(frozen=True)
class _Free(StepCosts):
    def of(self, function: str, op: str, phase: str, first: bool) -> Cost:  # noqa: ARG002
        return FREE


def without_compute(room: Architecture) -> StepCosts:
    """The costs of an architecture whose workers need no CPU time at all."""
    template = Track(room.name, "invocation", 0, (), 1769)
    return _Free(room, Workload(2, 1, 1, 1), {}, {"invocation": template}, frozenset(), (0.0, 1.0, 0.0), {})


@dataclass(frozen=True)
class Round:
    """A round of `workers` who exchange gradients of `size` bytes.

    `polling` is how they learn that something is there: `released` as LambdaML's code polls, `adaptive` as the
    emulator's workers do by default, or `none`: they are told.
    With `deletes_at_once` the merging worker deletes what it has read with one request, as LambdaML's code does, and
    not one by one. With `log_bytes` there is the log traffic of Barrak et al.'s code, and each worker's log has so many
    bytes when the round begins; None for no such traffic."""

    costs: StepCosts
    workers: int
    size: int
    polling: str = "released"
    deletes_at_once: bool = False
    log_bytes: int | None = None

    def program(self) -> Program:
        """The second of two steps: what the first one only does at its beginning is no part of a round."""
        options = {**self.costs.workload.options, LOG_TRAFFIC.name: self.log_bytes is not None}
        workload = replace(self.costs.workload, parameters=max(1, round(self.size / 4)), options=options)
        made = generate(replace(self.costs, workload=workload), self.workers, 2, 1)
        tracks = tuple(replace(track, steps=self._steps(track)) for track in made.tracks)
        # A list finds all, or nothing for the moment that others are behind: pauses between gets are those that count.
        pauses = policy("adaptive" if self.polling == "none" else self.polling).gets
        return replace(made, tracks=tracks, batches=1, polls=(pauses.first, pauses.factor, pauses.limit))

    def _steps(self, track: Track) -> tuple[Step | Gathering, ...]:
        found: list[Step | Gathering] = []
        written: int | None = None
        for item in track.steps:
            if isinstance(item, Step) and (item.phase, item.step) == (LOG, 1):
                # The first step's lines are no part of the log that the round begins with.
                written = item.bytes if written is None else written
                found.append(replace(item, bytes=item.bytes - written + (self.log_bytes or 0)))
            elif isinstance(item, Step):
                found += self._exchanged((item,))
            elif groups := tuple(filter(None, map(self._exchanged, item.groups))):
                if self.deletes_at_once:
                    groups = tuple(tuple(step for step in group if step.op != DELETE) for group in groups)
                found.append(Gathering(groups))
                if self.deletes_at_once:
                    found.append(Step(DELETE, PHASE, requests=1))
        return tuple(found)

    def _exchanged(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        kept = (step for step in steps if step.phase == PHASE and step.step == 1)
        return tuple(replace(step, polling="") if self.polling == "none" else step for step in kept)

    def seconds(self, profile: Profile) -> float:
        """From the first request to when the last worker has the sum; what is deleted or logged after that does not
        count."""
        timeline = play(self.program(), profile)
        ends = (end for step, end in zip(timeline.steps, timeline.end, strict=True) if is_exchange(step.phase, step.op))
        return (max(ends) - min(timeline.begin)) / NS


def is_exchange(phase: str, op: str) -> bool:
    """Whether it is one of the steps with which gradients are put, gotten and added up."""
    return phase == PHASE and op not in CLEANING


@dataclass(frozen=True)
class Chain:
    """The puts and gets of a round's longest chain, each of `moved` bytes."""

    puts: int
    gets: int
    moved: float

    def seconds(self, profile: Profile) -> float:
        """What they take one after another, with nothing between them."""
        return sum(
            number * (latency + self.moved / 1e6 / bandwidth) for number, latency, bandwidth in self._terms(profile)
        )

    def arithmetic(self, profile: Profile) -> str:
        """The same as a text: times in seconds, sizes in MB."""
        return " + ".join(
            f"{number} * ({latency:.6g} + {self.moved / 1e6:.6f} / {bandwidth:.6g})"
            if math.isfinite(bandwidth)
            else f"{number} * {latency:.6g}"
            for number, latency, bandwidth in self._terms(profile)
        )

    def _terms(self, profile: Profile) -> Iterator[tuple[int, float, float]]:
        for number, op in ((self.puts, "object.put"), (self.gets, "object.get")):
            operation = profile.operation(op)
            bandwidth = operation.bandwidth_mb_s.value if operation.bandwidth_mb_s else math.inf
            yield number, operation.latency_ms.value / 1e3, bandwidth


def chain(pattern: str, workers: int, size: int) -> Chain:
    """The longest chain of a round, without lists, deletes, polls and logs.

    AllReduce: a put, the merging worker's `workers` gets and its put, a get. ScatterReduce: every worker's
    `workers` puts and 2 (`workers` - 1) gets of a chunk each, which are LambdaML's 3w - 2 (SIGMOD 2021, Section 5.3).
    """
    if pattern == "allreduce":
        return Chain(2, workers + 1, size)
    return Chain(workers, 2 * (workers - 1), size / workers)


def winner(seconds: Mapping[str, float]) -> str:
    """The faster one of two; empty for a tie, which is a difference of less than TIE."""
    fast, slow = sorted(seconds, key=lambda name: seconds[name])
    return fast if seconds[slow] >= (1 + TIE) * seconds[fast] else ""


def size_at(profile: Profile, share: float) -> int:
    """Bytes of a gradient at which latency × bandwidth ÷ size of the object store's gets is this share."""
    return max(4, round(pipe_share(profile, 1) / share))


def sweep(winner_at: Callable[[float], str], begin: float, end: float, points: int) -> tuple[Interval, ...]:
    """Who wins from `begin` to `end`, tried at so many points evenly spaced by ratio, and where two neighbours differ
    halved until the border is known to NARROW."""
    places = [begin * (end / begin) ** (number / (points - 1)) for number in range(points)]
    found = [winner_at(place) for place in places]
    borders = [(begin, found[0])]
    for (left, before), (right, after) in pairwise(zip(places, found, strict=True)):
        borders += _halve(winner_at, (left, before), (right, after))
    ends = [place for place, _ in borders[1:]] + [end]
    return tuple(Interval(place, until, name) for (place, name), until in zip(borders, ends, strict=True))


def _halve(
    winner_at: Callable[[float], str], left: tuple[float, str], right: tuple[float, str]
) -> list[tuple[float, str]]:
    """Where the winner changes between two places, and who wins from there on."""
    if left[1] == right[1]:
        return []
    if right[0] < NARROW * left[0]:
        return [right]
    place = math.sqrt(left[0] * right[0])
    middle = (place, winner_at(place))
    return _halve(winner_at, left, middle) + _halve(winner_at, middle, right)
