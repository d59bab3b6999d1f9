"""Compare warm invoke and cold start with another checkout of this repository, in pairs.

    python benchmarks/against.py CHECKOUT [--pairs 50] [--calls 800] [--cold 8] [--json]

CHECKOUT is a folder with an older commit, installed in its own `.venv`. In each pair both run once, each first in
turns: an emulator and its boto3 client in one process, `--calls` invocations of a warm function that returns its event,
then `--cold` invocations that find no environment. The CPU time is this process's, client and emulator together, for a
warm call. A figure is the median of the pairs' ratios, this checkout ÷ the other, with its 95 % interval (bootstrap,
5,000 draws, seed 1). 50 pairs take about 8 minutes.
"""

import argparse
import importlib
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

HERE = Path(__file__).resolve().parents[1]
UNTIMED, BUDGET_MB, DRAWS = 200, 4_000, 5_000
WHAT = {
    "warm_p50_ms": "warm invoke, p50, ms",
    "warm_least_ms": "warm invoke, least, ms",
    "warm_cpu_ms": "warm invoke, CPU, ms",
    "cold_p50_ms": "cold start, p50, ms",
}


def measure(calls: int, cold: int) -> dict[str, float]:
    """Return this interpreter's figures, using `invoke.py` from its own checkout."""
    sys.path.insert(0, "benchmarks")
    invoke: Any = importlib.import_module("invoke")  # each checkout has its own

    with invoke.Emulator(keys=invoke.Keyring(invoke.PAIR), budget_mb=BUDGET_MB) as emulator:
        client = invoke.deployed(emulator.endpoint)
        for _ in range(UNTIMED):
            invoke.invoke(client, invoke.SMALL)
        began = time.process_time()
        warm = [invoke.invoke(client, invoke.SMALL) for _ in range(calls)]
        cpu_ms = 1e3 * (time.process_time() - began) / calls
        starts = []
        for memory_mb in range(invoke.MEMORY_MB, invoke.MEMORY_MB + cold):
            # Another memory size makes another version, which doesn't have an environment yet.
            client.update_function_configuration(FunctionName="echo", MemorySize=memory_mb - 1)
            client.get_waiter("function_updated_v2").wait(FunctionName="echo", WaiterConfig={"Delay": 1})
            starts.append(invoke.invoke(client, invoke.SMALL))
    figures = (statistics.median(warm), min(warm), cpu_ms, statistics.median(starts))
    return dict(zip(WHAT, figures, strict=True))


def run_in(checkout: Path, calls: int, cold: int) -> dict[str, float]:
    """Return a checkout's figures, from its own interpreter."""
    python, here = str(checkout / ".venv" / "bin" / "python"), str(Path(__file__).resolve())
    command = [python, here, "--measure", str(calls), str(cold)]
    done = subprocess.run(command, cwd=checkout, check=True, stdout=subprocess.PIPE)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def row(name: str, pairs: list[tuple[dict[str, float], dict[str, float]]]) -> dict[str, float | str]:
    """Return a figure's medians in both checkouts, the median ratio and its interval."""
    ratios, draw = [here[name] / there[name] for here, there in pairs], random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
    made = {
        "here": statistics.median(here[name] for here, _ in pairs),
        "there": statistics.median(there[name] for _, there in pairs),
        "ratio": statistics.median(ratios),
        "low": medians[round(0.025 * DRAWS)],
        "high": medians[round(0.975 * DRAWS) - 1],
    }
    return {"what": WHAT[name], **{key: round(value, 3) for key, value in made.items()}}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--calls", type=int, default=800)
    parser.add_argument("--cold", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", nargs=2, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(*given.measure)))
        return
    if given.checkout is None or not (given.checkout / ".venv" / "bin" / "python").exists():
        parser.error("CHECKOUT must be a folder with this repository and its .venv, made by `make .venv/installed`")
    if given.pairs < 2 or given.calls < 1 or given.cold < 1:
        parser.error("--pairs must be 2 or more, --calls and --cold 1 or more")
    places, pairs = (HERE, given.checkout.resolve()), []
    for index in track(range(given.pairs), "pairs", console=Console(stderr=True)):
        order = places if index % 2 == 0 else places[::-1]
        found = {place: run_in(place, given.calls, given.cold) for place in order}
        pairs.append((found[places[0]], found[places[1]]))
    rows = [row(name, pairs) for name in WHAT]
    if given.json:
        print(json.dumps({"pairs": given.pairs, "rows": rows, "measured": pairs}, indent=2))
        return
    table = Table(*("", "here", "there", "ratio", "95 %"))
    for each in rows:
        table.add_row(
            str(each["what"]),
            *(f"{each[key]}" for key in ("here", "there", "ratio")),
            f"{each['low']} to {each['high']}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
