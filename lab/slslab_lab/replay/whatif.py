"""What if: a recorded run with another memory size, processor, network, number of workers, concurrency or price book.

The run isn't repeated: its program and profile are changed and played. Each figure states its basis: measured by the
run, exact (prices, rounding, and counts that the protocol fixes), or modelled (anything that depends on a played time).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal

from slslab.aws.accounts import NEW, account_limits
from slslab.errors import RequestError
from slslab.predict.profiles.profile import Figure, Profile, with_figures
from slslab.predict.uncertainty import Uncertainty
from slslab.run.bill import METERS, OBJECT_OPERATIONS, Bill, Book, Usage, compute_bill
from slslab.run.metrics import Records
from slslab_lab.replay.kernel.kernel import ReplayError, play
from slslab_lab.replay.kernel.program import Program, Track
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.measured import Measured
from slslab_lab.replay.outcome import Totals, outcome
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.programs.stragglers import straggler_note, with_recorded_stragglers, with_straggler
from slslab_lab.replay.ranges import figures_of, play_with_ranges
from slslab_workers.plan import thread_count

Basis = Literal["measured", "exact", "modelled"]
LARGEST_FLEET = 4096
# Memory sizes of a sweep in MB: round ones, and whole vCPUs from 1,769 up.
SIZES = (128, 256, 512, 768, 1024, 1536, 1769, 2048, 3008, 3538, 5307, 7076, 8845, 10_240)


class ImpossibleError(RequestError):
    """A variant that fails on AWS: workers wait for others that can't start, or a host has too little memory."""


@dataclass(frozen=True)
class Variant:
    """Changes to the recording; None means as recorded.

    `memory_mb` is the size of the training functions, and sets their threads; `arch` is x86_64 or arm64; the channels
    and transitions of the profile `network` replace the platform's; `concurrency` is how many environments of the
    account may be busy at once; `straggler` is a worker's rank and the factor of its CPU time.
    """

    memory_mb: int | None = None
    arch: str | None = None
    workers: int | None = None
    network: Profile | None = None
    concurrency: int | None = None
    straggler: tuple[int, float] | None = None

    @property
    def label(self) -> str:
        """The variant in words; empty for the recorded run."""
        words = {
            "memory_mb": f"{self.memory_mb} MB",
            "arch": self.arch,
            "workers": "1 worker" if self.workers == 1 else f"{self.workers} workers",
            "network": f"network of {self.network.name}" if self.network else "",
            "concurrency": f"concurrency {self.concurrency}",
            "straggler": "CPU time of worker {} × {:g}".format(*self.straggler) if self.straggler else "",
        }
        return ", ".join(str(text) for name, text in words.items() if getattr(self, name) is not None)


@dataclass(frozen=True)
class Valued:
    """A number and its basis; `low` and `high` are its 80 % range, if it has one."""

    value: float | Decimal
    basis: Basis
    low: float | None = None
    high: float | None = None

    def as_document(self) -> dict[str, Any]:
        """Return it for JSON; a decimal becomes a string."""
        value = format(self.value, "f") if isinstance(self.value, Decimal) else self.value
        ends = {} if self.low is None or self.high is None else {"low": self.low, "high": self.high}
        return {"value": value, "basis": self.basis, **ends}


def modelled(value: float | Decimal, uncertainty: Uncertainty | None = None) -> Valued:
    """Return a figure that depends on a replayed time, with its 80 % range if its uncertainty is given."""
    return Valued(value, "modelled", *(() if uncertainty is None else uncertainty.around(float(value))))


@dataclass(frozen=True)
class Row:
    """A run as it was, or would be; `late` lists the invocations over the time-out: function, worker, seconds.

    `uncertainties` belong to seconds, billed_seconds, gb_seconds and cost; they are empty for measured rows. An
    impossible row has no figures, and `trouble` says why; `warnings` say what may make it impossible.
    """

    label: str
    figures: Mapping[str, Valued]
    bill: Bill | None = None
    bases: Mapping[str, Basis] | None = None
    late: tuple[tuple[str, int, float], ...] = ()
    trouble: str = ""
    variant: Variant = Variant()
    uncertainties: Mapping[str, Uncertainty] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def number(self, figure: str) -> float:
        """Return a figure as a float, for comparison and plots."""
        return float(self.figures[figure].value)


@dataclass(frozen=True)
class Platform:
    """A profile to play on and a book to price by; `timeout_s` is the functions' time-out."""

    profile: Profile
    book: Book
    timeout_s: float


def with_memory(program: Program, recorded_mb: int, memory_mb: int | None) -> Program:
    """Return the program with another memory size for the training functions, which have the plan's size.

    Functions for which the plan sets another size (a supervisor, or one without torch) keep it; with None, all do.
    """
    if memory_mb is None:
        return program

    def changed(track: Track) -> Track:
        # A supervisor's number is larger than the workers'.
        training = track.kind == "invocation" and 0 <= track.worker < program.workers
        return replace(track, memory_mb=memory_mb) if training and track.memory_mb == recorded_mb else track

    return replace(program, tracks=tuple(changed(track) for track in program.tracks))


def with_network(profile: Profile, network: Profile) -> Profile:
    """Return the profile with another profile's channels and state transitions."""
    return profile.model_copy(
        update={
            "name": f"{profile.name} with the network of {network.name}",
            "channels": network.channels,
            **{name: getattr(network, name) for name in ("transition_ms", "task_ms", "task_ms_per_kb")},
        }
    )


def with_arch(profile: Profile, recorded: str, arch: str) -> Profile:
    """Return the profile with functions on another processor architecture than the recorded one.

    RequestError if the profile doesn't know the speed of arm64 relative to x86-64.
    """
    if arch == recorded:
        return profile
    arm = profile.compute.arm_speed
    if arm is None:
        raise RequestError(
            f"The profile {profile.name} doesn't say how fast arm64 is.", "add [compute.arm_speed] to it."
        )
    factor = arm.value if arch == "arm64" else 1 / arm.value

    def on_arch(entry: str, figure: Figure) -> Figure:
        if not entry.startswith(("compute.speed", "compute.kinds.")):
            return figure
        return Figure(value=figure.value * factor, status=arm.status, source=f"speed, on {arch}: {arm.source}")

    return with_figures(profile, on_arch)


def with_concurrency(profile: Profile, concurrency: int) -> Profile:
    """Return the profile with an account that allows `concurrency` busy environments."""
    figure = Figure(value=concurrency, status="assumed", source="as asked for")
    return profile.model_copy(update={"functions": profile.functions.model_copy(update={"concurrency": figure})})


def vary_program(run: Measured, variant: Variant) -> Program:
    """Return a variant's program; RequestError for an impossible one."""
    program = run.program
    if variant.workers is not None and variant.workers != program.workers:
        program = generate(run.costs, variant.workers, program.batches, program.epochs)
        program = with_recorded_stragglers(program, run.plan)
    program = with_memory(program, run.plan.memory_mb, variant.memory_mb)
    if variant.straggler is not None:
        program = with_straggler(program, *variant.straggler)
    return program


def vary_profile(run: Measured, variant: Variant, profile: Profile) -> Profile:
    """Return a variant's platform; RequestError if the profile lacks a figure for it."""
    if variant.network is not None:
        profile = with_network(profile, variant.network)
    if variant.concurrency is not None:
        profile = with_concurrency(profile, variant.concurrency)
    elif run.plan.account == NEW:
        profile = with_concurrency(profile, account_limits(NEW).account_concurrency)
    return with_arch(profile, run.arch, variant.arch or run.arch)


def simulate(run: Measured, variant: Variant, profile: Profile) -> tuple[Timeline, Totals]:
    """Return a variant's timeline and outcome.

    ImpossibleError if it never ends because environments may not start, or if a host surely has too little memory;
    ReplayError if it never ends for another reason.
    """
    for shortage in run.shortages(variant.workers or run.plan.workers):
        if shortage.is_certain:
            raise ImpossibleError(shortage.message, shortage.hint)
    timeline = play_within(vary_program(run, variant), vary_profile(run, variant, profile))
    return timeline, outcome(timeline, variant.arch or run.arch)


def play_within(program: Program, profile: Profile) -> Timeline:
    """Return a program's timeline; ImpossibleError if the account's concurrency keeps it from ending."""
    try:
        return play(program, profile)
    except ReplayError as error:
        invocations = sum(track.kind == "invocation" for track in program.tracks)
        allowed = int(profile.functions.concurrency.value)
        if invocations <= allowed:
            raise
        raise ImpossibleError(
            f"It never ends: with a concurrency of {allowed:,}, workers wait for others that can't start.",
            "choose fewer workers."
            if profile.containers is not None
            else f"choose fewer workers, or a --concurrency of up to {invocations:,}: AWS raises quotas on request.",
        ) from error


def over_timeout(records: Records, timeout_s: float) -> list[Mapping[str, Any]]:
    """Return the invocations that take longer than this without init: Lambda would have stopped them."""
    return [record for record in records if record["duration_ms"] > timeout_s * 1000]


def modelled_usage(run: Measured, timeline: Timeline, played: Totals) -> Usage:
    """Return the priced usage of a played run: its workers, its hosts for the whole run, its driver."""
    program = timeline.program
    return played.as_usage(run.hosts(program.workers), run.driver_requests(program.workers, program.epochs))


def evaluate(run: Measured, variant: Variant, platform: Platform) -> Row:
    """Return the row of a variant; `Variant()` is the recorded run on the platform."""
    label = variant.label or f"as recorded, {Variant(workers=run.plan.workers).label}"
    label += straggler_note(run.plan, variant.workers or run.plan.workers)
    peak_mb = run.peak_memory_mb
    if variant.memory_mb is not None and variant.memory_mb < peak_mb:
        peak = f"Refused: the run's functions used {peak_mb} MB at their peak."
        return Row(label, {}, trouble=peak, variant=variant)

    def play_priced(profile: Profile) -> tuple[Timeline, Totals, Bill]:
        timeline, played = simulate(run, variant, profile)
        return timeline, played, compute_bill(modelled_usage(run, timeline, played), platform.book)

    try:
        (timeline, played, bill), uncertainties = play_with_ranges(
            play_priced, lambda each: figures_of(each[1], each[2]), platform.profile, run
        )
    except ImpossibleError as error:
        return Row(label, {}, trouble=f"{error.message} To change that, {error.hint}", variant=variant)
    uncertainties["gb_seconds"] = uncertainties["billed_seconds"]
    late = over_timeout(played.invocations, platform.timeout_s)
    values: dict[str, float | Decimal] = {
        "seconds": played.seconds,
        "billed_seconds": played.billed_seconds,
        "gb_seconds": played.gb_seconds,
        "cost": bill.total,
        "waiting_share": played.waiting_share,
        "invocations": len(played.invocations),
        "cold_starts": played.cold_starts,
        "over_timeout": len(late),
    }
    figures = {name: modelled(value, uncertainties.get(name)) for name, value in values.items()}
    # A worker over its time-out would invoke itself again; the recorded one didn't.
    invocations: Basis = "modelled" if late else "exact"
    figures["invocations"] = Valued(len(played.invocations), invocations)
    return Row(
        label,
        figures,
        bill,
        _line_bases(bill, timeline, invocations),
        tuple((record["function"], record["worker"], record["duration_ms"] / 1000) for record in late),
        variant=variant,
        uncertainties=uncertainties,
        warnings=run.warnings(variant.workers),
    )


def measured_row(run: Measured, platform: Platform) -> Row:
    """Return the run as measured on its host, priced by the platform's book: its invocations, or containers."""
    document = run.document
    bill = compute_bill(run.usage(platform.profile.containers), platform.book)
    late = over_timeout(run.invocations, platform.timeout_s)
    figures: dict[str, Valued] = {
        "seconds": Valued(run.span_s, "measured"),
        "billed_seconds": Valued(document["billed_seconds"], "measured"),
        "gb_seconds": Valued(Decimal(document["gb_seconds"]), "measured"),
        # Exact arithmetic on measured figures.
        "cost": Valued(bill.total, "exact"),
        "waiting_share": Valued(run.waiting_share, "measured"),
        "invocations": Valued(document["invocations"], "measured"),
        "cold_starts": Valued(document["cold_starts"], "measured"),
        "over_timeout": Valued(len(late), "measured"),
    }
    workers = {event["invocation"]: event["worker"] for event in run.events if event["worker"] >= 0}
    late_calls = tuple(
        (record["function"], workers.get(record["request_id"], -1), record["duration_ms"] / 1000) for record in late
    )
    return Row("measured", figures, bill, {line.item: "exact" for line in bill.lines}, late_calls)


def _line_bases(bill: Bill, timeline: Timeline, invocations: Basis) -> dict[str, Basis]:
    """Return whether each bill item's quantity is exact. Requests are, unless workers poll with them.

    For another number of workers, the driver's requests to the object store aren't exact either.
    """
    polled = {step.polls for step in timeline.steps if step.polling}
    meters = set(OBJECT_OPERATIONS) - polled if timeline.program.recorded else set()
    bases: dict[str, Basis] = {METERS[meter][0]: "exact" for meter in meters}
    bases[METERS["states.transitions"][0]] = "exact"
    bases[METERS["lambda.requests"][0]] = invocations
    return {line.item: bases.get(line.item, "modelled") for line in bill.lines}


def as_document(row: Row) -> dict[str, Any]:
    """Return a row for JSON: money and GB-seconds as decimal strings, everything else as numbers."""
    variant = row.variant
    changes = {name: value for name, value in vars(variant).items() if value is not None}
    if variant.network is not None:
        changes["network"] = variant.network.name
    if variant.straggler is not None:
        changes["straggler"] = dict(zip(("worker", "factor"), variant.straggler, strict=True))
    if variant.memory_mb is not None:
        changes["threads"] = thread_count(variant.memory_mb)
    document: dict[str, Any] = {"label": row.label, "variant": changes, "trouble": row.trouble or None}
    document |= {name: one.as_document() for name, one in row.figures.items()}
    if row.uncertainties:
        document["uncertainty"] = {name: each.as_document() for name, each in row.uncertainties.items()}
    if row.warnings:
        document["warnings"] = list(row.warnings)
    if row.bill is not None:
        bill = row.bill.as_document()
        for line in bill["lines"]:
            line["basis"] = (row.bases or {})[line["item"]]
        document["bill"] = bill
        document["late"] = [{"function": name, "worker": worker, "seconds": s} for name, worker, s in row.late]
    return document
