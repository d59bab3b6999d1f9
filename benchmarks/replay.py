"""Time replay: runs of 1,000 and 4,096 workers, generated and replayed, and 100,000 invocations priced.

    python benchmarks/replay.py [--json] [--quick]

Each architecture trains an epoch of 24 minibatches a worker with MobileNet's 3,217,226 parameters, on AWS's profile
with as much concurrency as needed. CPU times are round numbers, since only replay itself is measured. Every case runs
in its own process and reports its peak resident memory. `--quick` leaves out 4,096 workers.
"""

import argparse
import json
import multiprocessing
import os
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from slslab.predict.profiles.profile import Profile, load_profile
from slslab.run.bill import Usage, compute_bill, load_book
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Track
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.programs.step_costs import Cost, StepCosts, name_of, unit_of
from slslab_lab.runs.planning import architectures
from slslab_workers import patterns
from slslab_workers.channels.polling import Poll
from slslab_workers.patterns import Workload

PROFILE = "aws-us-east-1"
PARAMETERS, BATCHES = 3_217_226, 24
WORKERS = (1000, 4096)
INVOCATIONS = 100_000
MEMORY_MB = 3008
MS = 1_000_000
# The project's goals, s.
AIMS = {1000: 2, 4096: 10, INVOCATIONS: 1}


def round_costs(name: str) -> StepCosts:
    """Return costs of 1 ms for each request and computation, 1 s for each minibatch, and 1 ns for a byte."""
    architecture: Any = architectures()[name]
    workload = Workload(2, BATCHES, 1, PARAMETERS)
    costs, functions = {}, {}
    for role in architecture.pattern(workload).roles:
        named = "g4dn.xlarge" if role.kind == "instance" else f"slslab-{role.function or 'worker'}"
        functions[unit_of(role)] = Track(named, role.kind, -1, (), MEMORY_MB, init_cpu_ns=10**9)
        for slot, parts in patterns.slots(role, workload):
            for activity in patterns.activities(parts, slot):
                fixed = 1000 * MS if activity.op == "compute" else MS
                key = (unit_of(role), name_of(activity), activity.phase, False)
                costs[key] = Cost(fixed, 0.0, 1.0, 0.0, 1.0, activity.op == "compute", 100_000)
    return StepCosts(
        architecture, workload, costs, functions, frozenset(), Poll(0.01, 1.5, 0.1), {"get": 2 * MS, "list": 2 * MS}
    )


def platform() -> Profile:
    """Return AWS with a higher quota: workers that wait for each other all keep an environment."""
    profile = load_profile(PROFILE)
    concurrency = profile.functions.concurrency.model_copy(update={"value": 1e6})
    functions = profile.functions.model_copy(update={"concurrency": concurrency})
    return profile.model_copy(update={"functions": functions})


def replay(name: str, workers: int) -> dict[str, Any]:
    """Return the times of one architecture with `workers` workers."""
    costs, profile = round_costs(name), platform()
    began = time.perf_counter()
    program = generate(costs, workers, BATCHES, 1)
    generated = time.perf_counter()
    timeline = play(program, profile)
    played = time.perf_counter()
    return {
        "architecture": name,
        "workers": workers,
        "generate_s": round(generated - began, 2),
        "play_s": round(played - generated, 2),
        "seconds": round(played - began, 2),
        "aim_s": AIMS[workers],
        "tracks": len(program.tracks),
        "steps": len(timeline.steps),
        "modelled_s": round(timeline.end_ns / 1e9, 1),
        "peak_mb": peak_mb(),
    }


def reprice() -> dict[str, Any]:
    """Return the time to bill many invocations."""
    records = [
        {"architecture": "x86_64", "memory_mb": MEMORY_MB, "billed_ms": 1000 + number, "ephemeral_mb": 512}
        for number in range(INVOCATIONS)
    ]
    book = load_book("aws-us-east-1")
    began = time.perf_counter()
    bill = compute_bill(Usage(records), book)
    seconds = time.perf_counter() - began
    return {
        "invocations": INVOCATIONS,
        "seconds": round(seconds, 3),
        "aim_s": AIMS[INVOCATIONS],
        "total": str(bill.total),
        "peak_mb": peak_mb(),
    }


def peak_mb() -> int:
    """Return this process's peak resident memory, MB of 1024² bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def apart(function: Any, *arguments: Any) -> dict[str, Any]:
    """Call a function in its own process and return its result."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        result: dict[str, Any] = process.submit(function, *arguments).result()
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--quick", action="store_true", help="1,000 workers only")
    options = parser.parse_args()
    rows = []
    for workers in WORKERS[:1] if options.quick else WORKERS:
        for name in ("allreduce", "scatterreduce", "mlless", "spirt", "gpu"):
            print(f"{name}, {workers} workers", file=sys.stderr)
            rows.append(apart(replay, name, workers))
    bill = apart(reprice)
    cores = len(os.sched_getaffinity(0))
    if options.json:
        document = {"schema": 1, "profile": PROFILE, "cores": cores, "rows": rows, "bill": bill}
        print(json.dumps(document, indent=1))
        return
    print(f"{'':<14}{'workers':>8}{'steps':>11}{'generate':>10}{'play':>9}{'both':>9}{'aim':>7}{'peak MB':>9}")
    for row in rows:
        print(
            f"{row['architecture']:<14}{row['workers']:>8,}{row['steps']:>11,}{row['generate_s']:>8.2f} s"
            f"{row['play_s']:>7.2f} s{row['seconds']:>7.2f} s{row['aim_s']:>5} s{row['peak_mb']:>9,}"
        )
    print(f"{bill['invocations']:,} invocations priced in {bill['seconds']:.3f} s (aim: {bill['aim_s']} s)")


if __name__ == "__main__":
    main()
