"""Test whether a busy host changes the answer: the same plans, recorded idle and next to other work.

    python benchmarks/same_answer.py [--rounds 3] [--epochs 2] [--architectures LIST] [--json FILE]

Each round records every architecture in four conditions:

  idle     nothing else runs
  2 loops  next to two busy loops
  8 loops  next to eight
  4 copies next to four processes that copy memory

LeNet on digits with 2 workers of 640 MB; CPU seconds come from solo profiles, made anew each time. The processor is
measured once, at the beginning. It prints medians in seconds and dollars as modelled on Lambda, next to the idle ones:
they may differ by 10 % at most and by 5 % on average. The idle recordings' own spread, (max − min) ÷ median, is the
floor: above 5 % the limit is twice the spread; above 10 % the host is unfit, and the benchmark says so and exits with
2. It exits with 1 if a limit is exceeded. Nothing else may run on the host.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rich.console import Console

from slslab.report.formats import MISSING
from slslab.report.page import Part, Table
from slslab.report.terminal import render

LOOP = "while True: pass"
COPY = "import numpy\nsource = numpy.ones(8_000_000)\ntarget = source.copy()\nwhile True: target[:] = source"
CONDITIONS = {"idle": (LOOP, 0), "2 loops": (LOOP, 2), "8 loops": (LOOP, 8), "4 copies": (COPY, 4)}
IDLE = "idle"
ARCHITECTURES = ("allreduce", "scatterreduce", "mlless", "spirt", "gpu")
# With the headings of their rows.
FIGURES = {"seconds": "time, s", "cost": "cost, USD"}
WORST, MEAN, FLOOR, UNFIT = 0.10, 0.05, 0.05, 0.10
Ranges = Mapping[str, Mapping[str, float]]


@contextmanager
def load(condition: str) -> Iterator[None]:
    """Run a condition's other work during the block."""
    code, count = CONDITIONS[condition]
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def slslab(*arguments: str, home: Path, runs: Path) -> dict[str, Any]:
    """Run a command and return the JSON document that it prints."""
    variables = {**os.environ, "XDG_CACHE_HOME": str(home), "SLSLAB_RUNS": str(runs)}
    command = [sys.executable, "-m", "slslab", *arguments, "--json"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def record(architecture: str, epochs: int, home: Path, folder: Path) -> dict[str, Any]:
    """Return a run's figures on Lambda with their ranges, from its own solo profile."""
    plan = ("--model", "lenet", "--dataset", "digits", "--workers", "2", "--epochs", str(epochs))
    memory = () if architecture == "gpu" else ("--memory", "640")
    document = slslab(
        *("run", architecture, *plan, *memory, "--no-evaluation", "--record", "alone"), home=home, runs=folder
    )
    found = document["lambda"]
    return {
        "seconds": found["seconds"],
        "cost": float(found["cost"]["total"]),
        "ranges": found["ranges"],
        "quiet": document["alone"]["quiet"],
    }


def spread(values: Sequence[float]) -> float:
    """Return (greatest - least) ÷ median."""
    return (max(values) - min(values)) / median(values)


def compare(recorded: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield for each architecture, condition and figure how far its median is from the idle one."""
    architectures = dict.fromkeys(architecture for architecture, _ in recorded)
    for architecture, condition, figure in product(architectures, CONDITIONS, FIGURES):
        idle, values = ([one[figure] for one in recorded[architecture, name]] for name in (IDLE, condition))
        middle = median(values)
        inside = [
            one["ranges"][figure]["low"] <= median(idle) <= one["ranges"][figure]["high"]
            for one in recorded[architecture, condition]
        ]
        yield {
            "architecture": architecture,
            "condition": condition,
            "figure": figure,
            "median": middle,
            "spread": spread(values),
            "floor": spread(idle),
            "off": middle / median(idle) - 1,
            "ranges_with_idle": sum(inside),
            "of": len(inside),
        }


def limit_of(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return how far a median may be off: 10 %, or twice the idle spread if that is above 5 %."""
    floor = max(row["floor"] for row in rows)
    return max(WORST, 2 * floor) if floor > FLOOR else WORST


def report(rows: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    """Yield what is printed, which docs/accuracy-of-replay.md shows, too."""
    off = [abs(row["off"]) for row in rows if row["condition"] != IDLE]
    yield f"Next to other work the answer differs by {fmean(off):.1%} on average and {max(off):.1%} at most."
    printed = []
    for architecture, figure in product(dict.fromkeys(row["architecture"] for row in rows), FIGURES):
        own = {row["condition"]: row for row in rows if (row["architecture"], row["figure"]) == (architecture, figure)}
        cells = [f"{own[name]['median']:.4g}" if name == IDLE else f"{own[name]['off']:+.1%}" for name in CONDITIONS]
        inside, of = (sum(row[key] for name, row in own.items() if name != IDLE) for key in ("ranges_with_idle", "of"))
        floor = f"{own[IDLE]['floor']:.1%}" if own[IDLE]["of"] > 1 else MISSING
        printed.append((architecture, FIGURES[figure], *cells, floor, f"{inside} of {of}"))
    yield Table(("architecture", "figure", *CONDITIONS, "idle spread", "idle value in ranges"), printed, words=(0, 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--architectures", default=",".join(ARCHITECTURES), metavar="LIST")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    architectures, console = given.architectures.split(","), Console()
    recorded: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="slslab-same-answer-") as place:
        slslab("calibrate", "--processor", home=Path(place), runs=Path(place))
        for number, condition, architecture in product(range(given.rounds), CONDITIONS, architectures):
            console.print(f"round {number + 1}: {architecture}, {condition}", style="dim")
            with load(condition), tempfile.TemporaryDirectory(dir=place) as folder:
                one = record(architecture, given.epochs, Path(place), Path(folder))
            recorded.setdefault((architecture, condition), []).append(one)
    rows = list(compare(recorded))
    if given.json is not None:
        kept = [
            {"architecture": name, "condition": condition, "runs": runs} for (name, condition), runs in recorded.items()
        ]
        given.json.write_text(json.dumps({"rows": rows, "recorded": kept}, indent=1))
    off = [abs(row["off"]) for row in rows if row["condition"] != IDLE]
    floor, limit = max(row["floor"] for row in rows), limit_of(rows)
    console.print(render(report(rows)))
    if floor > UNFIT:
        console.print(f"This host is unfit: idle, its answers differ by {floor:.1%}.")
        return 2
    return 0 if max(off) <= limit and fmean(off) <= MEAN * limit / WORST else 1


if __name__ == "__main__":
    sys.exit(main())
