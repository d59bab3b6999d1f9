"""The document of the atlas: answers first, then winners, crossings, the papers' crossings, and every point."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from slslab.predict.uncertainty import NONE
from slslab.report.formats import percent
from slslab_lab.studies.atlas.grid import (
    GROUPS,
    OBJECTIVES,
    WORKERS,
    Grid,
    best,
    compare_gpus,
    contests,
    crossings,
    members,
    runner_up,
    sizes,
)
from slslab_lab.studies.atlas.points import MEMORY_MB, MINIBATCHES, Job, Point, megabytes, significant
from slslab_lab.studies.atlas.published import ELSEWHERE, beside
from slslab_lab.studies.atlas.recordings import Recordings
from slslab_lab.studies.atlas.systems import MODELS
from slslab_lab.studies.experiments import BATCH_SIZE
from slslab_workers.models import SPECS

NAME = "atlas"
TITLES = {
    "equal": "systems that learn the same: all workers' gradients, after each minibatch",
    "all": "all systems, also the ones that exchange less often and may learn less from an epoch",
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
        "answers": list(_answers(grid, job)),
        "winners": [
            {"group": group, "objective": objective, **_best(those, objective)}
            for group, objective, those in contests(grid.points)
        ],
        "crossings": [
            crossing for group in GROUPS for objective in OBJECTIVES for crossing in crossings(grid, group, objective)
        ],
        **({"gpu_functions": list(compare_gpus(grid))} if job.platform else {}),
        "published": list(beside(grid)),
        "elsewhere": [{"crossing": crossing, "why": why} for crossing, why in ELSEWHERE],
        "axes": {
            "systems": [{"name": system.name, "equal": system.equal} for system in job.systems],
            "megabytes": [significant(megabytes(size)) for size in sizes(job)],
            "workers": list(WORKERS),
            "memory_mb": list(MEMORY_MB),
        },
        "recorded": {
            "megabytes": {name: significant(megabytes(SPECS[name].parameters)) for name in MODELS},
            "workers": max(run.plan.workers for runs in recordings.architectures.values() for run in runs),
            "not_quiet": list(recordings.noisy),
        },
        "notes": list(_notes(recordings, grid, job)),
        "points": [point.as_document() for point in grid.points],
    }


def _best(those: Sequence[Point], objective: str) -> dict[str, Any]:
    won = best(those, objective)
    following = runner_up(those, won, objective)
    if following is None:
        return {**won.as_document(), "next": None, "next_ratio": None, "next_range": None}
    return {
        **won.as_document(),
        "next": following.system.name,
        "next_ratio": significant(getattr(following, objective) / getattr(won, objective)),
        "next_range": dict(zip(("low", "high"), map(significant, following.times(won, objective)), strict=True)),
    }


def _answers(grid: Grid, job: Job) -> Iterator[dict[str, Any]]:
    named_sizes = {model: SPECS[model].parameters for model in MODELS} | (
        {job.model: job.parameters} if job.model else {}
    )
    for group in GROUPS:
        for model, parameters in named_sizes.items():
            mine = [point for point in members(grid.points, group) if point.parameters == parameters]
            fastest, cheapest = (_best(mine, objective) for objective in OBJECTIVES)
            named = {"group": group, "model": model, "megabytes": significant(megabytes(parameters))}
            yield {**named, "fastest": fastest, "cheapest": cheapest}


def _notes(recordings: Recordings, grid: Grid, job: Job) -> Iterator[str]:
    beyond = [point for point in grid.points if point.reasons]
    counts = Counter(reason for point in beyond for reason in point.reasons)
    reasons = "; ".join(f"{number:,} {reason}" for reason, number in counts.items())
    yield (
        f"{len(beyond):,} of {len(grid.points):,} points are extrapolated: {reasons}. The data give the reason for "
        "each. With more workers, messages, bytes and waits follow the protocol; the CPU time of a step is the "
        "recorded one."
    )
    yield (
        "Every point is a replay of two epochs. The first has the cold starts; a job's further epochs take as long as "
        "the second. A run beyond Lambda's timeout of 900 s continues in another invocation. Its cold start is left "
        "out, and so are the driver's requests, which put the minibatches."
    )
    assumed = "instances, and of GPUs without an anchor," if job.platform else "GPUs and instances"
    yield (
        "The best system has the least middle of a range. The 80 % range of their ratio tells two systems apart. The "
        "recordings are taken to be from one machine, so the error of its processor cancels. "
        f"The speeds of {assumed} are assumed, and the ranges allow for it."
    )
    if job.platform is not None and job.platform.containers is not None:
        book = job.book.name if job.gpu_book else job.platform.containers.prices
        yield f"Functions with GPUs are billed by the prices of {book}."
    yield (
        "Forward and backward take as long in all systems as for one worker of AllReduce, measured alone. The compute "
        "time of a size between two recorded models is a power of its parameters through both. A real model may need "
        "more or less, because its work doesn't follow from its size."
    )
    yield (
        "A node of ElastiCache or of a parameter server is started for the job: its start is in seconds and bill. "
        "Hosts of queues and tensor databases have no start in the profile or here. DynamoDB doesn't throttle."
    )
    yield _alone(grid)
    yield (
        "A processor of c5.large is assumed to be as fast as Lambda's, and messages between two of them to take what "
        "the LambdaML paper says. Where gloo wins by less than this may be off, it may not win on AWS."
    )
    shares = ", ".join(
        f"{percent(run.costs.workload.share)} with {run.plan.model}" for run in recordings.architectures["mlless"]
    )
    yield f"MLLess sends the share of its updates that the recording of the nearest model sent: {shares}."
    yield from sorted({f"{each.system.name}: {each.reason}." for each in grid.refusals if each.system.platform})
    if refused := {refusal.system.name for refusal in grid.refusals if not refusal.system.platform}:
        yield (
            "Some sizes are refused, because an item of DynamoDB holds 400 KB or a database is too small: "
            f"{'; '.join(sorted(refused))}."
        )
    if short := sorted({f"{point.system.name} on {point.short}" for point in grid.points if point.short}):
        number = sum(bool(point.short) for point in grid.points)
        yield (
            f"At {number:,} of {len(grid.points):,} points a node has too little memory if all workers' messages are "
            f"there at once: {'; '.join(short)}. A larger node costs more."
        )
    if recordings.noisy:
        yield f"PROVISIONAL: measured while others loaded the host: {', '.join(recordings.noisy)}."


def _alone(grid: Grid) -> str:
    """Return where another system is cheapest if a job has its node to itself."""
    contested = [those for _, objective, those in contests(grid.points) if objective == "usd"]
    pairs = [(best(those, "usd").system.name, best(those, "usd_alone").system.name) for those in contested]
    flips = Counter(f"{alone} instead of {shared}" for shared, alone in pairs if alone != shared)
    most = f" ({'; '.join(f'{number} times {flip}' for flip, number in flips.most_common(3))})" if flips else ""
    return (
        "USD have the job's share, by the second, of nodes that are always on. A job with a node of its own pays "
        "for each hour of ElastiCache that it begins; that makes another system cheapest at "
        f"{flips.total()} of {len(contested)} places{most}."
    )
