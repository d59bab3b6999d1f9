"""All points of the atlas, the best of them by each figure, and where another system becomes the best."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise, product
from typing import Any

from slslab.run.metrics import grouped
from slslab_lab.runs.sweeps.results import Results
from slslab_lab.runs.sweeps.sweep import sweep
from slslab_lab.studies.atlas.costs import SystemCosts, measure
from slslab_lab.studies.atlas.points import Job, Point, gpu_refusal, megabytes, points, refusal, significant
from slslab_lab.studies.atlas.recordings import Recordings
from slslab_lab.studies.atlas.systems import System
from slslab_lab.studies.experiments import BATCH_SIZE, GPU

# Parameters of the models: LeNet's, MobileNet's, ResNet-18's and ResNet-50's, and sizes between and beyond them.
PARAMETERS = (15_000, 61_706, 250_000, 1_000_000, 3_217_226, 6_000_000, 11_173_962, 23_520_842)
WORKERS = (2, 4, 8, 16, 48, 96)
# Two meanings of best: the fastest, and the cheapest.
OBJECTIVES = ("seconds", "usd")
# The compared groups: systems that learn the same, and all.
EQUAL, ALL = "equal", "all"
GROUPS = (EQUAL, ALL)
# Functions with GPUs, and what they are compared with.
MINE, OTHERS = "GPU functions", ("CPU functions", "GPU instances")

# The parameters of a model, and a number of workers.
Shape = tuple[int, int]


@dataclass(frozen=True)
class Refusal:
    """A system that can't train a model with these workers, and why; it can train `largest` parameters."""

    system: System
    workers: int
    reason: str
    largest: int


@dataclass(frozen=True)
class Grid:
    """The points of all systems, sizes and numbers of workers, and the refused combinations."""

    points: Sequence[Point]
    refusals: Sequence[Refusal]


def compute(
    recordings: Recordings,
    job: Job,
    report: Callable[[str, int, int], None],
    on: str | None = None,
) -> Grid:
    """Play every point, and find the ranges of the leading ones; `report` receives the progress.

    With `on` None, a few thousand points take a minute in this process; otherwise `on` says where to compute them
    (`slslab_lab.runs.sweeps.sweep`).
    """
    shapes = list(product(job.systems, sizes(job), WORKERS))
    playing, ranging = partial(_play, recordings, job), partial(_play_ranges, recordings, job)

    def results(function: Callable[[Any], Any]) -> Results | None:
        return None if on is None else Results(function, [*recordings.digests(), repr(job)])

    played = sweep(playing, shapes, on, partial(report, "playing points"), results(playing))
    refused = [each for each in played if isinstance(each, Refusal)]
    found = [point for each in played if not isinstance(each, Refusal) for point in each]
    leading = dict.fromkeys([*leaders(found), *(point for *_, point in leaders_of_kinds(found))])
    led = grouped(((point.system, point.parameters, point.workers), point.memory_mb) for point in leading)
    best_sizes = [(shape, tuple(sizes)) for shape, sizes in led.items()]
    ranges = sweep(ranging, best_sizes, on, partial(report, "finding ranges"), results(ranging))
    ranged = {_key(point): point for those in ranges for point in those}
    return Grid([ranged.get(_key(point), point) for point in found], refused)


def sizes(job: Job) -> list[int]:
    """Return the parameters of the models that are played, the job's own among them."""
    return sorted({*PARAMETERS, job.parameters} - {0})


def _key(point: Point) -> tuple[System, int, int, int]:
    return point.system, point.parameters, point.workers, point.memory_mb


def contests(every: Sequence[Point]) -> Iterator[tuple[str, str, list[Point]]]:
    """Yield the points of each shape, by group and objective."""
    for group, objective in product(GROUPS, OBJECTIVES):
        for those in _by_shape(every, group).values():
            yield group, objective, those


def _by_shape(every: Iterable[Point], group: str) -> dict[Shape, list[Point]]:
    return grouped(((point.parameters, point.workers), point) for point in members(every, group))


def leaders(every: Sequence[Point]) -> Iterator[Point]:
    """Yield the best point of each shape and the next system's best point, for all groups and objectives."""
    for _, objective, those in contests(every):
        won = best(those, objective)
        yield from filter(None, (won, runner_up(those, won, objective)))


def _play(recordings: Recordings, job: Job, shape: tuple[System, int, int]) -> Refusal | tuple[Point, ...]:
    system, parameters, workers = shape
    costs = _costs(system, recordings)
    if system.platform and job.platform is not None:
        if reason := gpu_refusal(job.platform, parameters, workers):
            known = [size for size in sizes(job) if not gpu_refusal(job.platform, size, workers)]
            largest = max((size for size in known if size < parameters), default=0)
            return Refusal(system, workers, reason, largest)
    elif reason := refusal(costs, parameters, workers):
        largest = bisect_left(range(parameters), True, key=lambda size: bool(refusal(costs, size, workers))) - 1
        return Refusal(system, workers, reason, largest)
    return tuple(points(costs, parameters, workers, job))


def _play_ranges(
    recordings: Recordings, job: Job, led: tuple[tuple[System, int, int], tuple[int, ...]]
) -> tuple[Point, ...]:
    (system, parameters, workers), sizes = led
    return tuple(points(_costs(system, recordings), parameters, workers, job, sizes))


# Shapes are in the order of their systems.
@lru_cache(maxsize=1)
def _costs(system: System, recordings: Recordings) -> SystemCosts:
    return measure(system, recordings, BATCH_SIZE)


def members(every: Iterable[Point], group: str) -> Iterator[Point]:
    """Yield the points of a group's systems."""
    return (point for point in every if group == ALL or point.system.equal)


def best(every: Iterable[Point], objective: str) -> Point:
    """Return the point with the lowest figure; among equals, the lower one by the other figure."""
    other = next(name for name in OBJECTIVES if name != objective)
    return min(every, key=lambda point: (getattr(point, objective), getattr(point, other)))


def runner_up(every: Iterable[Point], won: Point, objective: str) -> Point | None:
    """Return the best point of the other systems, if any."""
    others = [point for point in every if point.system != won.system]
    return best(others, objective) if others else None


def crossings(grid: Grid, group: str, objective: str) -> Iterator[dict[str, Any]]:
    """Yield for JSON where the best system changes, by number of workers and rising size: `first` is best below
    `megabytes`, `second` above. Interpolated between two sizes of the grid, which may be `extrapolated`.

    Where no anchor of a GPU reaches, its functions are `unknown`: "beyond" the size for `first`, "below" for `second`.
    """
    won = {shape: best(those, objective) for shape, those in _by_shape(grid.points, group).items()}
    own = least(members(grid.points, group), objective)
    limits = {(each.system.name, each.workers): each.largest for each in grid.refusals}
    for workers in WORKERS:
        for low, high in pairwise(size for size in PARAMETERS if (size, workers) in won):
            ends = won[low, workers], won[high, workers]
            first, second = (point.system.name for point in ends)
            if first == second:
                continue
            keys = [(name, size, workers) for size in (low, high) for name in (first, second)]
            figures, unknown = [own[key] for key in keys if key in own], ""
            if len(figures) == len(keys):
                parameters = _between(low, high, figures)
            else:
                # Where the first can't train larger models, or the second's smaller ones can't be modelled.
                parameters = limits.get((first, workers)) or high
                unknown = "beyond" if ends[0].system.platform else "below" if ends[1].system.platform else ""
            yield {
                **{"group": group, "objective": objective, "workers": workers},
                "megabytes": significant(megabytes(parameters)),
                "first": first,
                "second": second,
                "extrapolated": any(point.reasons for point in ends),
                **({"unknown": unknown} if unknown else {}),
            }


def least(every: Iterable[Point], figure: str) -> dict[tuple[str, int, int], float]:
    """Return the lowest value of a figure over memory sizes, by system, parameters and workers."""
    of_system = grouped(((point.system.name, point.parameters, point.workers), point) for point in every)
    return {key: min(getattr(point, figure) for point in those) for key, those in of_system.items()}


def pair_crossings(figures: Mapping[tuple[str, int, int], float], first: str, second: str, workers: int) -> list[float]:
    """Return the sizes in MB at which the better of two systems changes, interpolated as in `crossings`."""
    at = [size for size in PARAMETERS if all((name, size, workers) in figures for name in (first, second))]
    found = []
    for low, high in pairwise(at):
        values = [figures[name, size, workers] for size in (low, high) for name in (first, second)]
        if (values[0] < values[1]) != (values[2] < values[3]):
            found.append(megabytes(_between(low, high, values)))
    return found


def _between(low: int, high: int, figures: Sequence[float]) -> float:
    """Return the number of parameters at which two systems are equal: where the logarithm of their ratio is 0, if it is
    linear in the logarithm of the parameters.

    `figures` are both systems' at `low`, where one is better, and then at `high`, where the other one is.
    """
    before, after = (math.log(first / second) for first, second in (figures[:2], figures[2:]))
    return float(low * (high / low) ** (before / (before - after)))


def compare_gpus(grid: Grid) -> Iterator[dict[str, Any]]:
    """Yield, by objective, workers and other kind, the 80 % range of GPU functions ÷ the best point of that kind at
    each size, and the sizes in MB at which the better one changes (interpolated as in `crossings`)."""
    leading = {(*shape, objective, kind): point for shape, objective, kind, point in leaders_of_kinds(grid.points)}
    for objective, workers, other in product(OBJECTIVES, WORKERS, OTHERS):
        sizes = sorted({size for size, at, of, kind in leading if (at, of, kind) == (workers, objective, MINE)})
        ratios = []
        for size in sizes:
            mine, theirs = (leading[size, workers, objective, kind] for kind in (MINE, other))
            low, high = mine.times(theirs, objective)
            ratios.append({"megabytes": significant(megabytes(size)), "low": low, "high": high})
        if ratios:
            figures = {
                (kind, size, workers): float(getattr(leading[size, workers, objective, kind], objective))
                for size, kind in product(sizes, (MINE, other))
            }
            cross = map(significant, pair_crossings(figures, MINE, other, workers))
            yield {"objective": objective, "workers": workers, "against": other, "ratios": ratios, "cross": list(cross)}


def leaders_of_kinds(every: Sequence[Point]) -> Iterator[tuple[tuple[int, int], str, str, Point]]:
    """Yield the best point of each kind by each objective, at the shapes that have functions with GPUs."""
    shapes = grouped(((point.parameters, point.workers), point) for point in every if point.system.equal)
    for shape, those in shapes.items():
        kinds = grouped((_kind(point), point) for point in those)
        for (kind, of_kind), objective in product(kinds.items(), OBJECTIVES):
            if MINE in kinds and kind in (MINE, *OTHERS):
                yield shape, objective, kind, best(of_kind, objective)


def _kind(point: Point) -> str:
    """Return the kind of a point's system; empty for instances without GPUs."""
    if point.system.platform:
        return MINE
    return OTHERS[0] if not point.system.instances else OTHERS[1] if point.system.architecture == GPU else ""
