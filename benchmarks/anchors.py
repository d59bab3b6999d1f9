"""Measure the reference machine's workloads again and write them into `emulator/slslab/predict/anchors.toml`.

    python benchmarks/anchors.py --reference [--old-torch PYTHON] [--old-numpy PYTHON] [--minutes N]
    python benchmarks/anchors.py --interpreters PYTHON...

`--reference` repeats each workload in rounds for N minutes (10) and keeps the least CPU seconds. It writes them, with
the processor, the versions and the load average, into [reference] and [workloads]. Run it on an idle machine: above a
load of 0.5 the figures stay marked as provisional. Two anchors need old versions; without an interpreter that has them,
their workloads keep their figures. To make such interpreters:

    python3.7 -m venv OLD_TORCH && OLD_TORCH/bin/pip install torch==1.0.1 numpy==1.16.6
    python3.8 -m venv OLD_NUMPY && OLD_NUMPY/bin/pip install numpy==1.22.1

`--interpreters` compares the Python workloads in other versions of Python with those in this one, writes the multiples,
and prints how well short forms represent whole ones. `start` and `boto3` are compared in interpreters that have
awslambdaric and boto3; the anchors need Python 3.13's:

    python3.13 -m venv NEW_PYTHON && NEW_PYTHON/bin/pip install awslambdaric boto3
"""

import argparse
import os
import re
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from slslab.predict.anchors import PATH, load_anchors, minor_version
from slslab.predict.processor import Timing
from slslab.processor.kept import read_cpu
from slslab.processor.measurement import NEEDS, read_versions, run_workloads

OLD = {"resnet50-2019": "resnet50", "fft-2022": "fft"}
PYTHON = ("hash", "loop", "floats", "sort", "imports", "start", "boto3")
FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "sha_ni", "asimd", "sve")
IDLE = 0.5
Seconds = dict[tuple[str, str], list[float]]


def _versions_of(interpreter: str) -> dict[str, str]:
    lines = run_workloads(interpreter, ["versions"], "whole", timeout_s=20)
    if not lines:
        raise SystemExit(f"{interpreter} doesn't run as a Python interpreter.")
    return dict(lines[0]["versions"])


def repeat(interpreter: str, names: tuple[str, ...], forms: tuple[str, ...], rounds: int, found: Seconds) -> None:
    """Run workloads in rounds and add their CPU seconds to `found`, by name and form."""
    versions = _versions_of(interpreter)
    usable = [name for name in names if versions[NEEDS.get(name, "python")]]
    for _ in range(rounds):
        for name in usable:
            for form in forms:
                for line in run_workloads(interpreter, [name], form, repeat=3, seconds=3.0, timeout_s=300):
                    found[name, form] += line["cpu_s"]


def measure_reference(old: dict[str, str | None], minutes: float) -> None:
    """Measure all workloads and write them into the file of anchors."""
    found: Seconds = defaultdict(list)
    loads, until = [os.getloadavg()[0]], time.monotonic() + 60 * minutes
    while not found or time.monotonic() < until:
        repeat(sys.executable, (*PYTHON, "add", "add-new", "fft", "step", "resnet50"), ("short", "whole"), 1, found)
        for name, interpreter in old.items():
            if interpreter:
                with_old: Seconds = defaultdict(list)
                repeat(interpreter, (OLD[name],), ("whole",), 1, with_old)
                found[name, "whole"] += with_old[OLD[name], "whole"]
        loads.append(os.getloadavg()[0])
        print(f"{datetime.now(UTC):%H:%M:%S} load {loads[-1]:.1f}", flush=True)
    text = PATH.read_text(encoding="utf-8")
    for name in load_anchors().workloads:
        if not found[name, "whole"]:
            print(f"{name}: not measured, keeps its figure")
            continue
        whole = Timing("whole", found[name, "whole"])
        values = {"whole_s": whole.least, "spread": whole.spread}
        if load_anchors().workloads[name].short_s and found[name, "short"]:
            values["short_s"] = min(found[name, "short"])
        for key, value in values.items():
            text = _set(text, f"workloads.{name}", key, f"{value:.4g}")
        print(f"{name}: {values}")
    # This program itself makes a load of 1.
    load = median(loads) - 1 if len(loads) > 2 else max(loads)
    for key, shown in _describe(load).items():
        text = _set(text, "reference", key, shown)
    PATH.write_text(text, encoding="utf-8")


def _describe(load: float) -> dict[str, str]:
    cpu, versions = read_cpu(), read_versions()
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    flags = next((line.split() for line in lines if line.startswith(("flags", "Features"))), [])
    name = ", ".join(
        f"{field} {cpu[field]}" for field in ("cpu family", "model", "stepping", "cache size") if field in cpu
    )
    texts = {
        "processor": f"{cpu.get('model name', 'unknown')}, {name}",
        "flags": " ".join(flag for flag in FLAGS if flag in flags),
        "python": f"{versions['python']} ({versions['build']})",
        **{package: versions[package] for package in ("openssl", "torch", "numpy")},
    }
    return {
        **{key: f'"{value}"' for key, value in texts.items()},
        "measured": f"{datetime.now(UTC):%Y-%m-%d}",
        "load": f"{max(0.0, load):.1f}",
        "provisional": str(load > IDLE).lower(),
    }


def _set(text: str, table: str, key: str, value: str) -> str:
    """Set an existing key of a TOML table."""
    pattern = rf"(?m)^(\[{re.escape(table)}\]\n(?:(?!\[).*\n)*?{key} = )[^\n]*$"
    text, count = re.subn(pattern, lambda match: match[1] + value, text, count=1)
    if not count:
        raise SystemExit(f"{PATH} has no {key} in [{table}]")
    return text


def compare_interpreters(interpreters: list[str]) -> None:
    """Print each interpreter's CPU seconds and the errors of its short forms; write its multiples of this one's."""
    seconds: dict[str, dict[tuple[str, str], float]] = {}
    for interpreter in (sys.executable, *interpreters):
        found: Seconds = defaultdict(list)
        repeat(interpreter, PYTHON, ("short", "whole"), 2, found)
        version = minor_version(_versions_of(interpreter)["python"])
        seconds[version] = {key: min(all_) for key, all_ in found.items() if all_}
    first, *others = seconds
    text = PATH.read_text(encoding="utf-8")
    for name in PYTHON:
        whole, short = (
            {
                version: seconds[version][name, form] / seconds[first][name, form]
                for version in others
                if (name, form) in seconds[version]
            }
            for form in ("whole", "short")
        )
        for version in whole:
            error = short[version] / whole[version] - 1
            print(f"{version} {name}: {whole[version]:.2f} × {first}'s; its short form is off by {error:+.0%}")
        table = ", ".join(f'"{version}" = {multiple:.2f}' for version, multiple in whole.items())
        text = _set(text, f"workloads.{name}", "python", f"{{ {table} }}")
    PATH.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--old-torch", metavar="PYTHON")
    parser.add_argument("--old-numpy", metavar="PYTHON")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--interpreters", nargs="+", metavar="PYTHON")
    given = parser.parse_args()
    if given.reference:
        measure_reference({"resnet50-2019": given.old_torch, "fft-2022": given.old_numpy}, given.minutes)
    elif given.interpreters:
        compare_interpreters(given.interpreters)
    else:
        parser.error("name --reference or --interpreters")


if __name__ == "__main__":
    main()
