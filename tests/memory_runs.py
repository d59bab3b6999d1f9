"""Runs of small random plans with random faults in memory, under a virtual clock: thousands of them in minutes.

`python -m tests.memory_runs` makes the runs that results/memory-runs.json does not have; it may be interrupted, and
continues. `--seed N` makes one run again, and prints how it ended. A seed decides everything: the plan, its faults, how
long requests take, and the order of turns. docs/reliability.md says which parts of such a run are real.
"""

import argparse
import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn
from tests import random_faults
from tests.memory.running import Ran, learnt_alone, read_once, run
from tests.random_faults import ENDINGS
from tests.random_plans import Drawn, Place, draw

from slslab.aws.limits import cpu_share
from slslab.run.log import replacing
from slslab_lab.checks.run import check
from slslab_workers.architecture import RunFailed

DATA = Path(__file__).parents[1] / "results" / "memory-runs.json"
SCHEMA = 1
RUNS = 10_000
# Runs between two writes of the file.
TOGETHER = 250
# What needs no server but those that are in memory.
PLACES: tuple[Place, ...] = (
    *((name, {"channel": each}) for name in ("allreduce", "scatterreduce") for each in ("s3", "memcached", "redis")),
    ("mlless", {"store": "s3"}),
    ("gradssharding", {}),
)
MODELS = {"lr": "breast-cancer", "svm": "breast-cancer"}
TIMEOUT_S = 3
# What a run may take but for its faults: cold starts, and the training itself.
BASE_S = 10
# A run that takes so much longer than its bound, s, is taken for one that does not end.
HANG_S = 300
# Invocations that follow each other in a step at most: a client, three levels of aggregators, and the end of an epoch.
INVOCATIONS = 5
# What a worker computes in a step at most, s of CPU time: some 60 events of a millisecond.
STEP_CPU_S = 0.1

Row = dict[str, Any]
Sums = dict[str, Any]


def bound_s(drawn: Drawn) -> float:
    """Return the longest time that a run may take, s of virtual time.

    A wait for a worker lasts until a function's time-out, its own or the worker's: two of them. A throttled invocation
    is tried again after 1, 2, 4 … s. Each request may be slowed, and a step makes at most 10 for each pair of workers;
    a straggler's computations take its factor longer.
    """
    plan, faults = drawn.plan, drawn.faults["fault"]
    steps, pairs = plan.epochs * plan.batches, plan.workers * (plan.workers + 1)
    slowed = sum(float(fault.get("seconds", 0)) for fault in faults)
    pauses = sum(2 ** int(fault.get("count", 1)) - 1 for fault in faults if fault["kind"] == "throttle")
    factors = sum(float(fault["factor"]) - 1 for fault in faults if fault["kind"] == "straggler")
    in_step = INVOCATIONS * pauses + 10 * pairs * slowed + factors * STEP_CPU_S / cpu_share(plan.memory_mb)
    return float(BASE_S + 2 * plan.timeout + steps * in_step)


def make(seed: int, directory: Path) -> Row:
    """Make the run of a seed and return what became of it; `wrong` says what should not be."""
    with read_once(), TemporaryDirectory(dir=directory) as home:
        drawn = draw(seed, Path(home), PLACES, MODELS, TIMEOUT_S)
        plan, bound = replace(drawn.plan, run=f"seed-{seed}"), bound_s(drawn)
        ran = run(plan, seed, Path(home), bound + HANG_S)
        checked = check(ran.recorded)
        learnt = None if ran.outcome is None else learnt_alone(plan)
    document: Any = ran.recorded.document
    row: Row = {
        **drawn.row(seed, document),
        "error": document["error"] and document["error"]["type"],
        "seconds": round(ran.seconds, 3),
        # No host is busy.
        "delayed": 0.0,
        "bound": round(bound, 3),
        "invocations": len(ran.recorded.invocations),
        "handed_over": sum(event["op"] == "invoke" and event["worker"] >= 0 for event in ran.recorded.events),
        "events": checked.events,
        "rules": len(checked.rules),
        "parameters": document["parameters_sha256"],
        "deaths": list(_deaths(ran)),
    }
    row["wrong"] = [
        *random_faults.wrong(row),
        *_misnamed(ran),
        *_left(ran),
        *_learnt(ran, learnt),
        *map(str, checked.violations),
    ]
    return row


def _deaths(ran: Ran) -> Iterator[list[str]]:
    """Yield each invocation's death, with the reported end.

    A hanging one hasn't timed out yet if the run ended first.
    """
    for record in ran.recorded.invocations:
        kind = ran.died.get(record["request_id"])
        if kind is not None and (kind != "timeout" or _lasted(record)):
            yield [kind, record["error_type"] or record["status"]]


def _misnamed(ran: Ran) -> Iterator[str]:
    """Yield wrong reports of invocations' ends, and unreported deaths."""
    metered = {record["request_id"]: record for record in ran.recorded.invocations}
    for invocation in ran.died.keys() - metered.keys():
        yield f"{invocation} died, and is not metered"
    for invocation, record in metered.items():
        ending, kind = record["error_type"], ran.died.get(invocation)
        if _lasted(record) != (ending == ENDINGS["timeout"]):
            yield f"{invocation} took {record['duration_ms']} ms, and is reported as {ending}"
        if kind != "out-of-memory" and ending == ENDINGS["out-of-memory"]:
            yield f"{invocation} is reported as {ending}, and memory was left"
        # What still runs at the end of the run is killed.
        if kind != "kill" and ending == ENDINGS["kill"] and record["end_ns"] < ran.ended_ns:
            yield f"{invocation} is reported as {ending}, but wasn't killed"


def _lasted(record: Mapping[str, Any]) -> bool:
    return bool(record["duration_ms"] >= TIMEOUT_S * 1000)


def _left(ran: Ran) -> Iterator[str]:
    """Yield what a driver must not leave: threads, a bucket, functions, or an error without a name."""
    for what in ran.left:
        yield f"{what} is left"
    if ran.failure is not None and not isinstance(ran.failure, RunFailed):
        yield f"the driver raised {ran.failure!r}"


def _learnt(ran: Ran, alone: str | None) -> Iterator[str]:
    """Yield that a run learnt something else than one process does, which no fault that passes may change; or that it
    is done without a worker, which none of these architectures can do."""
    if ran.outcome is not None and ran.died:
        yield "it is done, and a worker had died"
    if ran.outcome is not None and alone not in (None, ran.outcome.parameters_sha256):
        yield "it learnt something else than one process"


def nothing() -> Sums:
    """Return the sums of no runs."""
    names = ("runs", "held", "done", "failed", "refused", "invocations", "handed_over", "events", "rules")
    counted: dict[str, Any] = dict.fromkeys(names, 0)
    more = {"virtual_seconds": 0.0, "seconds": 0.0, "places": {}, "faults": {}, "endings": {}, "errors": {}}
    return {**counted, **more, "longest": None, "wrong": []}


def add(sums: Sums, row: Row) -> None:
    """Add a run to the sums; of one that is wrong all is kept."""
    sums["runs"] += 1
    sums["held"] += not row["wrong"]
    sums[row["status"]] += 1
    for name in ("refused", "invocations", "handed_over", "events", "rules"):
        sums[name] += row[name]
    sums["virtual_seconds"] = round(sums["virtual_seconds"] + row["seconds"], 3)
    _count(sums["places"], " by ".join(filter(None, (row["architecture"], row["place"]))), row["status"])
    for kind in {fault["kind"] for fault, times in zip(row["faults"], row["met"], strict=True) if times}:
        _count(sums["faults"], kind, row["status"])
    for kind, ending in row["deaths"]:
        _count(sums["endings"], kind, ending)
    if row["error"]:
        sums["errors"][row["error"]] = sums["errors"].get(row["error"], 0) + 1
    share = round(row["seconds"] / row["bound"], 3)
    if sums["longest"] is None or share > sums["longest"]["share"]:
        sums["longest"] = {"share": share, **{name: row[name] for name in ("seed", "seconds", "bound")}}
    if row["wrong"]:
        sums["wrong"].append(row)


def _count(table: dict[str, dict[str, int]], row: str, column: str) -> None:
    counts = table.setdefault(row, {})
    counts[column] = counts.get(column, 0) + 1


def main() -> None:
    """Make what is missing, and write the file now and then."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, help="make this run alone, and print it")
    arguments.add_argument("--runs", type=int, default=RUNS, help="how many there should be: seeds from 0 on")
    given = arguments.parse_args()
    # Of an event that ends after its run nobody can keep the record: the emulator says so, and has to.
    logging.getLogger("slslab").setLevel(logging.CRITICAL)
    with TemporaryDirectory() as scratch:
        if given.seed is not None:
            print(json.dumps(make(given.seed, Path(scratch)), indent=2))
            return
        sums = json.loads(DATA.read_text())["sums"] if DATA.exists() else nothing()
        columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, auto_refresh=False) as progress:
            task = progress.add_task("runs", total=given.runs, completed=sums["runs"])
            while sums["runs"] < given.runs:
                began = time.perf_counter()
                for seed in range(sums["runs"], min(sums["runs"] + TOGETHER, given.runs)):
                    add(sums, make(seed, Path(scratch)))
                    progress.update(task, advance=1, refresh=True)
                sums["seconds"] = round(sums["seconds"] + time.perf_counter() - began, 1)
                _write(sums)


def _write(sums: Sums) -> None:
    document = {
        "schema": SCHEMA,
        "command": "python -m tests.memory_runs",
        "date": datetime.now(UTC).date().isoformat(),
        "seeds": [0, sums["runs"] - 1],
        "sums": sums,
    }
    with replacing(DATA) as file:
        file.write(f"{json.dumps(document, indent=1, sort_keys=True)}\n".encode())


if __name__ == "__main__":
    main()
