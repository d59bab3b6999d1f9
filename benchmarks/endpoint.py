"""Time the one endpoint of all services: S3 and Lambda through it and through their own ports, in one run.

    python benchmarks/endpoint.py [--json] [--quick]

Every measurement goes through the endpoint and directly to the service, in alternating order. A ratio is the median of
such pairs' ratios, so that a busy machine slows both. Then one object of 1 GB is put and read, and the endpoint's peak
resident memory is printed. Two minutes; `--quick` half a minute.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from slslab.aws.clients import aws_client
from slslab.lambda_.emulator import Emulator
from slslab.stack.object_store import EmbeddedObjectStore
from slslab.testing import create_function
from slslab_aws.servers import Edge

SIZE = 12_868_904
LARGE = 1_000_000_000
CALLS = 50
# The workers' settings, which other clients use for speed, too.
FAST = {
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
    "s3": {"addressing_style": "path", "payload_signing_enabled": False},
}
Measure = Callable[[Any], float]


def put(client: Any) -> float:
    """Return seconds of one put."""
    body = os.urandom(SIZE)
    began = time.perf_counter()
    client.put_object(Bucket="bucket", Key="key", Body=body)
    return time.perf_counter() - began


def get(client: Any) -> float:
    """Return seconds of one get."""
    began = time.perf_counter()
    assert len(client.get_object(Bucket="bucket", Key="key")["Body"].read()) == SIZE
    return time.perf_counter() - began


def invoke(client: Any) -> float:
    """Return seconds of a warm invocation, as the median of many."""
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        client.invoke(FunctionName="echo", Payload=b"{}")["Payload"].read()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def pairs(direct: Any, through: Any, rounds: int, measure: Measure) -> dict[str, float]:
    """Return the medians, s, and the median of the pairs' ratios of speed, through ÷ direct."""
    times: list[tuple[float, float]] = []
    for number in range(rounds):
        order = (direct, through) if number % 2 else (through, direct)
        measured = {id(client): measure(client) for client in order}
        times.append((measured[id(direct)], measured[id(through)]))
    return {
        "direct_s": statistics.median(first for first, _ in times),
        "through_s": statistics.median(second for _, second in times),
        "speed_ratio": statistics.median(first / second for first, second in times),
    }


def run(quick: bool) -> dict[str, Any]:
    """Run all measurements."""
    rounds = 9 if quick else 41
    with ExitStack() as parts:
        folder = Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="slslab-")))
        emulator = parts.enter_context(Emulator())
        keys = emulator.keys
        store = parts.enter_context(EmbeddedObjectStore(folder / "data", keys, emulator.mark))
        endpoints = {"lambda": emulator.endpoint, "s3": store.endpoint}
        edge = parts.enter_context(Edge(0, folder, endpoints, keys, emulator.mark))
        direct, through = (aws_client("s3", url, keys.owner, **FAST) for url in (store.endpoint, edge.endpoint))
        through.create_bucket(Bucket="bucket")
        create_function(emulator.client("lambda"), "echo", "def handler(event, context):\n    return event\n")
        functions = [aws_client("lambda", url, keys.owner) for url in (emulator.endpoint, edge.endpoint)]
        invoke(functions[1])
        result: dict[str, Any] = {
            "put of 12.9 MB": pairs(direct, through, rounds, put),
            "get of 12.9 MB": pairs(direct, through, rounds, get),
            "warm invocation": pairs(functions[0], functions[1], rounds // 2, invoke),
        }
        with (folder / "large").open("wb") as file:
            file.truncate(LARGE)
        with (folder / "large").open("rb") as file:
            through.put_object(Bucket="bucket", Key="large", Body=file)
        read = sum(
            len(piece) for piece in through.get_object(Bucket="bucket", Key="large")["Body"].iter_chunks(1 << 20)
        )
        assert read == LARGE
        status = Path(f"/proc/{edge.pid}/status").read_text()
        result["peak_memory_mb_with_1_gb"] = int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    result = run(options.quick)
    if options.json:
        print(json.dumps(result))
        return
    for what, figures in result.items():
        if isinstance(figures, dict):
            direct_ms, through_ms = figures["direct_s"] * 1000, figures["through_s"] * 1000
            print(
                f"{what}: {direct_ms:.2f} ms, {through_ms:.2f} ms through it: {figures['speed_ratio']:.2f} of the speed"
            )
    print(f"peak memory of the endpoint with an object of 1 GB: {result['peak_memory_mb_with_1_gb']:.0f} MB")


if __name__ == "__main__":
    main()
