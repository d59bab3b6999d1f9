"""How functions with GPUs compare with functions on CPUs and with instances with GPUs, over model sizes and workers."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from slslab.run.metrics import grouped
from slslab_lab.studies.atlas.grid import OBJECTIVES, WORKERS, Grid, best, pair_crossings
from slslab_lab.studies.atlas.points import Point, megabytes, significant
from slslab_lab.studies.experiments import GPU

MINE, OTHERS = "GPU functions", ("CPU functions", "GPU instances")


def compare(grid: Grid) -> Iterator[dict[str, Any]]:
    """Yield each comparison: by objective and workers, the 80 % range of GPU functions ÷ the best other point at each
    size, and the sizes in MB at which the better one changes (interpolated as in `Crossing`)."""
    leading = {(*place, objective, kind): point for place, objective, kind, point in leaders(grid.points)}
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


def leaders(every: Sequence[Point]) -> Iterator[tuple[tuple[int, int], str, str, Point]]:
    """Yield the best point of each kind by each objective, at the places that have functions with GPUs."""
    places = grouped(((point.parameters, point.workers), point) for point in every if point.system.equal)
    for place, those in places.items():
        kinds = grouped((kind_of(point), point) for point in those)
        for (kind, of_kind), objective in product(kinds.items(), OBJECTIVES):
            if MINE in kinds and kind in (MINE, *OTHERS):
                yield place, objective, kind, best(of_kind, objective)


def kind_of(point: Point) -> str:
    """Return the kind of a point's system; empty for instances without GPUs."""
    if point.system.platform:
        return MINE
    return OTHERS[0] if not point.system.instances else OTHERS[1] if point.system.architecture == GPU else ""
