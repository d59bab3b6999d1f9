"""Compare the memory format channels-last with PyTorch's default, by a minibatch's gradient.

    python benchmarks/memory_format.py [--model mobilenet] [--batch-size 512] [--threads 2] [--repeat 7] [--json]

Both compute forward, backward and the flat gradient of the same random minibatch, from the same initial weights, as
`slslab run --memory-format` does. They take turns in alternating order, so that a busy machine slows both; a ratio is
the median of the turns' ratios, default to channels-last. The first turn isn't timed.

The error is the distance of 64 images' gradient from the one in double precision, relative to its length.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from slslab_workers.models import spec
from slslab_workers.plan import MEMORY_FORMATS, PlanError
from slslab_workers.training import models, step

ERROR_IMAGES = 64
# The CPU time of all threads together; a busy machine affects it less.
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def make_step(
    model: str, memory_format: str, batch_size: int, dtype: torch.dtype = torch.float32
) -> Callable[[], torch.Tensor]:
    """Return a function that computes the gradient (P,) of one minibatch in this format."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(batch_size, spec(model).channels, 32, 32, generator=generator).to(dtype)
    inputs = models.arranged(inputs, memory_format)
    targets = torch.arange(batch_size) % spec(model).outputs
    network = models.build(model, 0, memory_format).to(dtype)
    return lambda: step.compute_gradient(network, inputs, targets)[1]


def errors(model: str) -> dict[str, float]:
    """Return each format's distance from the gradient in double precision, and the distance between both in double
    precision."""
    default, last = MEMORY_FORMATS
    exact = make_step(model, default, ERROR_IMAGES, torch.float64)()

    def distance(gradient: torch.Tensor) -> float:
        return float((gradient - exact).norm() / exact.norm())

    distances = {format_: distance(make_step(model, format_, ERROR_IMAGES)()) for format_ in MEMORY_FORMATS}
    return distances | {"double precision": distance(make_step(model, last, ERROR_IMAGES, torch.float64)())}


def measure(model: str, batch_size: int, repeat: int) -> dict[str, Any]:
    """Return, by clock (`wall`, `cpu`), the seconds of each turn by format, and the ratios' median, minimum and
    maximum."""
    steps = {format_: make_step(model, format_, batch_size) for format_ in MEMORY_FORMATS}
    turns: dict[str, dict[str, list[float]]] = {clock: {format_: [] for format_ in steps} for clock in CLOCKS}
    for turn in range(repeat + 1):
        print(f"turn {turn} of {repeat}", file=sys.stderr)
        for format_ in MEMORY_FORMATS if turn % 2 else MEMORY_FORMATS[::-1]:
            started = {clock: now() for clock, now in CLOCKS.items()}
            steps[format_]()
            if turn:
                for clock, now in CLOCKS.items():
                    turns[clock][format_].append(now() - started[clock])
    return {clock: {"seconds": seconds, "ratio": compare(seconds)} for clock, seconds in turns.items()}


def compare(turns: dict[str, list[float]]) -> dict[str, float]:
    """Return the median, minimum and maximum of the turns' ratios, default to channels-last."""
    default, last = (turns[format_] for format_ in MEMORY_FORMATS)
    ratios = [format_ / other for format_, other in zip(default, last, strict=True)]
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="mobilenet")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=7, help="timed turns")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if min(arguments.batch_size, arguments.threads, arguments.repeat) < 1:
        parser.error("--batch-size, --threads and --repeat are at least 1.")
    torch.set_num_threads(arguments.threads)
    try:
        clocks = measure(arguments.model, arguments.batch_size, arguments.repeat)
    except PlanError as error:
        parser.error(f"{error.message} {error.hint}")
    document = {
        "model": arguments.model,
        "batch_size": arguments.batch_size,
        "threads": arguments.threads,
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} processors",
        "load": os.getloadavg()[0],
        **clocks,
        "errors": errors(arguments.model),
    }
    if arguments.json:
        print(json.dumps(document, indent=2))
        return
    for format_ in MEMORY_FORMATS:
        wall, cpu = (statistics.median(clocks[clock]["seconds"][format_]) for clock in CLOCKS)
        print(f"{format_:<16}{wall:>8.3f} s, {cpu:>8.3f} CPU s, error {document['errors'][format_]:.1e}")
    for clock in CLOCKS:
        ratio = clocks[clock]["ratio"]
        print(f"{clock}: default takes {ratio['median']:.2f} times as long ({ratio['min']:.2f} to {ratio['max']:.2f})")


if __name__ == "__main__":
    main()
