"""The document of the atlas: answers first, then winners, crossings, the papers' crossings, and every point."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from slslab.predict.uncertainty import NONE, Uncertainty, ratio_range
from slslab_lab.studies.atlas.grid import (
    GROUPS,
    OBJECTIVES,
    PARAMETERS,
    WORKERS,
    Grid,
    best,
    contests,
    crossings,
    members,
    runner_up,
)
from slslab_lab.studies.atlas.points import MEMORY_MB, MINIBATCHES, Job, Point, megabytes, significant
from slslab_lab.studies.atlas.published import ELSEWHERE, beside
from slslab_lab.studies.atlas.recordings import Recordings
from slslab_lab.studies.atlas.systems import MODELS, SYSTEMS
from slslab_lab.studies.experiments import BATCH_SIZE
from slslab_workers.models import SPECS

NAME = "atlas"
TITLES = {
    "equal": "systems that learn the same, from all workers' gradients after each minibatch",
    "all": "all systems; some exchange less often and may learn less in an epoch",
}


def build(recordings: Recordings, grid: Grid, job: Job) -> dict[str, Any]:
    """Return the document."""
    errors = [point.uncertainties.get("seconds", NONE) for point in grid.points]
    return {
        "atlas": NAME,
        "job": {
            "epochs": job.epochs,
            "minibatches": MINIBATCHES,
            "batch_size": BATCH_SIZE,
            "images": MINIBATCHES * BATCH_SIZE,
        },
        "profile": {"name": job.profile.name, "date": job.profile.date.isoformat()},
        "prices": {"name": job.book.name, "date": job.book.date.isoformat()},
        "uncertainty": max(errors, key=lambda error: error.deviation, default=NONE).as_document(),
        "groups": TITLES,
        "answers": list(_answers(grid)),
        "winners": [
            {"group": group, "objective": objective, **_best(those, objective)}
            for group, objective, those in contests(grid.points)
        ],
        "crossings": [
            crossing.as_document()
            for group in GROUPS
            for objective in OBJECTIVES
            for crossing in crossings(grid, group, objective)
        ],
        "published": [each.as_document() for each in beside(grid)],
        "elsewhere": [{"crossing": crossing, "why": why} for crossing, why in ELSEWHERE],
        "axes": {
            "systems": [{"name": system.name, "equal": system.equal} for system in SYSTEMS],
            "megabytes": [significant(megabytes(size)) for size in PARAMETERS],
            "workers": list(WORKERS),
            "memory_mb": list(MEMORY_MB),
        },
        "recorded": {
            "megabytes": {name: _size(name) for name in MODELS},
            "workers": max(run.plan.workers for runs in recordings.architectures.values() for run in runs),
            "not_quiet": list(recordings.noisy),
        },
        "notes": list(_notes(recordings, grid)),
        "points": [point.as_document() for point in grid.points],
        "refused": [refusal.as_document() for refusal in grid.refusals],
    }


def _size(model: str) -> float:
    parameters = SPECS[model].parameters
    assert parameters is not None, "the recorded models are known"
    return significant(megabytes(parameters))


def _best(those: Sequence[Point], objective: str) -> dict[str, Any]:
    won = best(those, objective)
    following = runner_up(those, won, objective)
    if following is None:
        return {**won.as_document(), "next": None, "next_ratio": None, "next_range": None}
    values = getattr(following, objective), getattr(won, objective)
    low, high = ratio_range(values, (_uncertainty(following, objective), _uncertainty(won, objective)))
    return {
        **won.as_document(),
        "next": following.system.name,
        "next_ratio": significant(values[0] / values[1]),
        "next_range": {"low": significant(low), "high": significant(high)},
    }


def _uncertainty(point: Point, objective: str) -> Uncertainty:
    """Return the uncertainty of a point for ratios, assuming that one machine made all recordings."""
    return point.uncertainties.get(objective, NONE).of_one_recording()


def _answers(grid: Grid) -> Iterator[dict[str, Any]]:
    for group in GROUPS:
        for model in MODELS:
            mine = [point for point in members(grid.points, group) if point.parameters == SPECS[model].parameters]
            fastest, cheapest = (_best(mine, objective) for objective in OBJECTIVES)
            named = {"group": group, "model": model, "megabytes": _size(model)}
            yield {**named, "fastest": fastest, "cheapest": cheapest}


def _notes(recordings: Recordings, grid: Grid) -> Iterator[str]:
    beyond = [point for point in grid.points if point.reasons]
    counts = Counter(reason for point in beyond for reason in point.reasons)
    reasons = "; ".join(f"{number:,} {reason}" for reason, number in counts.items())
    yield (
        f"{len(beyond):,} of {len(grid.points):,} points are extrapolated: {reasons}. The data mark them, with the "
        "reason. With more workers, messages, bytes and waits follow the protocol; a step keeps its recorded CPU "
        "time."
    )
    yield (
        "Every point is a replay of two epochs. The first has the cold starts; further epochs take as long as the "
        "second. A run over Lambda's time-out of 900 s continues in another invocation. Its cold start isn't "
        "included, and neither are the requests of the driver, which puts the minibatches."
    )
    yield (
        "The best system has the lowest middle of its range. Two systems differ if the 80 % range of their ratio "
        "doesn't contain 1. All recordings count as made on one machine, so its processor's error cancels there. The "
        "speeds of GPUs and instances are assumed, and the ranges allow for it."
    )
    yield (
        "Forward and backward of a model take equally long in all systems: as one worker of AllReduce took for them, "
        "measured alone. For a model size between two recorded ones they are interpolated as a power of the "
        "parameters. Real models may need more or less, since a network's work doesn't follow from its size."
    )
    yield (
        "A node of ElastiCache or of a parameter server is started for the job, so its start counts in seconds and "
        "bill. The profile gives no start time for hosts of queues and tensor databases, so none is counted. A GPU's "
        "speed is the profile's, and assumed. DynamoDB never throttles in the model."
    )
    yield (
        "A processor of c5.large is assumed to be as fast as one of Lambda's, and messages between two of them to "
        "take as long as the LambdaML paper says. Where gloo wins by less than the error of that, it may not win on "
        "AWS."
    )
    shares = ", ".join(
        f"{run.costs.workload.share:.0%} with {run.plan.model}" for run in recordings.architectures["mlless"]
    )
    yield f"MLLess sends the same share of its updates as in the recording of the nearest model: {shares}."
    if refused := {refusal.system.name for refusal in grid.refusals}:
        yield f"Some sizes are refused: {'; '.join(sorted(refused))}, since items are limited to 400 KB."
    if recordings.noisy:
        yield f"PROVISIONAL: measured while others loaded the host: {', '.join(recordings.noisy)}."
