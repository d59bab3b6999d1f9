"""What the steps of an architecture cost, measured on recorded runs: what generated runs are made of.

CPU times are means of the recorded steps of the same function, operation and phase, by itself for the first step of a
run (of a peer's functions, the first epoch), which is slower. Where requests of different sizes were recorded, CPU time
is a + b·bytes, b being that of the largest ones, else it goes with the number of requests. A computation over more
data, such as the sum of more gradients, takes as much longer. Nothing else grows: a request that is answered with a
longer list costs as much.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from slslab.errors import RequestError
from slslab.replay.kernel import TRANSITION
from slslab.replay.program import Gathering, Program, Step, Track
from slslab.replay.recording import operation
from slslab_workers import communication
from slslab_workers.architecture import Architecture
from slslab_workers.communication import Activity, Pattern, Place, Role, Workload
from slslab_workers.mlless.tuner import non_negative_least_squares
from slslab_workers.plan import Value

# Sizes count as different from this ratio on, and as the same one below it.
RATIO = 1.5
# A function (or kind of track that is none), op, phase, and whether it is in the first step.
Key = tuple[str, str, str, bool]


@dataclass(frozen=True)
class Cost:
    """CPU ns of one request or computation, of each byte that it moves, and of each byte of data that it goes over; of
    the latter also those of the database. `bytes` is the mean size of requests whose size the pattern leaves open."""

    fixed: float
    per_byte: float
    per_work: float
    server_fixed: float
    server_per_work: float
    parallel: bool
    bytes: float


@dataclass(frozen=True)
class StepCosts:
    """What was measured of an architecture with one model, options and memory size.

    `functions` are recorded tracks without their steps, by function. `left_out` are what the model has none of."""

    room: Architecture
    workload: Workload
    costs: Mapping[Key, Cost]
    functions: Mapping[str, Track]
    left_out: frozenset[tuple[str, str, str]]
    polls: tuple[float, float, float]
    poll_cpu_ns: Mapping[str, int]

    def of(self, function: str, op: str, phase: str, first: bool) -> Cost:
        """The cost of an operation, or else of the one most like it, of the same phase or function; RequestError if
        there is none."""
        if found := self.costs.get((function, op, phase, first)) or self.costs.get((function, op, phase, not first)):
            return found
        alike = [key for key in self.costs if key[1] == op]
        if alike:
            return self.costs[max(alike, key=lambda key: (key[2] == phase, key[0] == function, key[3] == first))]
        raise RequestError(
            f"The recording has no {op} (phase {phase}), so what it costs with more workers cannot be said.",
            "record a run with 2 workers or more, 3 batches or more, and no other options.",
        )


def measure(
    programs: Sequence[Program], room: Architecture, parameters: int, options: Mapping[str, Value]
) -> StepCosts:
    """The costs of recorded programs of one architecture, with the same options, model and memory size.

    RequestError if it has no pattern, or if workers handed over to other invocations; PlanError for options that its
    pattern does not cover.
    """
    samples = [(program, _pattern_of(program, room, parameters, options)) for program in programs]
    return _Measurement(samples, room).costs()


def _pattern_of(program: Program, room: Architecture, parameters: int, options: Mapping[str, Value]) -> Pattern:
    """The pattern of what was recorded, with the share of the gradients that its filter let pass."""
    workload = Workload(program.workers, program.batches, program.epochs, parameters, options)
    pattern = room.pattern(workload)
    if pattern is None:
        raise RequestError(
            f"{room.name} does not say who sends what to whom, so it cannot be replayed with other workers.",
            "give the architecture a pattern (docs/architectures.md), or choose the recorded number of workers.",
        )
    if pattern.filtered is None:
        return pattern
    op, phase = pattern.filtered
    steps = (step for track in program.tracks for step in _flat(track.steps))
    sent = sum(step.requests for step in steps if (step.op, step.phase) == (op, phase))
    scaled = room.pattern(replace(workload, share=sent / (workload.workers * workload.steps)))
    assert scaled is not None
    return scaled


def _flat(items: Iterable[Step | Gathering]) -> Iterator[Step]:
    for item in items:
        if isinstance(item, Step):
            yield item
        else:
            yield from itertools.chain.from_iterable(item.groups)


def unit_of(role: Role) -> str:
    """What is measured together: a function, or the kind of a track that is none, or the architecture's first one."""
    return role.function or role.kind


def name_of(activity: Activity) -> str:
    """What the program calls an activity's operation."""
    return operation({"op": activity.op, "overhead": not activity.protocol})


def is_request(op: str) -> bool:
    """Whether a program's step with this operation counts as requests."""
    return "." in op or op == TRANSITION


@dataclass
class _Tally:
    """What was recorded of a key: by program number, CPU ns, and work by the pattern; each request's size and CPU."""

    times: list[float]
    cpu_ns: list[float]
    work: list[float]
    server_ns: float = 0.0
    parallel: bool = False
    sizes: list[tuple[float, float]] = field(default_factory=list)


class _Measurement:
    def __init__(self, samples: Sequence[tuple[Program, Pattern]], room: Architecture) -> None:
        self.samples = samples
        self.room = room
        self.recorded: dict[Key, _Tally] = {}
        self.tracks: dict[str, list[Track]] = defaultdict(list)
        # By key without its place: sizes that the patterns give, how often what is there in any case, and what may be.
        self.given: dict[tuple[str, str, str], set[float]] = defaultdict(set)
        self.required: dict[tuple[str, str, str], int] = defaultdict(int)
        self.optional: dict[tuple[str, str, str], int] = defaultdict(int)

    def costs(self) -> StepCosts:
        for number, (program, pattern) in enumerate(self.samples):
            self._tally(number, program, pattern)
            self._expect(number, pattern)
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
            self.room,
            pattern.workload,
            {key: self._cost(key, tally, slopes) for key, tally in self.recorded.items()},
            functions,
            self._left_out(),
            first.polls,
            first.poll_cpu_ns,
        )

    def _of(self, key: Key) -> _Tally:
        if key not in self.recorded:
            count = len(self.samples)
            self.recorded[key] = _Tally([0.0] * count, [0.0] * count, [0.0] * count)
        return self.recorded[key]

    def _tally(self, number: int, program: Program, pattern: Pattern) -> None:
        """Add up what was recorded."""
        each = {unit_of(role): role.each for role in pattern.roles}
        seen: set[tuple[str, int]] = set()
        for track in program.tracks:
            unit = _recorded_unit(track, each)
            self.tracks[unit].append(track)
            if each[unit] == "run":
                if (unit, track.worker) in seen:
                    raise RequestError(
                        f"Worker {track.worker} trained in several invocations, which cannot be scaled.",
                        "record a run with --mode long-running whose functions do not time out.",
                    )
                seen.add((unit, track.worker))
            for step in _flat(track.steps):
                first = step.epoch == 0 and (each[unit] != "run" or step.step == 0)
                tally = self._of((unit, step.op, step.phase, first))
                times = max(1, step.requests)
                tally.times[number] += times
                tally.cpu_ns[number] += step.cpu_ns
                tally.server_ns += step.server_cpu_ns
                tally.parallel = tally.parallel or step.parallel
                tally.sizes += [(step.bytes / times, step.cpu_ns / times)] * times

    def _expect(self, number: int, pattern: Pattern) -> None:
        """Add what the pattern says of the same run."""
        expected: dict[Key, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for role in pattern.roles:
            unit = unit_of(role)
            for place, parts in communication.places(role, pattern.workload):
                for activity in communication.activities(parts, place):
                    op = name_of(activity)
                    times = activity.times * len(role.ranks)
                    (self.optional if activity.optional else self.required)[unit, op, activity.phase] += times
                    if activity.bytes:
                        self.given[unit, op, activity.phase].add(activity.bytes / activity.times)
                    if not activity.optional:
                        key = (unit, op, activity.phase, is_first(role, place))
                        known = expected[key]
                        expected[key] = (known[0] + times, known[1] + activity.work * len(role.ranks))
        for key, (times, work) in expected.items():
            if key in self.recorded and times:
                self.recorded[key].work[number] += work * self.recorded[key].times[number] / times

    def _slopes(self) -> dict[tuple[str, str], tuple[float, float]]:
        """The largest request's bytes and CPU ns of a byte, by function and op, over requests in all phases."""
        found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for (unit, op, _, first), tally in self.recorded.items():
            # First requests are slower whatever their size.
            if is_request(op) and not first:
                found[unit, op] += tally.sizes
        return {key: (max(sizes)[0], _slope(sizes)) for key, sizes in found.items()}

    def _cost(self, key: Key, tally: _Tally, slopes: Mapping[tuple[str, str], tuple[float, float]]) -> Cost:
        times, cpu_ns, work = sum(tally.times), sum(tally.cpu_ns), sum(tally.work)
        moved = sum(size for size, _ in tally.sizes)
        per_byte = per_work = 0.0
        if is_request(key[1]):
            largest, slope = slopes.get((key[0], key[1]), (0.0, 0.0))
            # Among small requests alone (a log that grows) nothing but noise may seem to go with their size.
            if RATIO * max(tally.sizes)[0] >= largest:
                slope = _slope(tally.sizes) or slope
            per_byte = min(slope, cpu_ns / moved) if moved else 0.0
        elif work:
            per_work = _per_work(tally)
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
        """The mean size of those requests whose size the pattern does not give; of all, if it gives all."""
        given = self.given[key[:3]]
        sizes = [size for size, _ in tally.sizes]
        others = [size for size in sizes if not any(size < one * RATIO and one < size * RATIO for one in given)]
        return fmean(others or sizes)

    def _left_out(self) -> frozenset[tuple[str, str, str]]:
        """What is optional and was not recorded."""
        recorded: dict[tuple[str, str, str], float] = defaultdict(float)
        for key, tally in self.recorded.items():
            recorded[key[:3]] += sum(tally.times)
        return frozenset(
            key for key, times in self.optional.items() if recorded[key] < self.required[key] + times / 2 or not times
        )


def _recorded_unit(track: Track, units: Iterable[str]) -> str:
    """The function of a recorded track among those of the pattern, by the end of its name, or the kind of track."""
    if track.kind == "invocation":
        named = [unit for unit in units if track.name.endswith(f"-{unit}")]
        if named:
            return max(named, key=len)
    if track.kind not in units:
        raise RequestError(
            f"The recording has {track.name}, which the architecture's pattern knows nothing of.",
            "replay it with the version of the architecture that made it.",
        )
    return track.kind


def is_first(role: Role, place: Place) -> bool:
    """Whether this is the first step of the run, or the first epoch where every epoch has invocations of its own."""
    return place.epoch == 0 and (role.each != "run" or place.step == 0)


def _slope(sizes: Sequence[tuple[float, float]]) -> float:
    """CPU ns of a byte by least squares, 0 if all sizes are about the same or it would be negative."""
    bytes_, cpu_ns = np.array(sizes).T
    if bytes_.max() < RATIO * bytes_.min() or not bytes_.any():
        return 0.0
    centred = bytes_ - bytes_.mean()
    return max(0.0, float(centred @ cpu_ns / (centred @ centred)))


def _per_work(tally: _Tally) -> float:
    """CPU ns of a byte of data: what remains of runs of different sizes beside a time for each computation, or all."""
    rows = [(t, w, c) for t, w, c in zip(tally.times, tally.work, tally.cpu_ns, strict=True) if t and w]
    ratios = [work / times for times, work, _ in rows]
    if max(ratios) < RATIO * min(ratios):
        return sum(tally.cpu_ns) / sum(tally.work)
    table = np.array(rows)
    # Every run counts alike.
    table /= table[:, :1]
    scale = table[:, 1].max()
    columns = np.column_stack([table[:, 0], table[:, 1] / scale])
    return float(non_negative_least_squares(columns, table[:, 2])[1] / scale)
