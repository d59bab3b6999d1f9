"""Measure replay's error on unseen plans: it is fitted to three recordings of one plan and compared with others.

    python benchmarks/replay_error.py [--json] [--architectures LIST] [--keep DIR] [--quick]

Each architecture trains MobileNet on synthetic images with 2 workers, three times. `this-host` and the costs of steps
are fitted to these recordings. It also runs with another minibatch, another memory size and another number of workers,
each three times. These measurements are compared with the fitted model, which never saw such runs. The three plans were
chosen before anything was recorded, and fit into two processors; instances, which take a processor each, have other
plans. All four are recorded in turns, because a shared host can be a fifth faster or slower a quarter of an hour later.

  training   seconds on the Lambda clock from an invocation's first event of an epoch to its last, added up, the mean
             over workers
  duration   seconds of a worker's handlers, the mean over workers: with the start, when the model is built
  billed     billed seconds of all functions: with init, too
  spread     (greatest − least) ÷ mean of the three measurements: predictions can't be better

Errors may be 5 % on average and 12 % at worst, or one and a half times the spread if that is more.

A start takes a second or two of CPU time to read and import Python's and torch's files. How long exactly depends on the
host's caches and neighbours, so short runs differ by that, which no model predicts. Nothing else may run on the host:
if its processors are two threads of one core, a neighbour even costs CPU seconds.

Recordings are stored in DIR and reused. A run with more than 2 % host delay is marked, because it includes waits for
delayed peers that models don't have. Instances don't have a Lambda clock, so `gpu` counts wall time minus host delay.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from slslab.errors import SlslabError
from slslab.report.formats import percent
from slslab.report.page import Part, Table
from slslab.report.terminal import render
from slslab.run.oversubscription import OVERSUBSCRIBED
from slslab.run.run import Run
from slslab_lab.replay.fitting import fit
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.outcome import outcome
from slslab_lab.replay.programs.recorded import make_program
from slslab_lab.replay.programs.recording import BESIDE, read_recording
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.programs.step_costs import measure
from slslab_lab.replay.whatif import with_memory
from slslab_lab.runs.planning import architectures
from slslab_lab.studies.atlas.costs import with_samples
from slslab_workers.architecture import workload_of

ARCHITECTURES = ("allreduce", "scatterreduce", "mlless", "spirt", "gpu")
BASE = {"workers": 2, "memory": 768, "batch-size": 32, "batches": 2, "epochs": 4}
REPETITIONS = 3
MEAN, WORST, OF_SPREAD = 0.05, 0.12, 1.5


@dataclass(frozen=True)
class Case:
    """A held-out plan: its differences from the base."""

    name: str
    options: Mapping[str, int]


CASES = (
    Case("minibatches of 64", {"batch-size": 64}),
    Case("1,280 MB", {"memory": 1280}),
    Case("3 workers", {"workers": 3}),
)
CASES_OF_INSTANCES = (CASES[0], Case("minibatches of 16", {"batch-size": 16}), Case("1 worker", {"workers": 1}))
QUICK = CASES[:1]


@dataclass(frozen=True)
class Comparison:
    """Measured and predicted seconds of one held-out plan: means of its runs, and the measurements' spread."""

    architecture: str
    case: str
    figure: str
    measured: float
    foretold: float
    spread: float
    oversubscribed: bool

    @property
    def error(self) -> float:
        """Return the relative error, positive if the prediction is too high."""
        return self.foretold / self.measured - 1

    @property
    def holds(self) -> bool:
        """Return whether the error is within a row's limit."""
        return abs(self.error) <= max(WORST, OF_SPREAD * self.spread)


def record(architecture: str, options: Mapping[str, int], number: int, directory: Path) -> Run:
    """Return a run with these options, recording it unless it exists; RuntimeError if it fails."""
    plan = {**BASE, **options}
    name = "-".join([architecture, *(f"{name}{value}" for name, value in plan.items()), str(number)])
    path = directory / name
    if not path.exists():
        command = [sys.executable, "-m", "slslab", "run", architecture, "--model", "mobilenet", "--no-evaluation"]
        command += ["--dataset", "synthetic"]
        command += [text for name, value in plan.items() for text in (f"--{name}", str(value))]
        done = subprocess.run([*command, "--out", str(path), "--json"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-2000:]}")
    return read_recording(path)


def repeated(architecture: str, plans: Sequence[Mapping[str, int]], directory: Path) -> list[list[Run]]:
    """Return the runs of each plan, recorded in turns."""
    turns = [
        [record(architecture, options, number, directory) for options in plans] for number in range(1, REPETITIONS + 1)
    ]
    return [list(runs) for runs in zip(*turns, strict=True)]


def measured(run: Run) -> dict[str, float]:
    """Return the figures of a recorded run."""
    records, instances = run.invocations, run.instances
    workers = run.plan.workers
    spans: dict[str, list[int]] = {}
    for event in run.events:
        if event["epoch"] >= 0 and 0 <= event["worker"] < workers and event["op"] not in (*BESIDE, "invoke"):
            span = spans.setdefault(event["invocation"], [event["start_ns"], 0, 0])
            span[1] = event["end_ns"]
            span[2] += event["host_delay_ns"]
    training = sum(end - start - delay for start, end, delay in spans.values()) / 1e9 / workers
    if instances:
        seconds = [
            (instance["end_ns"] - instance["start_ns"]) / 1e9 - instance["host_delay_ms"] / 1000
            for instance in instances
        ]
        return {"training": training, "duration": statistics.fmean(seconds)}
    owner = {e["invocation"]: e["worker"] for e in run.events if e["worker"] >= 0}
    total = sum(r["duration_ms"] for r in records if owner.get(r["request_id"], -1) < workers)
    return {
        "training": training,
        "duration": total / 1000 / workers,
        "billed": sum(r["billed_ms"] for r in records) / 1000,
    }


def predicted(timeline: Timeline) -> dict[str, float]:
    """Return the same figures of a replayed program."""
    result, workers = outcome(timeline), timeline.program.workers
    tracks = timeline.program.tracks
    duration = sum(worker["seconds"] for worker in result.workers if 0 <= worker["worker"] < workers) / workers
    spans: dict[int, list[int]] = {}
    for i, step in enumerate(timeline.steps):
        track = timeline.track[i]
        if step.epoch >= 0 and 0 <= tracks[track].worker < workers and tracks[track].kind != "execution":
            spans.setdefault(track, [timeline.begin[i], 0])[1] = timeline.end[i]
    training = sum(end - start for start, end in spans.values()) / 1e9 / workers
    if any(track.kind == "instance" for track in tracks):
        return {"training": training, "duration": duration}
    return {"training": training, "duration": duration, "billed": result.billed_seconds}


def predict(fitted: Sequence[Run], case: Case) -> Timeline:
    """Return the fitted runs' prediction for the case."""
    first = fitted[0]
    architecture = architectures()[first.plan.architecture]
    programs = [make_program(run) for run in fitted]
    costs = measure(programs, architecture, workload_of(first.plan, int(first.summary()["parameters"])))
    plan = {**BASE, **case.options}
    samples = plan["batch-size"] / BASE["batch-size"]
    program: Program = generate(with_samples(costs, samples), plan["workers"], plan["batches"], plan["epochs"])
    if plan["memory"] != BASE["memory"]:
        program = with_memory(program, BASE["memory"], plan["memory"])
    return play(program, fit(fitted, BASE["epochs"], datetime.now(UTC).date()))


def compare(architecture: str, quick: bool, directory: Path) -> Iterator[Comparison]:
    """Yield all cases of one architecture."""
    cases = QUICK if quick else CASES_OF_INSTANCES if architecture == "gpu" else CASES
    fitted, *held_out = repeated(architecture, [{}, *(case.options for case in cases)], directory)
    for case, runs in zip(cases, held_out, strict=True):
        prediction, seen = predicted(predict(fitted, case)), [measured(run) for run in runs]
        oversubscribed = any(run.summary()["host"]["oversubscribed"] for run in runs)
        for figure in seen[0]:
            values = [one[figure] for one in seen]
            mean = statistics.fmean(values)
            spread = (max(values) - min(values)) / mean
            yield Comparison(architecture, case.name, figure, mean, prediction[figure], spread, oversubscribed)


def summary(comparisons: Sequence[Comparison]) -> dict[str, dict[str, float | bool]]:
    """Return mean absolute and worst error, the mean spread, and whether the bounds hold, by figure."""
    figures: dict[str, list[Comparison]] = defaultdict(list)
    for comparison in comparisons:
        figures[comparison.figure].append(comparison)
    found: dict[str, dict[str, float | bool]] = {}
    for figure, rows in figures.items():
        errors = [abs(row.error) for row in rows]
        mean, spread = statistics.fmean(errors), statistics.fmean(row.spread for row in rows)
        holds = mean <= max(MEAN, OF_SPREAD * spread) and all(row.holds for row in rows)
        found[figure] = {"mean": mean, "worst": max(errors), "spread": spread, "holds": holds}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one document on stdout instead of a table")
    parser.add_argument("--architectures", default=",".join(ARCHITECTURES), help="with commas")
    parser.add_argument("--keep", type=Path, help="store recordings in this directory, and reuse existing ones")
    parser.add_argument("--quick", action="store_true", help="minibatches of 64 only")
    arguments = parser.parse_args()
    comparisons: list[Comparison] = []
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as temporary:
        directory = arguments.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        for architecture in arguments.architectures.split(","):
            with console.status(f"{architecture}: recording and predicting"):
                comparisons += compare(architecture, arguments.quick, directory)
    rows = [{**vars(comparison), "error": comparison.error, "holds": comparison.holds} for comparison in comparisons]
    made = {"benchmark": "replay_error", "date": datetime.now(UTC).date().isoformat()}
    document = {**made, "rows": rows, "errors": summary(comparisons)}
    if arguments.json:
        print(json.dumps(document, indent=2))
    else:
        Console().print(render(report(document)))


def report(document: Mapping[str, Any]) -> Iterator[Part]:
    """Yield what is printed, which docs/accuracy-of-replay.md shows, too."""
    rows = [
        (
            *(row["architecture"], row["case"], row["figure"]),
            *(f"{row['measured']:.2f}{'*' * row['oversubscribed']}", f"{row['spread']:.1%}"),
            *(f"{row['foretold']:.2f}", f"{row['error']:+.1%}{'' if row['holds'] else ' !'}"),
        )
        for row in document["rows"]
    ]
    headings = ("architecture", "held out", "figure", "measured s", "spread", "predicted s", "error")
    yield Table(headings, rows, words=range(3))
    yield (
        "Training: seconds of a worker from an epoch's first event to its last. Duration: seconds of a worker's "
        "handlers. Billed: billed seconds of all functions. *: the host delayed functions for more than "
        f"{percent(OVERSUBSCRIBED)} of their time. !: off by more than {percent(WORST)} and by more than {OF_SPREAD} "
        f"times the spread. The bounds: none is so far off, and the mean is at most {percent(MEAN)}, or {OF_SPREAD} "
        "times the mean spread if that is more."
    )
    yield "\n".join(
        f"{figure}: mean absolute error {error['mean']:.1%}, worst {error['worst']:.1%}, mean spread "
        f"{error['spread']:.1%}: {'within' if error['holds'] else 'beyond'} the bounds"
        for figure, error in document["errors"].items()
    )


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, SlslabError) as error:
        sys.exit(f"replay_error: {error}")
