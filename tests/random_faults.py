"""Real runs of small random plans with random faults: each ends within its bound, by name, and holds to the rules.

`python -m tests.random_faults` makes the runs that results/random-faults.json does not have and writes it after each;
it may be interrupted, and continues. `--seed N` makes one run again, and prints how it ended. A run and its faults are
drawn from its seed alone (`tests.random_plans`).
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.commands import forked_environments
from tests.lambdaml_space import Silent
from tests.random_plans import ALSO, Drawn, draw

from slslab.run.bill import DEFAULT_BOOK
from slslab.run.directory import RunDirectory
from slslab.run.log import load, metered_records, replacing
from slslab.run.run import read_run
from slslab_lab.checks.run import check
from slslab_lab.runs.execution import run_plan
from slslab_workers.faults.plan import DEATHS

DATA = Path(__file__).parents[1] / "results" / "random-faults.json"
SCHEMA = 1
RUNS = 320
AT_ONCE = 4
# What a run may take but for what its plan waits for: its stack, cold starts, and the training itself.
BASE_S = 60
# Pauses of a driver that is refused an invocation, 1 + 2 + 4 + 8 s.
RETRIES_S = 15
# What interrupts a run that does not end: it is no part of the bound.
HANG_S = 300
# How Lambda names each death.
ENDINGS = {"kill": "Runtime.ExitError", "out-of-memory": "Runtime.OutOfMemory", "timeout": "Sandbox.Timedout"}

Row = dict[str, Any]


def bound_s(drawn: Drawn) -> float:
    """Return the longest time that a run may take, s, on the Lambda clock.

    A wait for a worker lasts until a function's time-out, its own or the worker's: two of them, since the wait may
    begin when a worker continues in a second invocation. A driver repeats a throttled invocation of each worker in each
    epoch; SPIRT's peers wait at two barriers in each. Each request may be slowed, and a step makes at most 10 for each
    pair of workers.
    """
    plan = drawn.plan
    pairs = plan.workers * (plan.workers + 1)
    faults = drawn.faults["fault"]
    throttled = any(fault["kind"] == "throttle" for fault in faults)
    slowed = sum(float(fault.get("seconds", 0)) for fault in faults)
    barriers = 2 * float(ALSO["spirt"]["barrier-timeout"]) if plan.architecture == "spirt" else 0.0
    steps = plan.epochs * plan.batches
    return (
        BASE_S
        + 2 * plan.timeout
        + RETRIES_S * throttled * plan.epochs
        + barriers * plan.epochs
        + 10 * pairs * steps * slowed
    )


def make(seed: int, directory: Path) -> Row:
    """Make the run of a seed and return what became of it; `wrong` says what should not be."""
    drawn = draw(seed, directory)
    out = directory / f"run{seed}"
    with interrupted_after(bound_s(drawn) + HANG_S) as hung:
        document: Mapping[str, Any] = run_plan(
            drawn.architecture, drawn.values, drawn.options, out=out, book=DEFAULT_BOOK, progress=Silent()
        )
    if document["status"] == "interrupted" and not hung:
        raise KeyboardInterrupt
    records = metered_records(out)
    error = document["error"]
    checked = check(read_run(RunDirectory(out)))
    # By how much a busy host made the run longer, as it was metered: never longer than all its functions together.
    delayed_s = sum(record["host_delay_ms"] for record in records) / 1000
    row: Row = {
        **drawn.row(seed, document),
        "error": error and error["type"],
        "hint": error and error["hint"],
        "seconds": round(document["seconds"]["measured"], 1),
        "delayed": round(delayed_s, 1),
        "bound": round(bound_s(drawn), 1),
        "rules": len(checked.rules),
        "parameters": document["parameters_sha256"],
        "deaths": _deaths(out, records),
    }
    row["wrong"] = [*wrong(row), *map(str, checked.violations)]
    return row


def _deaths(out: Path, records: Any) -> list[list[str]]:
    """Return each function's death, with its invocation's reported end.

    A hanging one hasn't timed out, and one that takes memory hasn't run out of it, if the run and its environment ended
    first: a peer had reported that it waits, or had died.
    """
    metered, events = {record["request_id"]: record for record in records}, load(out).events
    ended_ns = {event["resource"]: event["start_ns"] for event in events if event["op"] == "environment.kill"}
    deaths = []
    for event in events:
        kind = event["op"] == "fault" and event["resource"].split()[1]
        if kind in DEATHS and event["invocation"] in metered:
            record = metered[event["invocation"]]
            if record["end_ns"] <= ended_ns.get(record["environment"], record["end_ns"]):
                deaths.append([kind, record["error_type"] or record["status"]])
    return deaths


def wrong(row: Row) -> Iterator[str]:
    """Yield what must not be of any run."""
    if row["status"] not in ("done", "failed"):
        yield f"the run is {row['status']}"
    if row["seconds"] - row["delayed"] > row["bound"]:
        yield f"it took {row['seconds']} s, {row['delayed']} of which the host took"
    if row["status"] == "failed":
        if not row["error"]:
            yield "the failure has no name"
        if not any(row["met"]):
            yield f"no fault happened, and it failed: {row['error']}"
    for kind, ending in row["deaths"]:
        if ending != ENDINGS[kind]:
            yield f"{kind} is reported as {ending}"


@contextmanager
def interrupted_after(seconds: float) -> Iterator[list[float]]:
    """Interrupt the block, as Ctrl-C does, if it does not end before; yields a list that then has the seconds."""
    hung: list[float] = []

    def interrupt(*_: object) -> None:
        hung.append(seconds)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield hung
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def main() -> None:
    """Make what is missing, and write the file after each run."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, help="make this run alone, and print it")
    arguments.add_argument("--runs", type=int, default=RUNS, help="how many there should be")
    given = arguments.parse_args()
    try:
        if given.seed is None:
            _make_missing(given.runs)
            return
        with tempfile.TemporaryDirectory() as scratch, forked_environments():
            print(json.dumps(make(given.seed, Path(scratch)), indent=2))
    except KeyboardInterrupt:
        sys.exit(130)


def _make_missing(runs: int) -> None:
    """Make the runs that the file does not have, several at once: a busy host's delays are not counted to a bound."""
    rows = {row["seed"]: row for row in (json.loads(DATA.read_text())["runs"] if DATA.exists() else ())}
    missing = [seed for seed in range(runs) if seed not in rows or rows[seed]["wrong"]]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for made in as_completed([pool.submit(_made_apart, seed) for seed in missing]):
                row = made.result()
                rows[row["seed"]] = row
                said = ("seed", "architecture", "place", "status", "error", "seconds", "wrong")
                print(*(row[name] for name in said), flush=True)
                _write([rows[seed] for seed in sorted(rows)])
        finally:
            pool.shutdown(cancel_futures=True)


def _made_apart(seed: int) -> Row:
    """Return what became of a seed's run, which is made in a process of its own."""
    command = [sys.executable, "-m", "tests.random_faults", "--seed", str(seed)]
    made: Row = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return made


def _write(rows: list[Row]) -> None:
    lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
    endings = Counter(ending for row in rows for _, ending in row["deaths"])
    top = {
        "schema": SCHEMA,
        "command": "python -m tests.random_faults",
        "date": datetime.now(UTC).date().isoformat(),
        "held": sum(not row["wrong"] for row in rows),
        "failed": sum(row["status"] == "failed" for row in rows),
        "refused": sum(row["refused"] for row in rows),
        "endings": dict(sorted(endings.items())),
    }
    with replacing(DATA) as file:
        file.write(f'{json.dumps(top)[:-1]},\n  "runs": [\n{lines}\n  ]\n}}\n'.encode())


if __name__ == "__main__":
    main()
