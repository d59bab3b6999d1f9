"""Measure reference workloads on this host, in child processes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from statistics import geometric_mean
from typing import Annotated, Any

from pydantic import Field

from slslab.errors import HostError
from slslab.host.processes import tied_to_this_process
from slslab.predict.anchors import Form
from slslab.predict.processor import Timing
from slslab.processor import workloads
from slslab_workers.trace.kinds import Kind

# The most seconds that a measurement and a probe may take.
WHOLE_S, SHORT_S, PROBE_S = 90.0, 20.0, 20.0
# Next to processes that copy memory, `loop` grows as little as a hash, and `sort` as much as requests and serialising.
PROBES: Mapping[Kind, tuple[str, ...]] = {
    "interpreter": ("loop", "sort"),
    "startup": ("imports",),
    "streaming": ("add",),
    "dense": ("matmul",),
}
NEEDS = {"add": "numpy", "add-new": "numpy", "fft": "numpy", "matmul": "numpy", "step": "torch", "resnet50": "torch"}
Progress = Callable[[str, int, int], None]
Seconds = Annotated[float, Field(gt=0, lt=1e6)]
Repetitions = Annotated[tuple[Seconds, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Task:
    """One child process: a workload, run up to `repeat` times within `seconds`.

    Each task has its own process: memory that another workload had allocated made a transform 1.6 times as fast.
    """

    name: str
    form: Form
    repeat: int
    seconds: float


# The ones that represent a kind of work come first, as time may run out.
NAMES = ("hash", "loop", "imports", "floats", "add", "fft", "step", "add-new", "resnet50")
# Short forms come first, because they replace whole ones that don't finish in time. Whole ones run in rounds, because
# other guests of a host can slow it for half a minute.
SHORT = tuple(Task(name, "short", 5, 1.0) for name in (*NAMES, "sort"))
ROUND = (*(Task(name, "whole", 4, 2.0) for name in NAMES), Task("sort", "whole", 1, 0.0))
WHOLE = (*SHORT, *ROUND, *ROUND)


@dataclass(frozen=True)
class Measurement:
    """A measurement of this host: CPU seconds of each workload's repetitions (whole and short forms separately), and
    the probe's by kind of work. `load` is the load average of the last minute before it began, `measured` when it
    ended (UTC)."""

    whole: Mapping[str, Repetitions]
    short: Mapping[str, Repetitions]
    probe: Mapping[Kind, Seconds]
    load: float
    measured: str

    @property
    def checks(self) -> dict[str, Timing]:
        """The timings of short forms."""
        return {name: Timing("short", cpu_s) for name, cpu_s in self.short.items()}

    @property
    def timings(self) -> dict[str, Timing]:
        """Each workload's whole timing, or else its short one."""
        return self.checks | {name: Timing("whole", cpu_s) for name, cpu_s in self.whole.items()}


@cache
def read_versions() -> Mapping[str, str]:
    """Return this interpreter's versions: python, build, openssl, torch, numpy; empty if not installed."""
    return workloads.versions()


def run_workloads(
    interpreter: str,
    names: Sequence[str],
    form: str,
    repeat: int = 1,
    seconds: float = 0.0,
    timeout_s: float = WHOLE_S,
) -> list[dict[str, Any]]:
    """Run workloads in a child process of an interpreter; return a line for each that finished within `timeout_s`
    seconds."""
    command = [*tied_to_this_process(), interpreter, workloads.__file__, *names, "--form", form]
    command += ["--repeat", str(repeat), "--seconds", str(seconds)]
    # Measured code must not see this process's own packages.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        output = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=timeout_s,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
    except OSError:
        return []
    lines = []
    for line in output.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:  # the child was killed while it wrote
            break
    return lines


def measure(short: bool, progress: Progress) -> Measurement:
    """Measure the workloads that this interpreter can run: within 20 s for short forms, within 90 s for whole ones.

    HostError if none finished.
    """
    tasks = SHORT if short else WHOLE
    end = time.monotonic() + (SHORT_S if short else WHOLE_S)
    versions, load = read_versions(), os.getloadavg()[0]
    cpu_s: dict[Form, dict[str, tuple[float, ...]]] = {"whole": {}, "short": {}}
    probe = run_probe()
    for number, task in enumerate(tasks):
        progress("measuring the processor", number, len(tasks))
        left = end - time.monotonic()
        if versions.get(NEEDS.get(task.name, "python")) and left > 0:
            for line in run_workloads(sys.executable, [task.name], task.form, task.repeat, task.seconds, left):
                cpu_s[task.form][task.name] = (*cpu_s[task.form].get(task.name, ()), *line["cpu_s"])
    progress("measuring the processor", len(tasks), len(tasks))
    if not any(cpu_s.values()):
        raise HostError("This machine was too busy to measure its processor.", "try again when it is idle.")
    measured = datetime.now(UTC).isoformat(timespec="seconds")
    return Measurement(cpu_s["whole"], cpu_s["short"], probe, load, measured)


def run_probe() -> dict[Kind, float]:
    """Return the CPU seconds of about a second of work now, by kind of work; omit kinds that can't run.

    If a kind has several probes, this is their geometric mean.
    """
    versions = read_versions()
    names = [name for probes in PROBES.values() for name in probes if versions.get(NEEDS.get(name, "python"))]
    lines = run_workloads(sys.executable, names, "probe", repeat=3, seconds=0.3, timeout_s=PROBE_S)
    least = {line["name"]: min(line["cpu_s"]) for line in lines}
    return {
        kind: geometric_mean(least[name] for name in probes)
        for kind, probes in PROBES.items()
        if set(probes) <= set(least)
    }
