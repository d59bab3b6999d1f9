"""Compare averaging gradients and updating a model in the tensor database with doing so in the client.

    python benchmarks/in_database.py [--model mobilenet resnet18] [--count 24] [--repeat 7] [--threads 1 2] [--json]

The database is the embedded one, in its own process as in `slslab run`; the client is this process. Arms take turns in
alternating order, so that a busy machine slows all of them; a ratio is the median of the turns' ratios. The first turn
isn't timed.

  redis-py          naive: all gradients by AI.TENSORGET through redis-py, numpy's mean, AI.TENSORSET of the result; for
                    the update, parameters and gradient fetched, subtracted and set
  own client        naive, through the workers' client, which receives into and sends from the arrays themselves
  … on Redis        both against a redis-server with SET and GET, if one is installed
  in the database   the workers' client runs the database's script
  memory            floor: the same arithmetic on the same arrays in this process, by one and more threads; each byte is
                    read from memory once (the mean in blocks, so that the sum stays in the cache) and written to memory
                    that exists already
  loopback          floor: the bytes that a naive arm moves, over a bare loopback socket between two processes

Every result is compared with one computed here, and in-database averages must have the bits of the sum in rank order. A
naive arm's moving time is its time for getting and setting. ResNet-18 takes about 7 GB and two minutes.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import torch

from floors import LOOPBACK, Loopback, Memory
from slslab.host.session import Session
from slslab.stack.channels import EmbeddedRedis, find_server
from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab_lab.studies.in_database.measurements import (
    AVERAGE,
    OPERATIONS,
    OWN_CLIENT,
    REDIS_PY,
    UPDATE,
    Arm,
    Taken,
    Vectors,
    body,
    database_arm,
    gradient_keys,
    naive_arm,
    naive_arms,
    running_mean,
    stacked_mean,
    take_turns,
    thin,
    versions,
)
from slslab_lab.studies.kept import host
from slslab_workers.models import SPECS, spec

Row = dict[str, Any]

PAPER = {AVERAGE: 1.8, UPDATE: 5.7}
# The least time of a naive arm, in-database = 1; and the most time of the in-database average, its floor = 1.
AIMS = {REDIS_PY: 5.0, OWN_CLIENT: 3.0}
FLOOR_AIM = 3.0


INSIDE = "in the database"


def memory(threads: int) -> str:
    """Return the name of the memory's floor with this number of threads."""
    return f"memory, {threads} {'thread' if threads == 1 else 'threads'}"


def plain_arms(server: str, keys: Sequence[str], parts: ExitStack) -> list[Arm]:
    """Return the naive arms on plain Redis, with strings; `parts` closes their connections."""
    import redis

    strings: Any = parts.enter_context(redis.Redis.from_url(server))
    client = parts.enter_context(thin(server))
    return [
        naive_arm(
            *("redis-py on Redis", keys),
            lambda key: np.frombuffer(strings.get(key), np.float32),
            lambda key, vector: strings.set(key, body(vector)),
            stacked_mean,
        ),
        naive_arm(
            *("own client on Redis", keys),
            lambda key: np.frombuffer(client.command("GET", key), np.float32),
            lambda key, vector: client.command("SET", key, body(vector)),
            running_mean,
        ),
    ]


def measure(
    model: str, count: int, repeat: int, threads: Sequence[int], server: str | None, mark: Mapping[str, str]
) -> list[Row]:
    """Return one model's rows: all arms and floors, in turns."""
    size = spec(model).parameters
    assert size is not None
    print(f"{model}: {count} gradients of {4 * size / 1e6:.1f} MB", file=sys.stderr)
    vectors, keys = Vectors.random(size, count), gradient_keys(count)
    with ExitStack() as stack:
        # Create it first, before there are threads, because it forks.
        floors: list[Loopback | Memory] = [Loopback(vectors.gradients)]
        floors += [Memory(memory(number), vectors.parameters, vectors.gradients, number) for number in threads]
        for floor in floors:
            stack.callback(floor.close)
        url = stack.enter_context(EmbeddedTensorDatabases(1, environment=mark)).endpoints[0]
        inner = stack.enter_context(thin(url))
        vectors.store(partial(inner.set, phase="other"))
        outer = naive_arms(url, keys, stack)
        if server:
            with thin(server) as client:
                vectors.store(lambda key, vector: client.command("SET", key, body(vector)))
            outer += plain_arms(server, keys, stack)
        arms = [*outer, database_arm(INSIDE, keys, inner), *(floor.arm for floor in floors)]

        def report(operation: str, done: int, total: int) -> None:
            print(f"{model}, {operation}: {done} of {total}", file=sys.stderr)

        rows = []
        for operation in OPERATIONS:
            turns = take_turns(operation, arms, vectors.expected[operation], repeat, partial(report, operation))
            about = {"model": model, "operation": operation}
            rows += [about | row for row in summary([arm.name for arm in arms], turns, threads)]
        return rows


def summary(names: Sequence[str], turns: Sequence[Mapping[str, Taken]], threads: Sequence[int]) -> list[Row]:
    """Return a row for each arm: seconds, and the medians of its ratios within turns."""
    rows = []
    for name in names:
        seconds = [taken[name]["seconds"] for taken in turns]
        row: Row = {"arm": name, "count": len(turns), "median_s": round(statistics.median(seconds), 6)}
        row |= {"least_s": round(min(seconds), 6), "greatest_s": round(max(seconds), 6)}
        row["moving_s"] = round(statistics.median(taken[name].get("moving_s", 0.0) for taken in turns), 6)
        row["ratios"] = {
            base: round(statistics.median(taken[name]["seconds"] / taken[base]["seconds"] for taken in turns), 3)
            for base in (INSIDE, *map(memory, threads), LOOPBACK)
        }
        rows.append(row)
    return rows


def judged(rows: Sequence[Row], threads: int) -> list[Row]:
    """Return the aims, and whether the in-database arm meets each; its floor is the memory's with `threads` threads."""
    judgements = []
    for row in rows:
        about = f"{row['model']}, {row['operation']}: "
        if row["arm"] in AIMS:
            ratio, aim = row["ratios"][INSIDE], AIMS[row["arm"]]
            judgements.append({"what": f"{about}{row['arm']} / {INSIDE}", "ratio": ratio, "aim": f">= {aim:g}"})
            judgements[-1] |= {"met": ratio >= aim, "paper": PAPER[row["operation"]]}
        elif row["arm"] == INSIDE and row["operation"] == AVERAGE:
            ratio = row["ratios"][memory(threads)]
            judgements.append({"what": f"{about}{row['arm']} / {memory(threads)}", "ratio": ratio})
            judgements[-1] |= {"aim": f"<= {FLOOR_AIM:g}", "met": ratio <= FLOOR_AIM, "paper": None}
    return judgements


def tables(document: Mapping[str, Any]) -> str:
    """Return the document in Markdown."""
    threads = document["threads"][0]
    bases = (INSIDE, memory(threads), LOOPBACK)
    lines = []
    for model, operation in dict.fromkeys((row["model"], row["operation"]) for row in document["rows"]):
        lines += [f"| {model}, {operation} | ms | least | greatest | moving | / {' | / '.join(bases)} |"]
        lines += ["|---|---:|---:|---:|---:|---:|---:|---:|"]
        for row in document["rows"]:
            if (row["model"], row["operation"]) == (model, operation):
                figures = [row["median_s"], row["least_s"], row["greatest_s"], row["moving_s"]]
                cells = [f"{1e3 * seconds:,.1f}" if seconds else "" for seconds in figures]
                cells += [f"{row['ratios'][base]:.2f}" for base in bases]
                lines.append(f"| {row['arm']} | {' | '.join(cells)} |")
        lines.append("")
    lines += ["| ratio | | aim | | the paper's |", "|---|---:|---:|---|---:|"]
    for aim in document["aims"]:
        met = "met" if aim["met"] else "MISSED"
        lines.append(f"| {aim['what']} | {aim['ratio']:.2f} | {aim['aim']} | {met} | {aim['paper'] or ''} |")
    facts = {**document["host"], **document["versions"], "date": document["date"], "seconds": document["seconds"]}
    return "\n".join([*lines, "", ", ".join(f"{name} {value}" for name, value in facts.items())])


def at_least(least: int) -> Callable[[str], int]:
    """Return a parser for integers of at least `least`."""

    def integer(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return number

    return integer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sized = [name for name, known in SPECS.items() if known.parameters is not None]
    both = ["mobilenet", "resnet18"]
    parser.add_argument("--model", nargs="+", choices=sized, default=both, help="models that give the gradients' size")
    parser.add_argument("--count", type=at_least(2), default=24, help="gradients (default: %(default)s)")
    parser.add_argument("--repeat", type=at_least(1), default=7, help="turns (default: %(default)s)")
    what = "threads of the memory's floor; the aim applies to the first (default: 1 2)"
    parser.add_argument("--threads", type=at_least(1), nargs="+", default=[1, 2], help=what)
    parser.add_argument("--no-redis", action="store_true", help="without the arms on a plain redis-server")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # The memory floor has its own threads.
    torch.set_num_threads(1)
    began, before = time.monotonic(), os.getloadavg()
    threads = list(dict.fromkeys(options.threads))
    program = None if options.no_redis else find_server("redis-server")
    known = versions()
    rows: list[Row] = []
    try:
        # If this process is killed, the session's reaper kills everything with its mark.
        with Session() as session:
            for model in options.model:
                redis = EmbeddedRedis(program, session.home / "redis", session.mark) if program else nullcontext()
                with redis as server:
                    url = server.endpoint if server else None
                    rows += measure(model, options.count, options.repeat, threads, url, session.mark)
                known |= {"redis-server": server.version.removeprefix("Redis ")} if server else {}
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    facts = host() | {"load_average_before": before, "load_average_after": os.getloadavg()}
    document = {
        **{"schema": 1, "date": f"{datetime.now(UTC):%Y-%m-%d}", "command": " ".join(sys.argv)},
        **{"gradients": options.count, "threads": threads, "host": facts, "versions": known},
        "seconds": round(time.monotonic() - began, 1),
        **{"rows": rows, "aims": judged(rows, threads[0])},
    }
    print(json.dumps(document, indent=1) if options.json else tables(document))


if __name__ == "__main__":
    main()
