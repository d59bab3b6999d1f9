"""Compare the papers' crossings with the atlas's: the model sizes between which another system becomes better.

A crossing is read from published figures: the two closest sizes with different winners.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slslab.run.metrics import grouped
from slslab_lab.papers.paper import Row, Table, load_paper
from slslab_lab.studies.atlas.grid import ALL, WORKERS, Grid, least, members, pair_crossings
from slslab_lab.studies.atlas.points import megabytes, significant
from slslab_workers.models import spec
from slslab_workers.plan import Value
from slslab_workers.training.algorithms import message_length

FUNCTIONS, GPU = "functions", "gpu"
# Barrak et al. compare instances with these.
SERVERLESS = ("spirt", "scatterreduce/s3/ga", "allreduce/s3/ga", "mlless")
S3, MEMCACHED = "allreduce/s3/ga", "allreduce/memcached/ga"
SERVER, TABLE = "allreduce/parameter-server/ga", "allreduce/dynamodb/ga"
# Crossings that are published, or follow from figures, on axes that the atlas doesn't have.
ELSEWHERE = (
    (
        "Jiang et al., SIGMOD 2021, Section 5.3 and Figure 11: functions against instances",
        "by formulas without printed constants, and by drawings that only show orders",
    ),
    (
        "Petrescu et al. 2023: KubeML against TensorFlow, slower from minibatches of 128 (LeNet) or 256 (ResNet-34) on",
        "by the size of a minibatch, on GPUs",
    ),
    (
        "Barrak 2026: GradsSharding against the trees λ-FL and LIFL, which don't fit at 3,008 MB from GPT-2 Large on",
        "by the memory of functions that average and don't train",
    ),
)


@dataclass(frozen=True)
class Published:
    """A published crossing by one figure: `first` is better up to `low` MB, `second` from `high` MB on.

    Without `high`, no crossing was seen up to `low`; without `low`, none from `high` on.
    """

    source: str
    figure: str
    workers: int
    first: str
    second: str
    low: float | None
    high: float | None

    def verdict(self, modelled: Sequence[float], ends: Sequence[str]) -> str:
        """Return `agrees` if the atlas has the crossing, else `differs`: `modelled` are its crossings of the same two
        systems in MB, `ends` the better systems at the smallest and at the largest model that it has for both."""
        within = all((self.low or 0.0) <= each <= (self.high or math.inf) for each in modelled)
        if self.low is not None and self.high is not None:
            within = within and len(modelled) == 1
        as_published = (
            self.low is None or ends[0] == self.first,
            self.high is None or ends[1] == self.second,
        )
        return "agrees" if within and all(as_published) else "differs"


def published() -> Iterator[Published]:
    """Yield the published crossings of the papers' files."""
    yield from _barrak_gpu()
    yield from _barrak_patterns()
    yield from _lambdaml()


def _barrak_gpu() -> Iterator[Published]:
    """Yield where instances become better than the best of the four architectures with functions."""
    table = load_paper("barrak-2025").table("table2")
    for column, figure in (("total_cost", "epoch_usd"), ("epoch_seconds", "epoch_seconds")):
        found = []
        for model, rows in grouped((str(table.inputs_of(row)["model"]), row) for row in table.rows).items():
            figures = {row.name: float(row.published[column]) for row in rows}
            size = megabytes(spec(model).parameters)
            found.append((size, figures.pop("GPU") < min(figures.values())))
        yield _crossing(f"Barrak et al. 2025, {table.source}", figure, 4, FUNCTIONS, GPU, found)


def _barrak_patterns() -> Iterator[Published]:
    """Yield where ScatterReduce becomes faster than AllReduce, from the rows with printed seconds."""
    table = load_paper("barrak-2025").table("fig2")
    for workers, rows in _by_workers(table, [row for row in table.rows if "allreduce" in row.published]).items():
        found = [
            (int(table.inputs_of(row)["bytes"]) / 1e6, row.published["scatterreduce"] < row.published["allreduce"])
            for row in rows
        ]
        second = "scatterreduce/s3/ga"
        yield _crossing(f"Barrak et al. 2025, {table.source}", "epoch_seconds", workers, S3, second, found)


def _lambdaml() -> Iterator[Published]:
    """Yield where another channel becomes faster than S3, by number of workers."""
    table = load_paper("lambdaml-2021").table("table1")

    def size(row: Row) -> float:
        inputs = table.inputs_of(row)
        clusters = int(inputs.get("clusters", 0))
        names = {"LR": "lr-28", "KMeans": f"kmeans-{clusters}x28", "MobileNet": "mobilenet"}
        parameters = spec(names[str(inputs["model"])]).parameters
        options: Mapping[str, Value] = {"algorithm": "em", "clusters": clusters} if clusters else {}
        return megabytes(message_length(options, parameters))

    columns = {"memcached_slowdown": MEMCACHED, "dynamodb_slowdown": TABLE, "vm_ps_slowdown": SERVER}
    for workers, rows in _by_workers(table, table.rows).items():
        for column, system in columns.items():
            found = [(size(row), row.published[column] < 1) for row in rows if column in row.published]
            # With the start of the channel's node, and without.
            for figure in ("seconds", "epoch_seconds"):
                yield _crossing(f"Jiang et al., SIGMOD 2021, {table.source}", figure, workers, S3, system, found)


def _by_workers(table: Table, rows: Sequence[Row]) -> dict[int, list[Row]]:
    return grouped((int(table.inputs_of(row)["workers"]), row) for row in rows)


def _crossing(
    source: str, figure: str, workers: int, first: str, second: str, found: Sequence[tuple[float, bool]]
) -> Published:
    low = max((size for size, is_second in found if not is_second), default=None)
    high = min((size for size, is_second in found if is_second), default=None)
    return Published(source, figure, workers, first, second, low, high)


def beside(grid: Grid) -> Iterator[dict[str, Any]]:
    """Yield each published crossing for JSON, next to the atlas's crossings of the same two systems, with the closest
    number of workers; `better` is the system that is better at all sizes."""
    for each in published():
        figures = dict(least(members(grid.points, ALL), each.figure))
        for (name, size, workers), value in tuple(figures.items()):
            if name in SERVERLESS:
                key = (FUNCTIONS, size, workers)
                figures[key] = min(value, figures.get(key, value))
        workers = min(WORKERS, key=lambda number: abs(number - each.workers))
        modelled = pair_crossings(figures, each.first, each.second, workers)
        names = (each.first, each.second)
        shapes = [(size, at) for name, size, at in figures if name == each.second]
        known = [size for size, at in shapes if at == workers and (each.first, size, at) in figures]
        ends = [min(names, key=lambda name: figures[name, size, workers]) for size in (min(known), max(known))]
        yield {
            **vars(each),
            "at_workers": workers,
            "modelled_megabytes": [significant(size) for size in modelled],
            "better": None if modelled else ends[0],
            "verdict": each.verdict(modelled, ends),
        }
