"""A point of the atlas: a system with a model size, a number of workers and a memory size, played and priced."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from slslab.predict.gpus import load_gpus
from slslab.predict.processor import Processor
from slslab.predict.profiles.profile import Figure, Profile
from slslab.predict.uncertainty import NONE, Uncertainty, ratio_range
from slslab.run.bill import Book, load_book
from slslab_lab.replay.crossings import Course, course
from slslab_lab.replay.gpus import step_seconds, with_step
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program
from slslab_lab.replay.memory import Shortage, shortages
from slslab_lab.replay.outcome import outcome
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.ranges import find_uncertainties, with_processor
from slslab_lab.replay.whatif import with_memory
from slslab_lab.studies.atlas.costs import SystemCosts, power
from slslab_lab.studies.atlas.systems import SYSTEMS, System, on_gpus
from slslab_lab.studies.experiments import BATCHES, WORKERS
from slslab_workers.channels.choice import TRACED
from slslab_workers.driver.channels import channel_requirements
from slslab_workers.models import spec
from slslab_workers.plan import Plan, PlanError

# An epoch as in Table 2 of Barrak et al.: all workers together share its minibatches.
MINIBATCHES = WORKERS * BATCHES
# Memory sizes of the training functions in MB: part of a vCPU, one, nearly two, two, three and six.
MEMORY_MB = (512, 1769, 3008, 3538, 5307, 10_240)
# One epoch doesn't show how long a further one takes.
PLAYED_EPOCHS = 2
NAMES = ("architecture", "channel", "algorithm")
# A step on a GPU that takes no time, s.
INSTANT = Figure(value=1e-6, low=1e-6, high=1e-6, status="assumed", source="a bound")
# Figures with the same mean errors.
LIKE = {"usd": "cost", "epoch_seconds": "seconds", "epoch_usd": "cost"}


@dataclass(frozen=True)
class Job:
    """What is trained: a number of epochs on a platform, by its prices; and a model to answer for, in addition to the
    recorded ones, with its parameters.

    With a `platform`, functions with GPUs on it are compared, too, and instances with the same GPU are as fast. These
    functions are billed by the `gpu_book`, by default the platform's own. If it is `instant`, its GPU takes no time,
    for lower bounds. `processor` made all recordings; by default each has its own.
    """

    epochs: int
    profile: Profile
    book: Book
    model: str = ""
    parameters: int = 0
    platform: Profile | None = None
    instant: bool = False
    processor: Processor | None = None
    gpu_book: Book | None = None

    @property
    def systems(self) -> tuple[System, ...]:
        """The compared systems."""
        return SYSTEMS if self.platform is None else (*SYSTEMS, *on_gpus(self.platform.name))


@dataclass(frozen=True)
class Point:
    """Modelled seconds and USD of a job at a point. `boot_s` is the start of the channel's node, which is part of
    `seconds` and billed. `usd` has a share of a node that is always on; `usd_alone` is with a node of its own.

    `short` names the node, if its memory may be too small for all messages at once.

    `epoch_seconds` and `epoch_usd` belong to a further epoch. `reasons` say why the point is extrapolated.
    `uncertainties` are for all four; only leading points have them (`slslab_lab.studies.atlas.grid`).
    """

    system: System
    parameters: int
    workers: int
    memory_mb: int
    seconds: float
    usd: float
    usd_alone: float
    epoch_seconds: float
    epoch_usd: float
    boot_s: float
    reasons: tuple[str, ...]
    short: str = ""
    uncertainties: Mapping[str, Uncertainty] = field(default_factory=dict, hash=False)

    def range(self, figure: str) -> tuple[float, float]:
        """Return the 80 % range of a figure that has an uncertainty."""
        return self.uncertainties[figure].around(getattr(self, figure))

    def error(self, figure: str) -> Uncertainty:
        """Return a figure's uncertainty for ratios, assuming that one machine made all recordings."""
        return self.uncertainties.get(figure, NONE).of_one_recording()

    def times(self, other: "Point", figure: str) -> tuple[float, float]:
        """Return the 80 % range of a figure ÷ another point's."""
        first, second = (getattr(point, figure) for point in (self, other))
        return ratio_range((first, second), (self.error(figure), other.error(figure)))

    def as_document(self) -> dict[str, Any]:
        """Return the point for JSON."""
        ends: dict[str, float | None] = {}
        for name in ("seconds", "usd"):
            values = map(significant, self.range(name)) if name in self.uncertainties else (None, None)
            ends |= zip((f"{name}_low", f"{name}_high"), values, strict=True)
        return {
            "system": self.system.name,
            **{name: getattr(self.system, name) for name in NAMES},
            "equal": self.system.equal,
            "parameters": self.parameters,
            "megabytes": round(megabytes(self.parameters), 6),
            "workers": self.workers,
            "memory_mb": None if self.system.instances else self.memory_mb,
            "seconds": significant(self.seconds),
            "usd": significant(self.usd),
            "usd_alone": significant(self.usd_alone),
            **ends,
            "epoch_seconds": significant(self.epoch_seconds),
            "epoch_usd": significant(self.epoch_usd),
            "boot_seconds": self.boot_s,
            "basis": "modelled",
            "short": self.short,
            "extrapolated": bool(self.reasons),
            "reasons": list(self.reasons),
        }


def megabytes(parameters: float) -> float:
    """Return the size of a model's gradients as float32, MB."""
    return 4 * parameters / 1e6


def significant(value: float) -> float:
    """Return a number with six significant digits."""
    return float(f"{value:.6g}")


def gpu_step(gpu: str, parameters: int) -> Figure | None:
    """Return the seconds of a GPU's step with a model of this size: a power of its parameters between two networks with
    an anchor; None beyond them, and without anchors."""
    steps = {spec(name).parameters: figure for name, figure in load_gpus().gpus[gpu].steps.items()}
    if not steps or not min(steps) <= parameters <= max(steps):
        return None
    ends = {
        name: power([(size, getattr(steps[size], name)) for size in sorted(steps)], parameters)
        for name in ("value", "low", "high")
    }
    return steps[max(steps)].model_copy(update={**ends, "status": "fitted"})


def gpu_refusal(platform: Profile, parameters: int, workers: int) -> str:
    """Return why functions on a platform's GPUs can't be modelled with this size of a model; empty if they can."""
    if workers > (most := int(platform.functions.concurrency.value)):
        return f"{platform.name} has {most} GPUs at once"
    if gpu_step(gpu := platform.gpu_containers.gpu, parameters) is None:
        return f"how long this size takes on the GPU {gpu} can't be said from public figures"
    return ""


def refusal(costs: SystemCosts, parameters: int, workers: int) -> str:
    """Return why the system can't train a model of `parameters` parameters; empty if it can."""
    system = costs.system
    if (short := _shortage(costs, parameters, workers)) is not None and short.is_certain:
        return short.message.removesuffix(".")
    if not system.channel:
        return ""
    chunks = workers if system.architecture == "scatterreduce" else 1
    try:
        channel_requirements(_plan(costs, workers), 4 * math.ceil(parameters / chunks))
    except PlanError:
        return f"messages of {megabytes(math.ceil(parameters / chunks)):,.3g} MB are too large for {system.channel}"
    return ""


def _shortage(costs: SystemCosts, parameters: int, workers: int) -> Shortage | None:
    """Return the host that may have too little memory, if any."""
    plan = replace(_plan(costs, workers), batches=math.ceil(MINIBATCHES / workers), epochs=PLAYED_EPOCHS)
    return next(shortages(costs.architecture, plan, parameters), None)


def points(
    costs: SystemCosts, parameters: int, workers: int, job: Job, ranged_mb: Collection[int] = ()
) -> Iterator[Point]:
    """Yield the points of a system with each memory size that is enough for its functions.

    With `ranged_mb`, yield only points with these memory sizes, with uncertainties. That takes six times as long.
    """
    system, batches = costs.system, math.ceil(MINIBATCHES / workers)
    program = generate(costs.at(parameters), workers, batches, PLAYED_EPOCHS)
    run, peak_mb = costs.nearest(parameters).run, costs.peak_memory_mb(parameters)
    recorded_mb, processor = run.plan.memory_mb, job.processor or run.processor
    profile, book = _platform(system, job)
    profile = _with_gpu(with_processor(profile, processor), system, parameters, program, job)
    hosts = costs.architecture.requirements(_plan(costs, workers)).hosts
    node = job.profile.channels[TRACED.get(system.own_channel, system.own_channel)] if system.own_channel else None
    boot_s = node.boot_s.value if node is not None and node.boot_s is not None else 0.0
    reasons = tuple(costs.reasons(parameters, workers))
    short = _shortage(costs, parameters, workers)
    own = (recorded_mb,) if system.instances else (profile.size(0)[0],) if system.platform else MEMORY_MB
    for memory_mb in own:
        if memory_mb < peak_mb or (ranged_mb and memory_mb not in ranged_mb):
            continue
        sized = with_memory(program, recorded_mb, memory_mb)
        way = _course(sized, hosts, profile)
        values = _figures(way, boot_s, job, book)

        def play_figures(moved: Profile, sized: Program = sized) -> dict[str, float]:
            return _figures(_course(sized, hosts, moved), boot_s, job, book)

        uncertainties: dict[str, Uncertainty] = {}
        if ranged_mb:
            uncertainties = find_uncertainties(values, play_figures, profile, processor, system.instances, LIKE)
        yield Point(
            system,
            parameters,
            workers,
            memory_mb,
            **values,
            usd_alone=float(_booted(way, boot_s, job.epochs).bill(job.epochs, book).alone),
            boot_s=boot_s,
            reasons=reasons,
            short="" if short is None else short.host,
            uncertainties=uncertainties,
        )


def _course(program: Program, hosts: Sequence[str], profile: Profile) -> Course:
    timeline = play(program, profile)
    result = outcome(timeline)
    return course(timeline, result, result.as_usage(hosts))


def _figures(way: Course, boot_s: float, job: Job, book: Book) -> dict[str, float]:
    return {
        "seconds": way.seconds(job.epochs) + boot_s,
        "usd": float(_booted(way, boot_s, job.epochs).bill(job.epochs, book).total),
        "epoch_seconds": way.epoch_s,
        "epoch_usd": float(way.bill(job.epochs + 1, book).total - way.bill(job.epochs, book).total),
    }


def _platform(system: System, job: Job) -> tuple[Profile, Book]:
    if not system.platform:
        return job.profile, job.book
    assert job.platform is not None
    return job.platform, job.gpu_book or load_book(job.platform.gpu_containers.prices)


def _with_gpu(profile: Profile, system: System, parameters: int, program: Program, job: Job) -> Profile:
    """Return the profile with the GPU's speed: of functions on the platform, and of instances with the same GPU."""
    if job.platform is None or job.platform.containers is None or not (system.platform or system.instances):
        return profile
    gpu = job.platform.containers.gpu
    step = INSTANT if job.instant else gpu_step(gpu, parameters)
    return profile if step is None else with_step(profile, gpu, step, step_seconds(program))


def _booted(way: Course, boot_s: float, epochs: int) -> Course:
    """Return the course with its nodes billed from their start on; functions begin once the nodes serve."""
    # A course bills hosts in proportion to its seconds.
    share = way.seconds(way.epochs) / way.seconds(epochs)
    started = Decimal(str(boot_s * share))
    hosts = tuple((kind, seconds + started) for kind, seconds in way.usage.service_hosts)
    return replace(way, usage=replace(way.usage, service_hosts=hosts))


def _plan(costs: SystemCosts, workers: int) -> Plan:
    """Return a plan of the system; the parts of its stack don't depend on the model."""
    return replace(costs.models[0].run.plan, workers=workers, options=costs.options)
