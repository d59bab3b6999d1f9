"""Test the emulator's long life: 100,000 invocations, 200 at once, and a day's re-invocations of a training.

    python benchmarks/long_life.py [--invocations N] [--at-once N] [--lives N] [--out FILE] [PART ...]

`slslab up` runs in its own process. Its resident memory, descriptors, threads and children are sampled after each
hundredth of the invocations, which four clients make of ten functions in turn. A straight line through the means of 18
equal parts after the first tenth gives the slope, with its 95 % interval (Student's, 16 degrees of freedom). Memory is
flat if the interval's upper end is less than 100 bytes an invocation: 10 MB in 100,000.

At once: this many clients invoke one function, and its handler takes two seconds; an account allows 1,000 at once.

A day: Lambda's functions live for up to 15 minutes, so a worker that trains for a day has 96 lives. Here a function
lives for 2 s, so that a real run of AllReduce has 96 lives in minutes: the worker stores its state, invokes itself and
continues. A fault plan makes each get of S3 0.2 s longer, which doesn't change the training, so that few minibatches
fill a life. The parameters must equal a run without both, to the last bit. There is only one worker: with lives of 2 s,
peers would not have the time to wait for each other's cold starts. Only lives are shortened; nothing is modelled.
"""

import argparse
import http.client
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import psutil

from slslab.aws.clients import signed_headers
from slslab.aws.keys import Pair
from slslab.testing import create_function

SCHEMA = 1
FUNCTIONS, CLIENTS, SAMPLES, PARTS = 10, 4, 100, 18
# Student's quantile 0.975 with PARTS - 2 degrees of freedom.
STUDENT = 2.12
FLAT_BYTES = 100.0
PARTS_OF_IT = ("invocations", "at-once", "day")
COMMAND = "python benchmarks/long_life.py --out results/long-life.json"
PAYLOAD = b'{"name": "you"}'
ANSWER = {"hello": "you"}
HANDLER = "def handler(event, context):\n    return {'hello': event['name']}\n"
SLOW_HANDLER = "import time\n\ndef handler(event, context):\n    time.sleep(2)\n    return {'hello': event['name']}\n"
# A worker's lives in a day, 15 minutes each. Two of them last longer than an epoch.
LIVES = 96
LIFE_S = 2
TRAINING = ("--model", "lr", "--dataset", "breast-cancer", "--workers", "1", "--batches", "7", "--no-evaluation")
SLOW = '[[fault]]\nkind = "slow-store"\nop = "object.get"\nseconds = 0.2\n'

Json = dict[str, Any]


class Service:
    """`slslab up` with its own state, in a process that is measured."""

    def __init__(self, described: Json, variables: Json) -> None:
        self.process = psutil.Process(described["pid"])
        self.endpoint: str = described["endpoints"]["lambda"]
        self.owner = Pair(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
        self.client: Any = boto3.client(
            "lambda",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self.owner.key_id,
            aws_secret_access_key=self.owner.secret,
        )

    def figures(self) -> Json:
        """Return what the process uses now; memory in bytes."""
        with self.process.oneshot():
            return {
                "resident": self.process.memory_info().rss,
                "descriptors": self.process.num_fds(),
                "threads": self.process.num_threads(),
                "children": len(self.process.children(recursive=True)),
            }

    def connection(self) -> http.client.HTTPConnection:
        """Return a kept-alive connection."""
        return http.client.HTTPConnection(self.endpoint.removeprefix("http://"))

    def request(self, function: str) -> tuple[str, dict[str, str]]:
        """Return the path of a function's invocations and signed headers, which are valid for five minutes."""
        path = f"/2015-03-31/functions/{function}/invocations"
        return path, dict(signed_headers(self.owner, "POST", self.endpoint + path, PAYLOAD))


@contextmanager
def service(directory: Path) -> Iterator[Service]:
    """Start `slslab up`, and stop it after the block."""
    variables = {**os.environ, "SLSLAB_STATE": str(directory / "state"), "SLSLAB_RUNS": str(directory / "runs")}

    def command(*arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "slslab", *arguments], env=variables, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout) if "--json" in arguments else None

    described = command("up", "--detach", "--port", "0", "--s3-port", "0", "--edge-port", "0", "--json")
    try:
        started = Service(described, command("env", "--json")["variables"])
        with closing(started.client):
            yield started
    finally:
        command("down")


def many(up: Service, number: int) -> Json:
    """Make this many invocations; return the samples, and the slope of memory with its interval."""
    names = [f"f{index}" for index in range(FUNCTIONS)]
    for name in names:
        create_function(up.client, name, HANDLER)
    each = number // SAMPLES
    samples, wrong, began = [up.figures()], 0, time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool, ExitStack() as stack:
        idle = [stack.enter_context(closing(up.connection())) for _ in range(CLIENTS)]

        def invoke(path: str, headers: dict[str, str]) -> bool:
            connection = idle.pop()
            connection.request("POST", path, PAYLOAD, headers)
            right = bool(json.loads(connection.getresponse().read()) == ANSWER)
            idle.append(connection)
            return right

        for sample in range(SAMPLES):
            requests = [up.request(name) for name in names]
            done = pool.map(lambda index: invoke(*requests[index % FUNCTIONS]), range(each))  # noqa: B023 - done here
            wrong += each - sum(done)
            samples.append(up.figures())
            print(f"{(sample + 1) * each:,} invocations: {samples[-1]}", file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    later = [(index * each, sample) for index, sample in enumerate(samples) if index > SAMPLES // 10]
    slope, half = line([(at, float(sample["resident"])) for at, sample in later])
    counts = {
        name: [later[0][1][name], *extremes([sample[name] for _, sample in later]), later[-1][1][name]]
        for name in ("resident", "descriptors", "threads", "children")
    }
    return {
        "invocations": each * SAMPLES,
        "wrong": wrong,
        "seconds": round(seconds, 1),
        "bytes_per_invocation": round(slope, 1),
        "interval": [round(slope - half, 1), round(slope + half, 1)],
        "flat": slope + half < FLAT_BYTES,
        # After the first tenth: first, least, greatest, last.
        "after_the_first_tenth": counts,
        "resident_mb": [round(sample["resident"] / 2**20, 1) for sample in samples],
        "descriptors": [sample["descriptors"] for sample in samples],
    }


def extremes(values: Sequence[int]) -> tuple[int, int]:
    """Return the least and the greatest."""
    return min(values), max(values)


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the slope of a line through the means of equal parts of the points, and half its 95 % interval."""
    each = len(points) // PARTS
    parts = [points[index * each : (index + 1) * each] for index in range(PARTS)]
    x = [statistics.fmean(at for at, _ in part) for part in parts]
    y = [statistics.fmean(value for _, value in part) for part in parts]
    slope, intercept = statistics.linear_regression(x, y)
    residuals = sum((b - slope * a - intercept) ** 2 for a, b in zip(x, y, strict=True))
    spread = sum((a - statistics.fmean(x)) ** 2 for a in x)
    return slope, STUDENT * math.sqrt(residuals / (PARTS - 2) / spread)


def at_once(up: Service, number: int) -> Json:
    """Invoke one function this many times at once; return the answers, and how many ran together."""
    create_function(up.client, "slow", SLOW_HANDLER, Timeout=60)
    path, headers = up.request("slow")
    together = threading.Barrier(number)
    before = up.figures()

    def invoke(_: int) -> str:
        together.wait()
        with closing(up.connection()) as connection:
            connection.request("POST", path, PAYLOAD, headers)
            answer = connection.getresponse()
            body = answer.read()
        right = answer.status == 200 and json.loads(body) == ANSWER
        return "answered" if right else f"{answer.status} {body[:100].decode()}"

    began = time.monotonic()
    with ThreadPoolExecutor(number) as pool:
        answers = Counter(pool.map(invoke, range(number)))
    return {
        "at_once": number,
        "answers": dict(answers),
        "seconds": round(time.monotonic() - began, 1),
        "environments": up.figures()["children"] - before["children"],
    }


def day(directory: Path, lives: int) -> Json:
    """Train with at least this many lives of each worker, and once in one life; return both, and whether they agree."""
    faults, found = directory / "slow.toml", {}
    faults.write_text(SLOW)
    short = ("--timeout", str(LIFE_S), "--memory", "1769", "--faults", str(faults))
    for name, options in (("re-invoked", short), ("uninterrupted", ())):
        arguments = ("allreduce", *TRAINING, "--epochs", str(lives // 2), *options)
        out = directory / name
        began = time.monotonic()
        command = [sys.executable, "-m", "slslab", "run", *arguments, "--out", str(out), "--json"]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        process, resident = psutil.Process(running.pid), []
        while running.poll() is None:
            resident.append((time.monotonic() - began, float(process.memory_info().rss)))
            time.sleep(0.2)
        document = json.loads((out / "run.json").read_text())
        if document["status"] != "done":
            raise SystemExit(f"{name}: {document['error']}")
        records = [json.loads(text) for text in (out / "invocations.jsonl").read_text().splitlines()]
        training = resident[len(resident) // 5 : -len(resident) // 5]
        found[name] = {
            "command": " ".join(("slslab run", *arguments)).replace(str(faults), faults.name),
            "seconds": round(document["seconds"]["measured"], 1),
            "lives": len(records),
            "endings": document["reports"]["endings"],
            "billed_seconds": round(sum(record["billed_ms"] for record in records) / 1000, 1),
            "parameters_sha256": document["parameters_sha256"],
            "resident_mb": [round(value / 2**20, 1) for _, value in (training[0], training[-1])],
        }
        checked = subprocess.run([sys.executable, "-m", "slslab", "check", str(out)], stdout=subprocess.DEVNULL)
        found[name]["holds"] = checked.returncode == 0
    if found["re-invoked"]["lives"] < lives:
        raise SystemExit(f"The worker had {found['re-invoked']['lives']} lives of {lives}.")
    equal = len({one["parameters_sha256"] for one in found.values()}) == 1
    return {"fault_plan": SLOW, **found, "equal_bits": equal}


def main() -> None:
    """Measure, and write the document after each part; keep a document's other parts."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS_OF_IT)}; all by default")
    arguments.add_argument("--invocations", type=int, default=100_000)
    arguments.add_argument("--at-once", type=int, default=200)
    arguments.add_argument("--lives", type=int, default=LIVES)
    arguments.add_argument("--out", type=Path)
    given = arguments.parse_args()
    if unknown := set(given.parts) - set(PARTS_OF_IT):
        arguments.error(f"unknown part {min(unknown)!r}: parts are {', '.join(PARTS_OF_IT)}")
    parts = {} if given.out is None or not given.out.exists() else json.loads(given.out.read_text())["parts"]
    for part in given.parts or PARTS_OF_IT:
        with tempfile.TemporaryDirectory() as scratch:
            directory = Path(scratch)
            load = os.getloadavg()[0]
            if part == "day":
                found = day(directory, given.lives)
            else:
                with service(directory) as up:
                    found = many(up, given.invocations) if part == "invocations" else at_once(up, given.at_once)
        host = {"processors": os.cpu_count(), "python": platform.python_version(), "load_before": round(load, 1)}
        parts[part] = {"date": datetime.now(UTC).date().isoformat(), "host": host, **found}
        document = {"schema": SCHEMA, "command": COMMAND, "parts": parts}
        if given.out is not None:
            given.out.write_text(json.dumps(document, indent=1) + "\n")
        print(json.dumps({part: parts[part]}, indent=1), flush=True)


if __name__ == "__main__":
    main()
