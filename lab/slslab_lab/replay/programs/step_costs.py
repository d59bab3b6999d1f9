"""Measure the costs of an architecture's steps on recorded runs, for generated runs.

CPU times are means of the recorded steps of the same function, operation and phase. The first step of a run (for a
peer's functions: the first epoch) is slower and counted separately. Where requests of different sizes were recorded,
CPU time is a + b·bytes, with b from the largest ones; otherwise it grows with the number of requests. For an all-reduce
it grows with its bytes, and for a computation in proportion to its data, such as the number of summed gradients.
Nothing else grows: a request costs the same if its answer lists more names.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np

from slslab.errors import RequestError
from slslab.run.metrics import grouped
from slslab_lab.replay.kernel.kernel import TRANSITION
from slslab_lab.replay.kernel.program import Program, Track
from slslab_lab.replay.programs.recording import operation
from slslab_workers import patterns
from slslab_workers.architecture import Architecture
from slslab_workers.channels.polling import Poll
from slslab_workers.patterns import Activity, Pattern, Role, Slot, Workload
from slslab_workers.trace.operations import ALL_REDUCE

# Sizes count as different from this ratio on.
RATIO = 1.5
# A unit (see `unit_of`), op, phase, and whether it is in the first step.
Key = tuple[str, str, str, bool]


@dataclass(frozen=True)
class Cost:
    """CPU ns of one request or computation, per byte that it moves, and per byte of data that it processes; for the
    latter also the database's. `bytes` is the mean size of requests for which the pattern gives no size."""

    fixed: float
    per_byte: float
    per_work: float
    server_fixed: float
    server_per_work: float
    parallel: bool
    bytes: float


@dataclass(frozen=True)
class StepCosts:
    """Measured costs of an architecture with one model, options and memory size.

    `functions` are recorded tracks without their steps, by unit. `left_out` are optional activities that the model
    doesn't have.
    """

    architecture: Architecture
    workload: Workload
    costs: Mapping[Key, Cost]
    functions: Mapping[str, Track]
    left_out: frozenset[tuple[str, str, str]]
    polls: Poll
    poll_cpu_ns: Mapping[str, int]

    def pattern(self, **sizes: Any) -> Pattern:
        """Return the architecture's pattern with other `workers`, `batches` or `epochs`."""
        pattern = self.architecture.pattern(replace(self.workload, **sizes))
        assert pattern is not None, "costs need a pattern"
        return pattern

    def of(self, function: str, op: str, phase: str, first: bool) -> Cost:
        """Return the cost of an operation, or of the most similar one, of the same phase or function; RequestError
        without one."""
        alike = [key for key in self.costs if key[1] == op]
        if alike:
            return self.costs[max(alike, key=lambda key: (key[2] == phase, key[0] == function, key[3] == first))]
        raise RequestError(
            f"The recording has no {op} (phase {phase}), so its cost with more workers is unknown.",
            "record a run with 2 workers or more, 3 batches or more, and no other options.",
        )


def measure(programs: Sequence[Program], architecture: Architecture, workload: Workload) -> StepCosts:
    """Return the costs of recorded programs of one plan. Its workers, batches and epochs are the programs', the rest of
    it is `workload`.

    RequestError without a pattern, or if workers handed over to other invocations; PlanError for options that the
    pattern doesn't cover.
    """
    samples = [(program, _pattern_of(program, architecture, workload)) for program in programs]
    return _Measurement(samples, architecture).costs()


def _pattern_of(program: Program, architecture: Architecture, workload: Workload) -> Pattern:
    """Return the pattern of a recording, with the share of gradients that its filter let through."""
    workload = replace(workload, workers=program.workers, batches=program.batches, epochs=program.epochs)
    pattern = architecture.pattern(workload)
    if pattern is None:
        raise RequestError(
            f"{architecture.name} does not say who sends what to whom, so it cannot be replayed with other workers.",
            "give the architecture a pattern (docs/own.md), or choose the recorded number of workers.",
        )
    if pattern.filtered is None:
        return pattern
    steps = (step for track in program.tracks for step in track.flat_steps())
    sent = sum(step.requests for step in steps if (step.op, step.phase) == pattern.filtered)
    scaled = architecture.pattern(replace(workload, share=sent / (workload.workers * workload.steps)))
    assert scaled is not None
    return scaled


def unit_of(role: Role) -> str:
    """Return the unit of measurement: a function, or else the kind of track."""
    return role.function or role.kind


def name_of(activity: Activity) -> str:
    return operation({"op": activity.op, "overhead": not activity.protocol})


def is_request(op: str) -> bool:
    return "." in op or op == TRANSITION


@dataclass
class _Tally:
    """Recorded figures of a key: number, CPU ns, and work by the pattern; and each request's size and CPU ns."""

    times: float = 0.0
    cpu_ns: float = 0.0
    work: float = 0.0
    server_ns: float = 0.0
    parallel: bool = False
    sizes: list[tuple[float, float]] = field(default_factory=list)


class _Measurement:
    def __init__(self, samples: Sequence[tuple[Program, Pattern]], architecture: Architecture) -> None:
        self.samples = samples
        self.architecture = architecture
        self.recorded: dict[Key, _Tally] = defaultdict(_Tally)
        self.tracks: dict[str, list[Track]] = defaultdict(list)
        # By key without `first`: sizes that the patterns give, and how often required and optional activities occur.
        self.known_sizes: dict[tuple[str, str, str], set[float]] = defaultdict(set)
        self.required: dict[tuple[str, str, str], int] = defaultdict(int)
        self.optional: dict[tuple[str, str, str], int] = defaultdict(int)

    def costs(self) -> StepCosts:
        for program, pattern in self.samples:
            self._tally(program, pattern)
        self._expect()
        slopes = self._slopes()
        functions = {
            unit: replace(
                tracks[0],
                steps=(),
                awaits=(),
                opens=(),
                init_cpu_ns=round(fmean(track.init_cpu_ns for track in tracks)),
            )
            for unit, tracks in self.tracks.items()
        }
        first, pattern = self.samples[0]
        return StepCosts(
            self.architecture,
            pattern.workload,
            {key: self._cost(key, tally, slopes) for key, tally in self.recorded.items()},
            functions,
            self._left_out(),
            first.polls,
            first.poll_cpu_ns,
        )

    def _tally(self, program: Program, pattern: Pattern) -> None:
        each = {unit_of(role): role.each for role in pattern.roles}
        seen: set[tuple[str, int]] = set()
        for track in program.tracks:
            unit = _recorded_unit(track, each)
            self.tracks[unit].append(track)
            if each[unit] == "run":
                if (unit, track.worker) in seen:
                    raise RequestError(
                        f"Worker {track.worker} trained in several invocations, so the run can't be scaled.",
                        "record a run with --mode long-running in which functions don't time out.",
                    )
                seen.add((unit, track.worker))
            for step in track.flat_steps():
                first = step.epoch == 0 and (each[unit] != "run" or step.step == 0)
                tally = self.recorded[unit, step.op, step.phase, first]
                times = max(1, step.requests)
                tally.times += times
                tally.cpu_ns += step.cpu_ns
                tally.server_ns += step.server_cpu_ns
                tally.parallel = tally.parallel or step.parallel
                tally.sizes += [(step.bytes / times, step.cpu_ns / times)] * times

    def _expect(self) -> None:
        expected: dict[Key, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for _, pattern in self.samples:
            for role in pattern.roles:
                unit = unit_of(role)
                for slot, parts in patterns.slots(role, pattern.workload):
                    for activity in patterns.activities(parts, slot):
                        op = name_of(activity)
                        times = activity.times * len(role.ranks)
                        (self.optional if activity.optional else self.required)[unit, op, activity.phase] += times
                        if activity.bytes:
                            self.known_sizes[unit, op, activity.phase].add(activity.bytes / activity.times)
                        if not activity.optional:
                            key = (unit, op, activity.phase, is_first(role, slot))
                            before = expected[key]
                            expected[key] = (before[0] + times, before[1] + activity.work * len(role.ranks))
        for key, (times, work) in expected.items():
            if key in self.recorded and times:
                self.recorded[key].work = work * self.recorded[key].times / times

    def _slopes(self) -> dict[tuple[str, str], tuple[float, float]]:
        """Return the largest request's bytes and CPU ns per byte, by function and op, over requests in all phases."""
        requests = grouped(
            ((unit, op), sample)
            for (unit, op, _, first), tally in self.recorded.items()
            # First requests are slower at any size.
            if is_request(op) and not first
            for sample in tally.sizes
        )
        return {key: (max(sizes)[0], _slope(sizes)) for key, sizes in requests.items()}

    def _cost(self, key: Key, tally: _Tally, slopes: Mapping[tuple[str, str], tuple[float, float]]) -> Cost:
        times, cpu_ns, work = tally.times, tally.cpu_ns, tally.work
        moved = sum(size for size, _ in tally.sizes)
        per_byte = per_work = 0.0
        if is_request(key[1]):
            largest, slope = slopes.get((key[0], key[1]), (0.0, 0.0))
            # Among small requests (a log that grows) the slope would be noise.
            if RATIO * max(tally.sizes)[0] >= largest:
                slope = _slope(tally.sizes) or slope
            # An all-reduce's messages are parts of one vector: the more there are, the smaller they get.
            slope = math.inf if key[1] == ALL_REDUCE else slope
            per_byte = min(slope, cpu_ns / moved) if moved else 0.0
        elif work:
            per_work = cpu_ns / work
        return Cost(
            fixed=max(0.0, cpu_ns - per_byte * moved - per_work * work) / times,
            per_byte=per_byte,
            per_work=per_work,
            server_fixed=0.0 if work else tally.server_ns / times,
            server_per_work=tally.server_ns / work if work else 0.0,
            parallel=tally.parallel,
            bytes=self._open_size(key, tally),
        )

    def _open_size(self, key: Key, tally: _Tally) -> float:
        """Return the mean size of requests for which the pattern gives no size; otherwise of all requests."""
        known = self.known_sizes[key[:3]]
        sizes = [size for size, _ in tally.sizes]
        open_sizes = [size for size in sizes if not any(size < one * RATIO and one < size * RATIO for one in known)]
        return fmean(open_sizes or sizes)

    def _left_out(self) -> frozenset[tuple[str, str, str]]:
        recorded: dict[tuple[str, str, str], float] = defaultdict(float)
        for key, tally in self.recorded.items():
            recorded[key[:3]] += tally.times
        return frozenset(
            key for key, times in self.optional.items() if recorded[key] < self.required[key] + times / 2 or not times
        )


def _recorded_unit(track: Track, units: Iterable[str]) -> str:
    """Return a recorded track's unit: the pattern's function at the end of its name, or the kind of track."""
    if track.kind == "invocation":
        matching = [unit for unit in units if track.name.endswith(f"-{unit}")]
        if matching:
            return max(matching, key=len)
    if track.kind not in units:
        raise RequestError(
            f"The recording has {track.name}, but the architecture's pattern doesn't.",
            "replay it with the version of the architecture that made it.",
        )
    return track.kind


def is_first(role: Role, slot: Slot) -> bool:
    """Return whether this is the run's first step, or its first epoch if every epoch has its own invocations."""
    return slot.epoch == 0 and (role.each != "run" or slot.step == 0)


def _slope(sizes: Sequence[tuple[float, float]]) -> float:
    """Return the CPU ns per byte by least squares; 0 if all sizes are similar or the result would be negative."""
    bytes_, cpu_ns = np.array(sizes).T
    if bytes_.max() < RATIO * bytes_.min() or not bytes_.any():
        return 0.0
    centred = bytes_ - bytes_.mean()
    return max(0.0, float(centred @ cpu_ns / (centred @ centred)))
