"""Measure the cost of emulation: an emulated epoch against a plain loop that computes the same gradients.

    python benchmarks/overhead.py [--model mobilenet] [--batch-size 512] [--batches 3] [--workers 2] [--json]

Both arms run in one call, in pairs, on the same images and seeds, with the same threads per worker. The plain loop is
one process that prepares every worker's minibatch, computes its gradient, averages in rank order and updates; its
imports and images aren't counted. The emulated arm is `slslab run`. The trace splits its CPU time by phase, and the
run's document has the CPU time of emulator, S3 server and driver.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

PLAIN = """
import json, sys, time
import torch
from slslab_workers.plan import Plan, thread_count
from slslab_workers.training import aggregation, datasets, gradients, models
from slslab_workers.training.state import WorkerState

plan = Plan.from_document(json.loads(sys.argv[1]))
torch.set_num_threads(thread_count(plan.memory_mb))
dataset = datasets.load(plan.dataset, plan.workers * plan.batches * plan.batch_size, plan.seed)
dataset = dataset.for_model(models.spec(plan.model))
state = WorkerState.fresh(plan, 0)
wall, cpu = time.monotonic(), time.process_time()
for epoch in range(plan.epochs):
    order = datasets.partition(len(dataset.train_labels), plan.workers, plan.batches, plan.batch_size, plan.seed, epoch)
    for step in range(plan.batches):
        parts = []
        for rank in range(plan.workers):
            chosen = order[rank, step]
            inputs, targets = datasets.prepare(
                dataset.train_images[chosen], dataset.train_labels[chosen], dataset.policy, plan.seed, epoch, rank, step
            )
            state.model.zero_grad()
            torch.nn.functional.cross_entropy(state.model(inputs), targets).backward()
            parts.append(gradients.flat_gradient(state.model))
        gradients.set_gradient(state.model, aggregation.sum_in_rank_order(parts).div_(plan.workers))
        state.optimiser.step()
print(json.dumps({"wall": time.monotonic() - wall, "cpu": time.process_time() - cpu,
                  "sha256": gradients.sha256(gradients.flatten(state.model.parameters()))}))
"""


def emulated(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return one emulated run: its document, and its trace's CPU seconds by phase."""
    from slslab.run.log import load

    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "run"
        command = [sys.executable, "-c", "from slslab.cli.main import main; main()", "run", arguments.architecture]
        for name in ("model", "dataset", "workers", "batches", "epochs", "memory"):
            command += [f"--{name}", str(getattr(arguments, name))]
        command += ["--batch-size", str(arguments.batch_size), "--out", str(out), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"the emulated run failed: {done.stderr}{done.stdout[:2000]}")
        document: dict[str, Any] = json.loads(done.stdout)
        events = load(out).events
        records = [json.loads(line) for line in (out / "invocations.jsonl").read_text().splitlines()]
    phases: dict[str, float] = defaultdict(float)
    workers = [event for event in events if event["worker"] >= 0]
    for event in workers:
        phases[event["phase"]] += event["cpu_ns"] / 1e9
    phases["init"] += sum(event["cpu_ns"] for event in events if event["op"] == "environment.start") / 1e9
    phases["other"] += sum(record["cpu_ms"] for record in records) / 1e3 - sum(phases.values())
    phases.update({f"({part})": used for part, used in document["host"]["own_cpu_seconds"].items()})
    training = [event for event in workers if event["step"] >= 0]
    wall = (max(e["end_ns"] for e in training) - min(e["start_ns"] for e in training)) / 1e9
    return {"document": document, "cpu": dict(phases), "training_wall": wall}


def plain(plan: dict[str, Any]) -> dict[str, Any]:
    """Return one plain loop over the same plan, with the same threads."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, "-c", PLAIN, json.dumps(plan)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--architecture", default="scatterreduce")
    parser.add_argument("--model", default="mobilenet")
    parser.add_argument("--dataset", default="synthetic")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--memory", type=int, default=3008)
    parser.add_argument("--pairs", type=int, default=2, help="how often both arms are run, in turn")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    pairs = []
    for number in range(arguments.pairs):
        print(f"pair {number + 1} of {arguments.pairs}", file=sys.stderr)
        run = emulated(arguments)
        pairs.append({"emulated": run, "plain": plain(run["document"]["plan"])})
    phases = list(pairs[0]["emulated"]["cpu"])
    median = {phase: statistics.median(pair["emulated"]["cpu"][phase] for pair in pairs) for phase in phases}
    total = sum(median.values())
    floor = statistics.median(pair["plain"]["cpu"] for pair in pairs)
    result = {
        "plan": pairs[0]["emulated"]["document"]["plan"],
        "same_parameters": all(
            pair["emulated"]["document"]["parameters_sha256"] == pair["plain"]["sha256"] for pair in pairs
        ),
        "emulated_cpu_seconds": median,
        "emulated_cpu_seconds_total": total,
        "plain_cpu_seconds": floor,
        "cpu_ratio": [sum(p["emulated"]["cpu"].values()) / p["plain"]["cpu"] for p in pairs],
        "training_wall_ratio": [p["emulated"]["training_wall"] / p["plain"]["wall"] for p in pairs],
        "emulator_share": median["(emulator)"] / total,
    }
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(f"\n{'phase':<16}{'CPU s':>10}{'share':>9}")
    for phase, seconds in sorted(median.items(), key=lambda item: -item[1]):
        print(f"{phase:<16}{seconds:>10.2f}{seconds / total:>9.1%}")
    print(f"{'emulated':<16}{total:>10.2f}{1:>9.1%}\n{'plain loop':<16}{floor:>10.2f}{floor / total:>9.1%}")
    ratios = ", ".join(f"{ratio:.2f}" for ratio in result["cpu_ratio"])
    walls = ", ".join(f"{ratio:.2f}" for ratio in result["training_wall_ratio"])
    print(f"CPU emulated/plain by pair: {ratios}; wall of the training steps emulated/plain: {walls}")
    print(f"the emulator's own share of the CPU time: {result['emulator_share']:.2%}")
    print("parameters are bit-equal in both arms" if result["same_parameters"] else "PARAMETERS DIFFER (threads?)")


if __name__ == "__main__":
    main()
