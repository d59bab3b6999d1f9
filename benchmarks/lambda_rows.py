"""Compare this machine's predictions with measurements on AWS Lambda: their errors, and whether the ranges cover them.

    python benchmarks/lambda_rows.py [--old-torch PYTHON] [--with FILE] [--json FILE]

`lambda_rows.toml` has the rows. Their work runs here once, in child processes or in the emulator, and is replayed with
the default profile and this machine's measured processor (`slslab calibrate --processor`) for each memory size. A
workload's predicted rows follow from its own anchor, which is marked as fitted, or from Lambda's figure at its base.

--old-torch names a Python 3.7 with torch 1.0.1 (benchmarks/anchors.py), without which SeBS's seconds are left out.
--with adds the recordings of `same_answer.py --json`: each one made next to other work has the idle median in its
range, or not. RQ3's eight rounds, which were predicted blind, always count. Nothing else may run on the machine.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any, TypeVar

from rich.console import Console

from slslab import Emulator
from slslab.predict.anchors import load_anchors, minor_version
from slslab.predict.environment import NS, Environment
from slslab.predict.processor import SHARED, Factor, Host, Processor, anchor_residuals
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import Profile, load_profile
from slslab.predict.uncertainty import Uncertainty, ratio_range
from slslab.processor.kept import load_measurement, load_processor, probe
from slslab.processor.measurement import read_versions, run_workloads
from slslab.report.formats import significant, span
from slslab.report.page import Note, Part, Table
from slslab.report.terminal import render
from slslab_lab.replay.kernel.kernel import TRANSITION, play
from slslab_lab.replay.kernel.program import Program, Step, Track
from slslab_lab.replay.kernel.timeline import Call
from slslab_lab.replay.ranges import find_uncertainties, with_processor
from slslab_lab.studies.catalogue import STUDIES
from slslab_workers.plan import VCPU_MB

ROWS = Path(__file__).with_suffix(".toml")
SCALE = {"ms": 1e3, "s": 1.0}
# Sources that widen a range by less than this share don't count.
LEAST_WIDTH = 0.005
# A load average above this means that something else is running.
IDLE = 0.5
# Functions that run here for inits and first invocations. They return the invocation's CPU seconds.
BARE = "def handler(event, context): return 0.0"
CLIENT = """
import os, time
import boto3
client = boto3.client("dynamodb", region_name="us-east-1", endpoint_url=os.environ["ENDPOINT"])
def handler(event, context):
    began = time.process_time()
    client.put_item(TableName="table", Item={"id": {"S": "1"}})
    return time.process_time() - began
"""
HANDLERS = {"bare": BARE, "client": CLIENT}
PUT = "put"
COLD_STARTS = 5
Played = Callable[[Profile], float]
Found = TypeVar("Found")


@dataclass(frozen=True)
class Machine:
    """The inputs of all figures: the profile, the processor, and CPU seconds of work that ran here."""

    profile: Profile
    processor: Processor
    host: Host
    old_torch: str

    @cached_property
    def factors(self) -> Mapping[str, float]:
        return self.host.anchor_factors()

    @cached_property
    def cold_starts(self) -> tuple[Mapping[str, float], Processor]:
        """CPU seconds of init by handler, of the first request, and the processor at that time."""
        return self.around(measure_cold_starts)

    def around(self, work: Callable[[], Found]) -> tuple[Found, Processor]:
        """Do the work, and probe the processor before and after it, as around a recorded run; return both results."""
        before = probe()
        found = work()
        return found, self.processor.drifted(before, probe())

    def cpu_s(self, row: Mapping[str, Any]) -> float:
        """Return the CPU seconds of the row's work here, as the least of several repetitions."""
        interpreter = self.old_torch if row.get("old_torch") else sys.executable
        lines = run_workloads(interpreter, [row["host"]], "whole", repeat=5, seconds=4.0)
        if not lines:
            raise SystemExit(f"{interpreter} can't run {row['host']}.")
        return float(min(lines[0]["cpu_s"]))

    def like_its_anchor(self, row: Mapping[str, Any], then: Processor) -> Processor:
        """Return the processor at that time, with the factor of the row's own anchor for its kind of work.

        Between an anchor and the same work, the only error is in comparing this machine with the reference.
        """
        kind = row["kind"]
        drift = then.factor(kind).value / self.processor.factor(kind).value
        deviations = {**dict.fromkeys(SHARED, 0.0), "host": then.factor(kind).deviations["host"]}
        factor = Factor(self.factors[row["host"]] * drift, deviations)
        return replace(then, factors={**then.factors, kind: factor})


@dataclass(frozen=True)
class Result:
    """One figure of a row, in the row's unit: Lambda's, and ours with its 80 % range."""

    row: Mapping[str, Any]
    memory_mb: int
    measured: float
    ours: float
    low: float
    high: float
    uncertainty: Uncertainty

    @property
    def standing(self) -> str:
        """apart, fitted, base (of a ratio), or predicted."""
        if "apart" in self.row:
            return "apart"
        if self.memory_mb in self.row.get("fitted", ()):
            return "fitted"
        return "base" if self.memory_mb == self.row.get("base") and "of" not in self.row else "predicted"

    def as_document(self) -> dict[str, Any]:
        """Return the figure for JSON."""
        return {
            **{name: self.row[name] for name in ("workload", "what", "model", "unit", "source")},
            "apart": self.row.get("apart", ""),
            "memory_mb": self.memory_mb,
            "lambda": self.measured,
            "ours": self.ours,
            "low": self.low,
            "high": self.high,
            "error": self.ours / self.measured - 1,
            "inside": self.low <= self.measured <= self.high,
            "standing": self.standing,
            "half_widths": self.uncertainty.half_widths(),
        }


def main() -> int:
    """Predict all rows, print and save them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old-torch", metavar="PYTHON", default="")
    parser.add_argument("--with", type=Path, metavar="FILE", dest="recordings")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    load, rows = os.getloadavg()[0], tomllib.loads(ROWS.read_text(encoding="utf-8"))["rows"]
    machine = find_machine(given.old_torch)
    named = {row["workload"]: row for row in rows}
    wanted = [row for row in rows if given.old_torch or not row.get("old_torch")]
    results = [result for row in wanted for result in predict(row, named, machine)]
    document = summarise([result.as_document() for result in results], machine, load)
    document["counted"] = count(document, given.recordings)
    if given.json is not None:
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    Console().print(render(report(document)))
    return 0


def find_machine(old_torch: str) -> Machine:
    """Return this machine's measured processor; SystemExit if it hasn't been measured."""
    measurement = load_measurement()
    if measurement is None:
        raise SystemExit("This machine's processor isn't measured yet. Hint: slslab calibrate --processor")
    versions = read_versions()
    host = Host(
        measurement.timings, minor_version(versions["python"]), minor_version(versions["torch"]), load_anchors()
    )
    return Machine(load_profile(DEFAULT_PROFILE), load_processor(), host, old_torch)


def predict(row: Mapping[str, Any], named: Mapping[str, Mapping[str, Any]], machine: Machine) -> Iterator[Result]:
    """Yield a figure for each memory size of a row."""
    measured = {int(size): value for size, value in row["lambda"].items()}
    if row["model"] != "compute":
        model = MODELS[row["model"]]
        cpu_s, processor = machine.cold_starts if "handler" in row else ({}, machine.processor)
        for size, value in measured.items():
            yield evaluate(row, size, value, machine, processor, partial(model, row, size, cpu_s))
    elif "host" in row:
        own_s, then = machine.around(partial(machine.cpu_s, row))
        processor = machine.like_its_anchor(row, then)
        for size, value in measured.items():
            yield evaluate(row, size, value, machine, processor, partial(compute, row, size, own_s))
    else:
        origin = named[row.get("of", row["workload"])]
        yield from predict_ratios(row, origin, measured, machine)


def predict_ratios(
    row: Mapping[str, Any], origin: Mapping[str, Any], measured: Mapping[int, float], machine: Machine
) -> Iterator[Result]:
    """Yield each size's figure: Lambda's at the base times the ratio of replayed figures."""
    base = origin["lambda"][str(row["base"])]
    first = evaluate(origin, row["base"], base, machine, machine.processor, partial(compute, origin, row["base"], 1.0))
    for size, value in measured.items():
        here = evaluate(row, size, value, machine, machine.processor, partial(compute, row, size, 1.0))
        pair = here.uncertainty.of_one_recording(), first.uncertainty.of_one_recording()
        low, high = (base * end for end in ratio_range((here.ours, first.ours), pair))
        own = Uncertainty({}, {"the replay": pair[0].of_ratio(pair[1])})
        yield Result(row, size, value, base * here.ours / first.ours, low, high, own)


def evaluate(
    row: Mapping[str, Any], size: int, measured: float, machine: Machine, processor: Processor, played: Played
) -> Result:
    """Return a replayed figure, with its range."""
    profile = with_processor(machine.profile, processor)

    def figures(profile: Profile) -> dict[str, float]:
        return {"seconds": played(profile)}

    plain = figures(profile)
    uncertainty = find_uncertainties(plain, figures, profile, processor, instances=False)["seconds"]
    low, high = uncertainty.around(plain["seconds"])
    scale = SCALE[row["unit"]]
    return Result(row, size, measured, plain["seconds"] * scale, low * scale, high * scale, uncertainty)


def compute(row: Mapping[str, Any], size: int, cpu_s: float, profile: Profile) -> float:
    """Return the seconds of CPU time at a memory size.

    Training steps have a thread for each begun vCPU and a serial part; other work has the row's threads.
    """
    threads = row.get("threads", 1)
    if not row.get("training"):
        whole = profile.compute.parallel.model_copy(update={"value": 1.0})
        profile = profile.model_copy(update={"compute": profile.compute.model_copy(update={"parallel": whole})})
    memory_mb = size if row.get("training") else threads * VCPU_MB
    environment = Environment(size / profile.compute.vcpu_mb.value, memory_mb, profile, profile.compute.speeds())
    return environment.compute(0, round(cpu_s * NS), row["kind"], parallel=True) / NS


def play_init(row: Mapping[str, Any], size: int, cpu_s: Mapping[str, float], profile: Profile) -> float:
    """Return the seconds of init."""
    init = {"init_cpu_ns": to_ns(cpu_s[row["handler"]]), "package": row.get("package", "zip")}
    return play_call(Track("function", "invocation", 0, (), size, **init), profile).init_ns / NS


def play_first(row: Mapping[str, Any], size: int, cpu_s: Mapping[str, float], profile: Profile) -> float:
    """Return the seconds of the first invocation, which opens a connection and makes one request."""
    connect = Step("connect", "other", to_ns(cpu_s[PUT]))
    steps = (connect, Step(row["op"], "other", requests=1))
    return duration_s(play_call(Track("function", "invocation", 0, steps, size), profile))


def play_request(row: Mapping[str, Any], size: int, _: Mapping[str, float], profile: Profile) -> float:
    """Return the seconds of one request."""
    step = Step(row["op"], "other", requests=1, bytes=row["bytes"])
    return duration_s(play_call(Track("function", "invocation", 0, (step,), size), profile))


def play_hop(row: Mapping[str, Any], size: int, cpu_s: Mapping[str, float], profile: Profile) -> float:
    """Return the seconds from a function's end to the next one's start, or to the end of all parallel ones.

    Functions of a row without a handler are warm: each has run before.
    """
    parallel, cold = row.get("parallel", 1), "handler" in row
    begun, ended, next_begun, next_ended, warm = range(5)
    task, join = partial(Step, TRANSITION, "other"), partial(Step, "join", "wait")
    steps = [task(requests=1, opens=(begun,)), join(awaits=(ended,))]
    # A Map state is a separate state.
    steps += [task(requests=1)] * (parallel > 1)
    steps += [task(requests=parallel, bytes=parallel * row["bytes"], opens=(next_begun,)), join(awaits=(next_ended,))]
    machine = Track("machine", "execution", 0, tuple(steps), awaits=() if cold else (warm,))
    first = Track("first", "invocation", 0, (), size, awaits=(begun,), opens=(ended,))
    init_ns = to_ns(cpu_s[row["handler"]]) if cold else 0
    other = Track("next", "invocation", 0, (), size, init_cpu_ns=init_ns, awaits=(next_begun,), opens=(next_ended,))
    before = [] if cold else [Track("next", "invocation", 0, (), size, opens=(warm,))] * parallel
    gates = (1, 1, 1, parallel, parallel)
    calls = play(Program("hop", 1, (machine, first, *[other] * parallel, *before), gates), profile).calls
    others = calls[2 : 2 + parallel]
    arrived = max(call.ended for call in others) if parallel > 1 else others[0].began
    return (arrived - calls[1].ended) / NS


MODELS = {"init": play_init, "first": play_first, "request": play_request, "hop": play_hop}


def play_call(track: Track, profile: Profile) -> Call:
    """Replay one invocation."""
    return play(Program("function", 1, (track,), ()), profile).calls[0]


def duration_s(call: Call) -> float:
    """Return an invocation's seconds, without init."""
    return (call.ended - call.began) / NS


def to_ns(seconds: float) -> int:
    """Return whole nanoseconds."""
    return round(seconds * NS)


class Answers(BaseHTTPRequestHandler):
    """Answer every request with an empty JSON object, as DynamoDB answers PutItem."""

    def do_POST(self) -> None:
        """Read the request and answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def answering() -> Iterator[str]:
    """Serve `Answers` over plain HTTP and yield the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def measure_cold_starts() -> dict[str, float]:
    """Return CPU seconds, the least of several cold starts: init by handler, and the client's first request."""
    found: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="slslab-rows-") as folder, answering() as url:
        code = Path(folder)
        for name, text in HANDLERS.items():
            (code / f"{name}.py").write_text(text, encoding="utf-8")
        with Emulator(code_roots=[code]) as emulator:
            client = emulator.client("lambda")
            for name, number in product(HANDLERS, range(COLD_STARTS)):
                client.create_function(
                    FunctionName=f"{name}-{number}",
                    Runtime=f"python{sys.version_info.major}.{sys.version_info.minor}",
                    Handler=f"{name}.handler",
                    MemorySize=VCPU_MB,
                    Timeout=60,
                    Role="arn:aws:iam::000000000000:role/any",
                    Code={"S3Bucket": "hot-reload", "S3Key": str(code)},
                    Environment={"Variables": {"ENDPOINT": url}},
                )
                answer = client.invoke(FunctionName=f"{name}-{number}", Payload=b"{}")
                returned = json.loads(answer["Payload"].read())
                if "FunctionError" in answer:
                    raise SystemExit(f"The function {name} failed: {returned}")
                found[name].append(emulator.records[-1].cpu_ms / 1e3 - returned)
                if name == "client":
                    found[PUT].append(returned)
    return {name: min(cpu_s) for name, cpu_s in found.items()}


def summarise(rows: Sequence[Mapping[str, Any]], machine: Machine, load: float) -> dict[str, Any]:
    """Return the document: the rows, each workload's mean error, and each anchor predicted from the others."""
    errors: dict[str, dict[str, float]] = {}
    for model in ("compute", *MODELS):
        own = [row for row in rows if row["model"] == model and row["standing"] == "predicted"]
        errors[model] = {
            name: fmean(abs(row["error"]) for row in own if row["workload"] == name)
            for name in dict.fromkeys(row["workload"] for row in own)
        }
    anchors = machine.host.anchors
    return {
        "schema": 1,
        "benchmark": "python benchmarks/lambda_rows.py",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "load": load,
        "busy": load > IDLE,
        "processor": machine.processor.name,
        "profile": machine.profile.name,
        "rows": rows,
        "half_widths": half_widths(rows),
        "workloads": [
            {"model": model, "workload": name, "error": e} for model in errors for name, e in errors[model].items()
        ],
        "mean": fmean(error for own in errors.values() for error in own.values()),
        "medians": {model: median(own.values()) for model, own in errors.items() if own},
        "anchors": [
            {"anchor": name, "year": anchors.anchors[name].year, "error": error, "from": others}
            for name, (error, others) in anchor_residuals(machine.factors, anchors).items()
        ],
    }


def count(document: Mapping[str, Any], recordings: Path | None) -> list[dict[str, Any]]:
    """Return by group how many predicted figures lie in their 80 % range, and the median of high ÷ low.

    "all" counts each memory size of a workload; the last group counts each workload once.
    """
    rows = [row for row in document["rows"] if row["standing"] == "predicted"]
    groups = {"Lambda's rows": [(row["inside"], row["high"] / row["low"]) for row in rows]}
    compared = STUDIES["gradssharding"].replay()["rows"]
    blind = [row["cells"]["wall_seconds"] for row in compared if row["variant"].startswith("RQ3")]
    intervals = [(one["modelled"]["low"], float(one["published"]), one["modelled"]["high"]) for one in blind]
    groups["RQ3, predicted blind"] = [(low <= measured <= high, high / low) for low, measured, high in intervals]
    if recordings is not None:
        groups["recordings next to other work"] = list(_recorded(json.loads(recordings.read_text(encoding="utf-8"))))
    groups["all"] = [one for group in groups.values() for one in group]
    groups["Lambda's workloads, by most of their sizes"] = list(_by_workload(rows))
    return [
        {
            "group": name,
            "inside": sum(inside for inside, _ in group),
            "of": len(group),
            "ratio": median(ratio for _, ratio in group),
        }
        for name, group in groups.items()
    ]


def _by_workload(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[bool, float]]:
    """Yield for each workload whether the range covers at least half of its sizes: together they are one fact."""
    for name in dict.fromkeys(row["workload"] for row in rows):
        own = [row for row in rows if row["workload"] == name]
        yield 2 * sum(row["inside"] for row in own) >= len(own), median(row["high"] / row["low"] for row in own)


def _recorded(document: Mapping[str, Any]) -> Iterator[tuple[bool, float]]:
    """Yield for each recording next to other work, and each figure, whether its range covers the idle median."""
    runs = {(one["architecture"], one["condition"]): one["runs"] for one in document["recorded"]}
    for (architecture, condition), busy in runs.items():
        if condition == "idle":
            continue
        for figure in ("seconds", "cost"):
            middle = median(run[figure] for run in runs[architecture, "idle"])
            for run in busy:
                low, high = (run["ranges"][figure][end] for end in ("low", "high"))
                yield low <= middle <= high, high / low


def half_widths(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the median half-width by source, over predicted figures that have it."""
    found = defaultdict[str, list[float]](list)
    for row in rows:
        for source, share in row["half_widths"].items() if row["standing"] == "predicted" else ():
            if abs(share) >= LEAST_WIDTH:
                found[source].append(abs(share))
    return {source: median(shares) for source, shares in found.items()}


def report(document: Mapping[str, Any]) -> Iterator[Part]:
    """Yield what is printed, which docs/accuracy-of-replay.md shows, too."""
    if document["busy"]:
        yield Note(f"This machine was busy (load {document['load']:.1f}): CPU times may be too long.")
    rows = [cells(row) for row in document["rows"]]
    headings = ("workload", "MB", "on Lambda", "predicted (80 %)", "error", "inside", "standing")
    yield Table(headings, rows, words=(0, 3, 5, 6))
    if apart := {row["workload"]: row["apart"] for row in document["rows"] if row["apart"]}:
        yield "These rows don't count in any mean:"
        yield "\n".join(f"{workload}: {reason}." for workload, reason in apart.items())
    errors = [(one["model"], one["workload"], f"{one['error']:.1%}") for one in document["workloads"]]
    yield Table(("kind", "workload", "mean error"), errors, words=(0, 1))
    medians = ", ".join(f"{model} {error:.1%}" for model, error in document["medians"].items())
    yield f"Mean of {len(document['workloads'])} workloads: {document['mean']:.1%}. Medians by kind: {medians}."
    anchors = [
        (one["anchor"], str(one["year"]), ", ".join(one["from"]), f"{one['error']:+.0%}") for one in document["anchors"]
    ]
    caption = "Each anchor of `slslab calibrate --processor`, predicted from the others of its kind"
    yield Table(("anchor", "year", "predicted from", "error"), anchors, caption=caption, words=(0, 2))
    counted = [
        (one["group"], f"{one['inside']} of {one['of']} ({one['inside'] / one['of']:.0%})", f"{one['ratio']:.2f}")
        for one in document["counted"]
    ]
    yield Table(("figures", "in their 80 % range", "median of high ÷ low"), counted)
    widths = ", ".join(f"{source} {share:.0%}" for source, share in document["half_widths"].items())
    yield f"Median half-widths of Lambda's rows by source: {widths}."


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a row of the table."""
    ours = f"{significant(row['ours'])} ({span(row['low'], row['high'])})"
    figures = f"{row['lambda']:,} {row['unit']}", ours, f"{row['error']:+.1%}", "yes" if row["inside"] else "no"
    return row["workload"], f"{row['memory_mb']:,}", *figures, row["standing"]


if __name__ == "__main__":
    sys.exit(main())
