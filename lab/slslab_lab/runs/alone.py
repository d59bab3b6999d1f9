"""Measure CPU seconds alone: before the run one worker does a few of its steps while nothing else of ours runs,
in several environments one after another.

This is a separate run of the plan that the architecture makes for a single worker (`Architecture.solo`). It uses the
run's stack, and functions or an instance like the run's. Its trace stays in the folder `alone` of the run's directory,
and the stack is cleared before the run begins. One worker has only its own gradients, so combining gradients is
measured in another function.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from slslab.errors import HostError
from slslab.host.probe import probe, slowdown
from slslab.host.procfs import Pressure, read_times
from slslab.processor.kept import make_key
from slslab.run.directory import RunDirectory
from slslab.run.document import Alone, NotAlone
from slslab.run.log import LOG, TraceWriter
from slslab.run.oversubscription import delayed
from slslab.run.run import Run
from slslab_lab.replay.programs.alone import ANY, Sample, samples, suffix, summarise
from slslab_lab.runs.processor import ProcessorWatch
from slslab_lab.runs.recorder import Recorder
from slslab_lab.runs.sweeps.results import Results
from slslab_lab.runs.system import System
from slslab_workers.architecture import Architecture, Progress, RunFailed
from slslab_workers.driver.combining import combining_function, time_combining
from slslab_workers.models import own_packages
from slslab_workers.plan import Plan

FOLDER = "alone"
# What one worker's few steps don't depend on.
ELSE = ("run", "seed", "epochs", "until_accuracy", "early_stopping", "evaluation", "faults", "prices", "timeout")
# Environments differ more from each other than the steps within one environment.
ENVIRONMENTS = 2
# Above these a measurement is not quiet (docs/replay.md says what a quiet machine reaches).
SLOWDOWN, STALLED, DELAYED = 1.1, 0.1, 0.05


SoloProfile = tuple[Alone | NotAlone, dict[str, Any] | None]


def find(
    plan: Plan, architecture: Architecture, system: System, directory: Path, progress: Progress, *, reuse: bool
) -> SoloProfile:
    """Return what steps of each kind take alone, and on which processor.

    With `reuse`, return what an earlier run of the same work measured on this processor. Only quiet measurements are
    kept.
    """
    packages = {"slslab_workers", type(architecture).__module__.partition(".")[0], *own_packages(plan)}
    work = repr(sorted((name, repr(value)) for name, value in plan.to_document().items() if name not in ELSE))
    results = Results(find, (work, make_key()), sorted(packages - {"slslab_workers"}))
    kept: SoloProfile | None = results.read([FOLDER]).get(0) if reuse else None
    if kept is not None:
        return kept
    system.ready()
    watch = ProcessorWatch(plan, progress)
    measured = measure(plan, architecture, system, directory, progress), watch.end()
    if measured[0]["status"] == "measured" and measured[0]["quiet"]:
        with suppress(HostError):  # the next run measures it again
            results.keep(FOLDER, ({**measured[0], "kept": True}, measured[1]), measured[0]["seconds"])
    return measured


def measure(
    plan: Plan, architecture: Architecture, system: System, directory: Path, progress: Progress
) -> Alone | NotAlone:
    """Return what steps of each kind take alone, or why they could not be measured: the worker failed."""
    began = time.monotonic_ns()
    solo, folder = replace(architecture.solo(plan), faults=None), directory / FOLDER
    (folder / "logs").mkdir(parents=True)
    # A worker that waits for a partner never gets to its first step.
    progress.report("alone", 0, solo.workers * solo.batches * solo.epochs)
    with closing(Pressure()) as pressure:
        before, disks, times = probe(), pressure.stalls().disk_ns, read_times()
        try:
            with TraceWriter(folder / LOG, plan.run) as writer, system.high_priority() as raised:
                recorder = Recorder(writer, solo, _Steps(progress))
                with system.running(recorder, folder / "logs") as running:
                    try:
                        with running.watched():
                            for number in range(ENVIRONMENTS):
                                # No name is used twice.
                                again = replace(solo, run=f"{plan.run}-{number}")
                                parameters = architecture.drive(again, running.cloud, _Steps(progress)).parameters
                            architecture.run_solo_scripts(plan, running.cloud, parameters)
                            time_combining(plan, running.cloud, parameters)
                        running.finish()
                    finally:
                        system.clear()
        except RunFailed as error:
            return {"status": "not measured", "reason": f"{error.type}: {error.message}"}
        stolen_share = read_times().stolen_share(times)
        probes = before, probe()
        stalled = (pressure.stalls().disk_ns - disks) / (time.monotonic_ns() - began) if pressure.known else None
    recording = Run(RunDirectory(folder), plan=solo)
    found = _of_many(samples(recording), suffix(combining_function(plan), plan.run))
    # What waited for processors while only a probe ran (a function that its own quota holds back counts as waiting,
    # too), or for memory and disks in all the time.
    shares = [one.stalled_share for one in probes if one.stalled_share is not None]
    stalled_share = None if stalled is None else round(max(stalled, *shares), 3)
    ratio = slowdown(probes)
    delayed_share = delayed(recording.invocations, recording.instances)
    return {
        "status": "measured",
        "seconds": round((time.monotonic_ns() - began) / 1e9, 3),
        "priority": "high" if raised else "normal",
        "quiet": ratio <= SLOWDOWN and (stalled_share or 0.0) <= STALLED and delayed_share <= DELAYED,
        "probe_ratio": round(ratio, 3),
        "stalled_share": stalled_share,
        "delayed_share": round(delayed_share, 3),
        "stolen_share": round(stolen_share, 3),
        "kinds": summarise(found),
    }


def _of_many(found: Iterable[Sample], combining: str) -> Iterator[Sample]:
    """Yield the samples; samples of combining gradients come only from the function `combining`."""
    for sample in found:
        if (sample.kind.function == combining) is (sample.kind.op == "reduce"):
            yield sample._replace(kind=sample.kind._replace(function=ANY)) if sample.kind.op == "reduce" else sample


class _Steps:
    """Reports the single worker's steps as this measurement's."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def report(self, stage: str, done: int, total: int) -> None:
        """Report that `done` of `total` steps are done; no other stage."""
        if stage == "train":
            self._progress.report("alone", done, total)
