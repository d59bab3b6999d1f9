"""Points of the atlas beside real runs of them, which it was not made of.

Each is a small run here. How long its workers took and what they were billed stand beside what the atlas's costs say of
the same plan on the profile of this host, whose latencies are fitted to the run itself; and the replay of the run's own
trace on AWS beside the atlas's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from slslab.run.bill import compute_bill
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.measured import Measured, read_measured
from slslab_lab.replay.outcome import outcome
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.whatif import with_memory
from slslab_lab.runs.accuracy.curve import Watcher
from slslab_lab.runs.planning import architectures
from slslab_lab.studies.atlas.costs import measure
from slslab_lab.studies.atlas.points import Job
from slslab_lab.studies.atlas.recordings import Recordings
from slslab_lab.studies.atlas.systems import System
from slslab_lab.studies.experiments import BATCH_SIZE
from slslab_lab.studies.recording import Recording, make_missing, small_run

# What a figure of a run is: of this host, or of the run's trace as it is replayed.
MEASURED, REPLAYED = "measured here", "replayed on AWS"


@dataclass(frozen=True)
class Check:
    """A point that was not recorded, as a small run."""

    system: System
    model: str
    dataset: str
    workers: int
    memory_mb: int
    batches: int
    epochs: int

    @property
    def label(self) -> str:
        """Return the point in words."""
        return f"{self.model}, {self.system.name}, {self.workers} workers of {self.memory_mb:,} MB"

    @property
    def recording(self) -> Recording:
        """Return the run to make."""
        shape = (self.workers, BATCH_SIZE, self.batches, self.epochs, self.memory_mb)
        values = small_run(self.model, self.dataset, *shape, record="alone")
        name = f"{self.model}-{self.system.name.replace('/', '-')}"
        return Recording(name, self.system.architecture, values, self.system.chosen)


# No system of them was recorded with that model.
CHECKS = (
    Check(System("scatterreduce", "memcached", "ga"), "lenet", "digits", 2, 1024, 1, 6),
    Check(System("scatterreduce", "redis", "ga"), "mobilenet", "synthetic", 2, 3008, 2, 2),
    Check(System("allreduce", "s3", "ma"), "mobilenet", "synthetic", 3, 3008, 2, 2),
)


def run_all(directory: Path, watcher: Watcher) -> list[Measured]:
    """Make the runs that the directory does not have, and return all; RunError if one fails."""
    recordings = {check.recording.name: check for check in CHECKS}
    for made, document in make_missing(directory, [check.recording for check in CHECKS], watcher):
        watcher.say(f"{recordings[made.name].label}: {document['seconds']['measured']:.0f} s.")
    return [read_measured(directory / name, architectures()) for name in recordings]


def compare(recordings: Recordings, runs: Sequence[Measured], job: Job) -> dict[str, Any]:
    """Return the document of all checks."""
    rows = [
        {"point": check.label, "figure": figure, "run": real, "atlas": modelled, "error": modelled / real - 1}
        for check, run in zip(CHECKS, runs, strict=True)
        for figure, real, modelled in _figures(check, run, recordings, job)
    ]
    return {"rows": rows, "notes": list(_notes(rows, runs))}


def _figures(check: Check, run: Measured, recordings: Recordings, job: Job) -> Iterator[tuple[str, float, float]]:
    costs = measure(check.system, recordings, BATCH_SIZE)
    parameters = int(run.document["parameters"])
    program = generate(costs.at(parameters), check.workers, check.batches, check.epochs)
    program = with_memory(program, costs.nearest(parameters).run.plan.memory_mb, check.memory_mb)
    here = outcome(play(program, run.host_profile()), run.arch)
    here_s = fmean(worker.duration for worker in here.workers if 0 <= worker.worker < check.workers)
    # On the Lambda clock.
    worker_s = fmean(float(record["duration_ms"]) for record in run.invocations) / 1000
    yield f"{MEASURED}: seconds of a worker", worker_s, here_s
    yield f"{MEASURED}: billed seconds", float(run.document["billed_seconds"]), here.billed_seconds
    real, modelled = (outcome(play(each, job.profile)) for each in (run.program, program))
    yield f"{REPLAYED}: seconds", real.seconds, modelled.seconds
    hosts = run.hosts(check.workers)
    bills = (float(compute_bill(each.usage(hosts), job.book).total) for each in (real, modelled))
    yield f"{REPLAYED}: USD", next(bills), next(bills)


def _notes(rows: Sequence[Mapping[str, Any]], runs: Sequence[Measured]) -> Iterator[str]:
    for basis, what in (
        (REPLAYED, "the replay of each run's own trace on AWS"),
        (MEASURED, "what was measured here, on latencies that were fitted to each run"),
    ):
        errors = [abs(row["error"]) for row in rows if row["figure"].startswith(basis)]
        yield f"From {what}, the atlas is off by {fmean(errors):.1%} on average, by {max(errors):.1%} at worst."
    if busy := sum(bool(run.document["host"]["oversubscribed"]) for run in runs):
        yield (
            f"The host was short of processors in {busy} of {len(runs)} runs: the delay is measured, but not modelled."
        )
