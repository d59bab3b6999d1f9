"""Functions and instances with a GPU: the time of their training steps, and the billed seconds of containers."""

from collections.abc import Iterator, Sequence
from statistics import median

from slslab.errors import RequestError
from slslab.predict.environment import NS
from slslab.predict.gpus import load_gpus
from slslab.predict.profiles.profile import Containers, Figure, Profile
from slslab.report.formats import listed
from slslab.run.bill import Book, describe_meter
from slslab.run.containers import container_sizes
from slslab.run.metrics import grouped
from slslab.run.run import Run
from slslab_lab.replay.kernel.program import Program
from slslab_lab.replay.kernel.timeline import Call, Timeline
from slslab_workers.trace.kinds import COMPUTE, kind_of

STEP = "compute"


def with_gpus(profile: Profile, run: Run, program: Program) -> Profile:
    """Return the profile with the speed of the GPUs that compute the run's program: the platform's, for its functions,
    or the ones of the recorded instances. A step takes as long as the GPU's anchor says.

    RequestError if no anchor fits the run, and for functions that computed on a GPU on a platform without GPUs. Without
    GPUs the profile stays as it is.
    """
    devices = sorted({instance["device"] for instance in run.instances} - {"cpu"})
    if profile.containers is None and (gpus := run.gpus):
        raise RequestError(
            f"The functions of {run.id} computed on {listed(gpus)}, and {profile.name} has no functions with GPUs.",
            "replay it with a --platform.",
        )
    if profile.containers is None and not devices:
        return profile
    gpu = profile.containers.gpu if profile.containers else load_gpus().kind_of(devices[0])
    step = load_gpus().step(gpu, run.plan.model, run.plan.batch_size)
    return with_step(profile, gpu, step, step_seconds(program))


def with_step(profile: Profile, gpu: str, step: Figure, recorded_s: float) -> Profile:
    """Return the profile with functions and instances that compute a step of `recorded_s` CPU seconds in `step` s."""
    assert step.low is not None
    assert step.high is not None
    values = {"value": recorded_s / step.value, "low": recorded_s / step.high, "high": recorded_s / step.low}
    speed = Figure(**values, status="fitted", source=f"a step on the {gpu}: {step.source}")
    # A GPU's step doesn't run on the function's threads.
    alone = Figure(value=0, status="fitted", source=speed.source)
    compute = profile.compute.model_copy(update={"parallel": alone})
    if profile.containers is not None:
        compute = compute.model_copy(update={"kinds": {**compute.kinds, COMPUTE: speed}})
    known = load_gpus().gpus[gpu].instances
    instances = {
        name: each.model_copy(update={"compute_speed": speed}) if name in known else each
        for name, each in profile.instances.items()
    }
    return profile.model_copy(update={"compute": compute, "instances": instances})


def step_seconds(program: Program) -> float:
    """Return the median CPU seconds of a program's training steps; RequestError for a program that doesn't train."""
    spent = [step.cpu_ns for track in program.tracks for step in track.flat_steps() if step.op == STEP]
    if not any(spent):
        raise RequestError("The run has no training step that a GPU could compute.", "replay a run that trains.")
    return median(spent) / NS


def check_book(platform: Containers, book: Book) -> None:
    """Raise RequestError for a book without a price for what the platform's containers use."""
    missing = [describe_meter(meter)[0] for meter in container_sizes(platform) if meter not in book.prices]
    if missing:
        raise RequestError(
            f"The price book {book.name} has no price for {listed(missing)}.",
            f'leave out --prices, or give a file with base = "{platform.prices}".',
        )


def lives(timeline: Timeline) -> Iterator[tuple[bool, int, int]]:
    """Yield for each container of a platform that bills them whether it computes, its billed start, and the end of its
    last invocation, ns."""
    profile, tracks = timeline.profile, timeline.program.tracks
    invocations = [(track, call) for track, call in zip(tracks, timeline.calls, strict=True) if call.environment]
    for ran in grouped((id(call.environment), each) for each in invocations for call in [each[1]]).values():
        calls: Sequence[Call] = [call for _, call in ran]
        first = min(calls, key=lambda call: call.began)
        cold_ns = profile.functions.cold_ns(ran[0][0].package)
        begun = first.began - first.init_ns - round(cold_ns * profile.gpu_containers.start_billed.value)
        computes = any(kind_of(step.op) == COMPUTE for track, _ in ran for step in track.flat_steps())
        yield computes, begun, max(call.ended for call in calls)
