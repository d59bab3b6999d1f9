"""Compare points of the atlas with real runs that the atlas was not made from."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from slslab.report.formats import percent
from slslab.run.bill import compute_bill
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.measured import Measured, read_measured
from slslab_lab.replay.outcome import outcome
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.whatif import with_memory
from slslab_lab.runs.accuracy.curve import Watcher
from slslab_lab.studies.atlas.costs import measure
from slslab_lab.studies.atlas.points import Job
from slslab_lab.studies.atlas.recordings import Recordings
from slslab_lab.studies.atlas.systems import System
from slslab_lab.studies.experiments import BATCH_SIZE
from slslab_lab.studies.recording import Recording, make_missing, small_run

# A figure was measured on this host, or comes from replaying the run's trace.
MEASURED, REPLAYED = "measured here", "replayed on AWS"


def _run(system: System, model: str, dataset: str, workers: int, *more: int) -> Recording:
    """Return a small run; `more` are its minibatches, epochs and memory size, MB."""
    name = f"{model}-{system.name.replace('/', '-')}"
    values = small_run(model, dataset, workers, BATCH_SIZE, *more, record="alone")
    return Recording(name, system.architecture, values, system.chosen)


# A small run for each point; none of these systems was recorded with that model.
CHECKS = {
    system: _run(system, *shape)
    for system, shape in (
        (System("scatterreduce", "memcached", "ga"), ("lenet", "digits", 2, 1, 6, 1024)),
        (System("scatterreduce", "redis", "ga"), ("mobilenet", "synthetic", 2, 2, 2, 3008)),
        (System("allreduce", "s3", "ma"), ("mobilenet", "synthetic", 3, 2, 2, 3008)),
    )
}


def run_all(directory: Path, watcher: Watcher) -> list[Measured]:
    """Make the missing runs of a directory, and return all; RunError if one fails."""
    make_missing(directory, [*CHECKS.values()], watcher)
    return [read_measured(directory / each.name) for each in CHECKS.values()]


def compare(recordings: Recordings, runs: Sequence[Measured], job: Job) -> dict[str, Any]:
    """Return the document of all checks."""
    rows = [
        {"point": _label(system, run), "figure": figure, "run": real, "atlas": modelled, "error": modelled / real - 1}
        for system, run in zip(CHECKS, runs, strict=True)
        for figure, real, modelled in _figures(system, run, recordings, job)
    ]
    return {"rows": rows, "notes": list(_notes(rows, runs))}


def _label(system: System, run: Measured) -> str:
    return f"{run.plan.model}, {system.name}, {run.plan.workers} workers of {run.plan.memory_mb:,} MB"


def _figures(system: System, run: Measured, recordings: Recordings, job: Job) -> Iterator[tuple[str, float, float]]:
    costs, plan = measure(system, recordings, BATCH_SIZE), run.plan
    parameters = int(run.document["parameters"])
    program = generate(costs.at(parameters), plan.workers, plan.batches, plan.epochs)
    program = with_memory(program, costs.nearest(parameters).run.plan.memory_mb, plan.memory_mb)
    here = outcome(play(program, run.host_profile()), run.arch)
    here_s = fmean(worker["seconds"] for worker in here.workers if 0 <= worker["worker"] < plan.workers)
    # On the Lambda clock.
    worker_s = fmean(float(record["duration_ms"]) for record in run.invocations) / 1000
    yield f"{MEASURED}: seconds of a worker", worker_s, here_s
    yield f"{MEASURED}: billed seconds", float(run.document["billed_seconds"]), here.billed_seconds
    real, modelled = (outcome(play(each, job.profile)) for each in (run.program, program))
    yield f"{REPLAYED}: seconds", real.seconds, modelled.seconds
    hosts = run.hosts(plan.workers)
    bills = (float(compute_bill(each.as_usage(hosts), job.book).total) for each in (real, modelled))
    yield f"{REPLAYED}: USD", next(bills), next(bills)


def _notes(rows: Sequence[Mapping[str, Any]], runs: Sequence[Measured]) -> Iterator[str]:
    for basis, what in (
        (REPLAYED, "the replay of each run's own trace on AWS"),
        (MEASURED, "measurements here, with latencies fitted to each run"),
    ):
        errors = [abs(row["error"]) for row in rows if row["figure"].startswith(basis)]
        mean, most = percent(fmean(errors), ".1"), percent(max(errors), ".1")
        yield f"From {what}, the atlas is off by {mean} on average, by {most} at worst."
    if busy := sum(bool(run.document["host"]["oversubscribed"]) for run in runs):
        yield (
            f"The host was short of processors in {busy} of {len(runs)} runs: the delay is measured, but not modelled."
        )
