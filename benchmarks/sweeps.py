"""Measure the cost of spreading replays over processors: 500 in this process, in local processes and on Ray, in pairs.

    python benchmarks/sweeps.py [--pairs 5] [--run RUN] [--ray] [--json]

The grid has 25 numbers of workers (2 to 26) and 20 memory sizes for a recorded run. In each pair every place replays it
once, in alternating order, and keeps nothing. A place has a processor of this host for each worker; `--ray` uses a
cluster that runs here: `ray start --head --disable-usage-stats`, and `ray stop` afterwards. `first` is the time until
the first result, in which a place starts: processes import slslab and receive the recording. `overhead` is what a
replay takes beyond its share: (seconds − first − seconds in this process ÷ processors) ÷ 500, with the seconds of the
same pair. The last line compares Ray with local processes, pair by pair. Results must be equal. A figure is the median
of the pairs, from the least to the greatest. Five pairs take some minutes.
"""

import argparse
import json
import os
import statistics
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from slslab_lab.questions.setup import ReplaySetup, read_setup
from slslab_lab.replay.whatif import as_document
from slslab_lab.runs.sweeps.sweep import LOCAL, RAY, sweep

RUN = Path(__file__).parents[1] / "tests" / "lab" / "replay" / "traces" / "mobilenet-idle"
POINTS = list(product(range(2, 27), range(1000, 3000, 100)))
PLACES = {None: "this process", LOCAL: "local", RAY: "Ray"}


def play(setup: ReplaySetup, on: str | None) -> tuple[float, float, list[Any]]:
    """Return the seconds until the first and the last result, and the rows as documents."""
    began = time.perf_counter()
    first: list[float] = []

    def report(_done: int, _total: int) -> None:
        if not first:
            first.append(time.perf_counter() - began)

    rows = sweep(setup.row, POINTS, on, report)
    return first[0], time.perf_counter() - began, list(map(as_document, rows))


def pair(setup: ReplaySetup, places: list[str | None], processors: int) -> dict[str, dict[str, float]]:
    """Return each place's figures; exit if results differ."""
    found = {on: play(setup, on) for on in places}
    if any(rows != found[None][2] for _, _, rows in found.values()):
        sys.exit("Results differ between places.")
    figures = {}
    for on, (first, seconds, _) in found.items():
        share = found[None][1] / (1 if on is None else processors)
        overhead = 0.0 if on is None else 1000 * (seconds - first - share) / len(POINTS)
        figures[PLACES[on]] = {"seconds": seconds, "first": first, "overhead_ms": overhead}
    return figures


def spread(values: list[float]) -> dict[str, float]:
    """Return the median, the least and the greatest."""
    return {name: round(of(values), 3) for name, of in (("median", statistics.median), ("least", min), ("most", max))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--run", default=str(RUN), help="a recorded run (by default one of the tests)")
    parser.add_argument("--ray", action="store_true", help="measure Ray, too, by the cluster that runs here")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    given = parser.parse_args()
    if given.pairs < 1:
        parser.error("--pairs must be 1 or more")
    setup = read_setup(given.run, profile="aws-us-east-1", network=None, prices=None, arch=None)
    processors = len(os.sched_getaffinity(0))
    places = [on for on in PLACES if on != RAY or given.ray]
    pairs = []
    for index in track(range(given.pairs), "pairs", console=Console(stderr=True)):
        pairs.append(pair(setup, places if index % 2 == 0 else places[::-1], processors))
    names = [PLACES[on] for on in places]
    rows: list[dict[str, Any]] = [
        {"place": name, **{key: spread([each[name][key] for each in pairs]) for key in pairs[0][name]}}
        for name in names
    ]
    document: dict[str, Any] = {"schema": 1, "points": len(POINTS), "processors": processors, "pairs": given.pairs}
    document["rows"] = rows
    if PLACES[RAY] in names:
        document["ray_beyond_local_ms"] = spread(
            [1000 * (each["Ray"]["seconds"] - each["local"]["seconds"]) / len(POINTS) for each in pairs]
        )
    if given.json:
        print(json.dumps(document, indent=2))
        return
    table = Table("place", "seconds of 500 replays", "first result, s", "overhead of a replay, ms")
    for row in rows:
        table.add_row(row["place"], *(_text(row[key]) for key in ("seconds", "first", "overhead_ms")))
    Console().print(table)
    if "ray_beyond_local_ms" in document:
        print(f"A replay on Ray takes {_text(document['ray_beyond_local_ms'])} ms more than locally, start included.")


def _text(figure: dict[str, float]) -> str:
    return f"{figure['median']:.2f} ({figure['least']:.2f} to {figure['most']:.2f})"


if __name__ == "__main__":
    main()
