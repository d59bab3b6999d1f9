"""Which memory sizes `slslab tune` chooses: for four handlers on this machine, and for published sweeps on AWS.

    python benchmarks/tune.py [--handlers cpu,s3,two,memory] [--times 2] [--json FILE]
    python benchmarks/tune.py --published [--json FILE]

Each handler is tuned in a new `slslab up`, so that nothing of before is used. Nothing else may run on the machine.
--published needs no idle machine. The tuner meets a function that takes on an ideal machine what the CPU time of a
published workload (benchmarks/lambda_rows.toml) takes by the shares. Its choices are priced by what AWS took.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.table import Table

from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.predict.invocation import Predictor, Request
from slslab.predict.processor import UNANCHORED, Factor, Processor
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import load_profile
from slslab.report.formats import span
from slslab.run.bill import DEFAULT_BOOK, load_book
from slslab.testing import create_function
from slslab.tune.decision import GOALS
from slslab.tune.document import describe
from slslab.tune.estimates import Estimator, Sample
from slslab.tune.tuning import Payload, Sizes, TunedFunction, tune
from slslab_workers.plan import VCPU_MB
from slslab_workers.trace.kinds import KINDS

ROWS = Path(__file__).with_name("lambda_rows.toml")
SIZES = "256,512,1024,1769,3008,5307"
# The CPU-bound one takes about 200 ms at 1,769 MB.
CODE = """
import hashlib, multiprocessing, os

if os.environ["_HANDLER"] == "app.s3":
    import boto3
    client = boto3.client("s3")

def work(rounds):
    data = b""
    for _ in range(rounds):
        data = hashlib.sha256(data).digest()

def cpu(event, context):
    work(event["rounds"])

def s3(event, context):
    for number in range(4):
        client.put_object(Bucket="bucket", Key=str(number), Body=bytes(1_000_000))
        client.get_object(Bucket="bucket", Key=str(number))["Body"].read()

def two(event, context):
    processes = [multiprocessing.Process(target=work, args=(event["rounds"] // 2,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

def memory(event, context):
    block = bytearray(os.urandom(1 << 20)) * 300
    return sum(block[::4096])
"""
HANDLERS = ("cpu", "s3", "two", "memory")


def main() -> int:
    """Tune, print the choices, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--handlers", default=",".join(HANDLERS))
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=0, help="Hashes of a CPU-bound event, by default measured.")
    parser.add_argument("--published", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    if given.published:
        rows = [row for row in map(judge, read_sweeps()) if row]
        report_published(rows, Console(width=140))
    else:
        rows = [
            tune_handler(name, given.rounds or rounds_of(0.2))
            for name in given.handlers.split(",")
            for _ in range(given.times)
        ]
        report(rows, Console(width=140))
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


def rounds_of(seconds: float) -> int:
    """Return how many chained hashes take this much CPU time here."""
    import hashlib

    data, began = b"", time.process_time()
    for _ in range(100_000):
        data = hashlib.sha256(data).digest()
    return round(100_000 * seconds / (time.process_time() - began))


def tune_handler(name: str, rounds: int) -> dict[str, Any]:
    """Return the document of a handler that is tuned in a service of its own, with the load before it."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "SLSLAB_STATE": f"{folder}/state", "SLSLAB_RUNS": f"{folder}/runs"}

        def slslab(*words: str) -> Any:
            command = [sys.executable, "-m", "slslab", *words]
            done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr)
            return json.loads(done.stdout or "null")

        ports = [word for port in ("port", "s3-port", "edge-port") for word in (f"--{port}", "0")]
        endpoints = slslab("up", "--detach", "--tensor-databases", "0", *ports, "--json")["endpoints"]
        try:
            pair = Pair.of(slslab("env", "--json")["variables"])
            assert pair is not None
            aws_client("s3", endpoints["s3"], pair).create_bucket(Bucket="bucket")
            functions = aws_client("lambda", endpoints["lambda"], pair)
            create_function(functions, name, CODE, Handler=f"app.{name}", MemorySize=1024, Timeout=30)
            payload = json.dumps({"rounds": rounds})
            words = ("--payload", payload, "--memory", SIZES, "--kind", "interpreter", "--json")
            return {**slslab("tune", name, *words), "load": load}
        finally:
            slslab("down")


def report(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print what was chosen for each handler, and whether both times agree."""
    table = Table("handler", "goal", "choice", "USD a million", "ms", "alike", "invocations", "s", "load")
    for row in rows:
        for goal, best in row["answers"].items():
            size = next(size for size in row["sizes"] if size["memory_mb"] == best["memory_mb"])
            ranges = (span(size[name]["low"], size[name]["high"]) for name in ("cost", "duration_ms"))
            alike = ", ".join(map(str, best["alike"]))
            effort = (str(row["invocations"]), f"{row['seconds']:.0f}", f"{row['load']:.1f}")
            table.add_row(row["function"], goal, f"{best['memory_mb']:,} MB", *ranges, alike, *effort)
    console.print(table)
    for name in dict.fromkeys(row["function"] for row in rows):
        for goal in GOALS:
            named = [
                {row["answers"][goal]["memory_mb"]: row["answers"][goal]["alike"]}
                for row in rows
                if row["function"] == name
            ]
            chosen = {size for best in named for size in best}
            equal = all(chosen <= {*best, *(size for alike in best.values() for size in alike)} for best in named)
            if len(chosen) > 1:
                verdict = "both call them equal" if equal else "they DISAGREE"
                console.print(f"{name}, {goal}: {' and '.join(map(str, sorted(chosen)))} MB were chosen; {verdict}.")


class IdealFunction(TunedFunction):
    """A function on a machine like Lambda's, which takes what its CPU time and requests take by the shares."""

    def __init__(self, sweep: "Sweep") -> None:
        self.name, self.memory_mb, self.timeout_s = sweep.name, sweep.own_mb, 900.0
        self._sweep, self._present_mb = sweep, sweep.own_mb
        self.made: list[str] = []
        self._made: dict[str, Sample] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing."""

    def renew(self, memory_mb: int) -> None:
        """Give it a memory size."""
        self._present_mb = memory_mb

    def invoke(self, payload: Any) -> str:  # noqa: ARG002
        """Invoke it."""
        self.made.append(f"{self.name} {len(self.made)}")
        self._made[self.made[-1]] = self._sweep.sample(self._present_mb, self.made[-1])
        return self.made[-1]

    def samples(self, wanted: Sequence[str]) -> list[Sample]:
        """Return these invocations."""
        return [self._made[name] for name in wanted]


class Sweep:
    """A workload's published times, ms by memory size, and what it does: threads with CPU time, or a request to S3."""

    def __init__(self, row: Mapping[str, Any], cpu_ms: float) -> None:
        self.name, self.source = row["workload"], row["source"]
        scale = 1000 if row["unit"] == "s" else 1
        self.published = {int(size): value * scale for size, value in row["lambda"].items()}
        self.threads, self.cpu_ms, self.architecture = (
            row.get("threads", 1),
            cpu_ms,
            "arm64" if "arm64" in self.name else "x86_64",
        )
        self.requests = (row["op"], row["bytes"]) if row["model"] == "request" else None
        self.own_mb = min(self.published, key=lambda size: abs(math.log(size / VCPU_MB)))

    def sample(self, memory_mb: int, name: str) -> Sample:
        """Return an invocation on an ideal machine with two processors; its S3 server answers within a millisecond."""
        share = memory_mb / VCPU_MB
        took_ms = self.cpu_ms / min(share, self.threads, 2) + (1 if self.requests else 0)
        record = {
            **{"request_id": name, "function": self.name, "memory_mb": memory_mb, "cpu_share": share},
            **{"quota_period_ms": 20, "architecture": self.architecture, "ephemeral_mb": 512, "cold_start": False},
            **{"init_ms": None, "init_cpu_ms": None, "duration_ms": took_ms, "billed_ms": math.ceil(took_ms)},
            **{"cpu_ms": self.cpu_ms, "host_delay_ms": 0.0, "uncertain_ms": 0.0, "error_type": None, "requests": 1},
            **{"max_memory_mb": 100, "start_ns": 10**9, "end_ns": 10**9 + round(took_ms * 1e6)},
        }
        made = [Request(self.requests[0], 10**9, 10**9 + 1_000_000, self.requests[1])] if self.requests else []
        return Sample(record, made)


def read_sweeps() -> list[Sweep]:
    """Return the published sweeps over at least four sizes; CPU time is that at the size next to one vCPU."""
    rows = [row for row in tomllib.loads(ROWS.read_text(encoding="utf-8"))["rows"] if "handler" not in row]
    rows = [row for row in rows if len(row["lambda"]) > 3]
    named = {row["workload"]: row for row in rows}
    sweeps = []
    for row in rows:
        base = named[row.get("of", row["workload"])]["lambda"]
        size = min(map(int, base), key=lambda size: abs(math.log(size / VCPU_MB)))
        seconds = base[str(size)] * (1000 if row["unit"] == "s" else 1) * min(1.0, size / VCPU_MB)
        sweeps.append(Sweep(row, 1.0 if row["model"] == "request" else seconds))
    return sweeps


def judge(sweep: Sweep) -> dict[str, Any]:
    """Return which published sizes the tuner chooses, and what that loses against the best on AWS, as shares."""
    exact = Processor(
        "ideal", "whole", "", "", dict.fromkeys(KINDS, Factor(1.0)), Factor(1.0), UNANCHORED.arm64, {}, ""
    )
    # What arm64 took was measured on arm64.
    exact = (
        exact
        if sweep.architecture == "x86_64"
        else Processor(**{**vars(exact), "arm64": dict.fromkeys(UNANCHORED.arm64, (1.0, 0.0))})
    )
    estimator = Estimator(Predictor(exact, load_profile(DEFAULT_PROFILE)), load_book(DEFAULT_BOOK), (1.0,), 2)
    known = Sizes(estimator, sweep.own_mb, 900.0, sorted(sweep.published))
    function = IdealFunction(sweep)
    tune(function, known, [Payload(1.0, None)], lambda *_: None, lambda _: None)
    document = describe(sweep.name, known, [], None, "cheapest", (), 0.0)
    row: dict[str, Any] = {
        "workload": sweep.name,
        "source": sweep.source,
        "invocations": len(function.made),
        "goals": {},
    }
    for goal, figures in GOALS.items():
        best = document["answers"][goal]
        # Milliseconds, and the price of them, which is as MB × ms.
        prices = {
            size: math.prod({"seconds": took, "cost": size * took}[name] for name in figures)
            for size, took in sweep.published.items()
        }
        least = min(prices, key=lambda size: prices[size])
        row["goals"][goal] = {
            "chosen": best["memory_mb"],
            "alike": best["alike"],
            "best": least,
            "loss": prices[best["memory_mb"]] / prices[least] - 1,
            "named": least in (best["memory_mb"], *best["alike"]),
        }
    return row


def report_published(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print each choice with the best size on AWS and the loss."""
    table = Table("workload", "goal", "chosen", "alike", "best on AWS", "loss", "best was named")
    for row in rows:
        for goal, found in row["goals"].items():
            sizes = (f"{found['chosen']:,}", ", ".join(map(str, found["alike"])), f"{found['best']:,}")
            table.add_row(row["workload"], goal, *sizes, f"{found['loss']:.1%}", "yes" if found["named"] else "no")
    console.print(table)
    for goal in GOALS:
        losses = [row["goals"][goal]["loss"] for row in rows]
        named = sum(row["goals"][goal]["named"] for row in rows)
        mean, worst = sum(losses) / len(losses), max(losses)
        known = f"the best size was named in {named} of {len(rows)}"
        console.print(f"{goal}: mean loss {mean:.1%}, worst {worst:.1%}; {known}.")


if __name__ == "__main__":
    sys.exit(main())
