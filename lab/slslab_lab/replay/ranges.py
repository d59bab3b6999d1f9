"""The uncertainty of modelled figures: how much each source of error adds to a figure's logarithm.

To find a figure's sensitivity to a source, the program is played again with that source one standard deviation off.
"""

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TypeVar

from slslab.predict import uncertainty
from slslab.predict.accuracy import profile_errors, replay_errors, speed_deviation
from slslab.predict.anchors import Z80
from slslab.predict.processor import SHARED, UNANCHORED, Processor
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import Figure, Profile, with_figures
from slslab.run.bill import Bill
from slslab_lab.replay.measured import Measured
from slslab_lab.replay.outcome import Totals
from slslab_workers.trace.kinds import COMPUTE, KINDS, Kind

# Figures of a profile that lengthen a run as they grow, and those that shorten it.
LONGER, SHORTER = (
    ("_ms", "_ms_per_mb", "_ms_per_kb", "boot_s", "idle_s"),
    ("_mb_s", "burst_mb", "_speed", *KINDS),
)
# Parts of a profile whose figures have errors of their own.
APART = ("compute.", "instances.", "containers.")
# The figures that may have ranges of their own, by source of error.
RANGED = {
    uncertainty.GPU: (COMPUTE, "compute_speed"),
    uncertainty.STARTS: ("boot_s", "cold_zip_ms", "cold_image_ms"),
    uncertainty.STORES: ("latency_ms", "bandwidth_mb_s", "rate_mb_s"),
    uncertainty.IDLE: ("idle_s",),
}
Figures = Mapping[str, float]
# Returns how far a figure's logarithm moves, by its entry and the figure.
Moves = Callable[[str, Figure], float]
Played = TypeVar("Played")


def figures_of(played: Totals, bill: Bill) -> dict[str, float]:
    """Return the figures of a played run that have ranges: seconds, billed seconds and cost."""
    return {"seconds": played.seconds, "billed_seconds": played.billed_seconds, "cost": float(bill.total)}


def with_processor(profile: Profile, processor: Processor | None) -> Profile:
    """Return the profile with the speeds of Lambda's processors relative to the host that recorded a run.

    A profile keeps a speed that was measured or fitted; it also keeps its speed if the host wasn't measured.
    """
    if processor is None or not processor.anchored or profile.compute.speed.status != "assumed":
        return profile
    anchors = ", ".join(f"{name} ({year})" for name, year in processor.anchors.items())
    source = f"slslab calibrate --processor ({processor.form}) on {processor.name}, {processor.measured}; {anchors}"
    speeds = {kind: Figure(value=1 / processor.factor(kind).value, status="fitted", source=source) for kind in KINDS}
    return profile.model_copy(update={"compute": profile.compute.model_copy(update={"kinds": speeds})})


def play_with_ranges(
    play: Callable[[Profile], Played],
    figures: Callable[[Played], Figures],
    profile: Profile,
    run: Measured,
    like: Mapping[str, str] | None = None,
    instances: bool | None = None,
) -> tuple[Played, dict[str, uncertainty.Uncertainty]]:
    """Play a run on the profile; return the result and the uncertainty of each of its figures.

    `like` and `instances` are as in `find_uncertainties`; by default instances are billed if the run has some.
    """
    played = play(profile)
    billed = bool(run.instances) if instances is None else instances
    return played, find_uncertainties(
        figures(played), lambda moved: figures(play(moved)), profile, run.processor, billed, like
    )


def find_uncertainties(
    plain: Figures,
    play: Callable[[Profile], Figures],
    profile: Profile,
    processor: Processor | None,
    instances: bool,
    like: Mapping[str, str] | None = None,
) -> dict[str, uncertainty.Uncertainty]:
    """Return the uncertainty of each figure in `plain`, the result of `play` on the profile.

    The profile already has the processor's speeds (`with_processor`). `instances` says whether instances are billed.
    `like` maps a figure of another name to seconds, billed_seconds or cost, the one with the same mean errors: by
    default seconds.
    """
    # A platform whose starts have ranges is tested by nothing; it errs at least as much as the profile it is based on.
    untested = profile.containers is not None or any(each.boot_s.half_range for each in profile.instances.values())
    tested = profile_errors(DEFAULT_PROFILE if untested else profile.name, instances=instances)
    replayed = replay_errors(instances=instances)
    like = {**{name: name if name in replayed else "seconds" for name in plain}, **(like or {})}
    compute = profile.compute
    speeds = {kind: compute.kinds.get(kind, compute.speed) for kind in KINDS}
    own_speeds = profile.model_copy(update={"compute": compute.model_copy(update={"kinds": speeds})})
    shared: dict[str, dict[str, float]] = {name: {} for name in plain}
    host: dict[str, list[float]] = {name: [] for name in plain}
    processor = processor or UNANCHORED

    def shifts(moves: Moves, moved: Profile = profile) -> Iterator[tuple[str, float]]:
        found = play(_slower(moved, moves))
        return ((name, math.log(found[name] / value) if value > 0 else 0.0) for name, value in plain.items())

    for kinds in _errors(profile, processor):
        factor = processor.factor(kinds[0])
        common = math.hypot(*(factor.deviations[source] for source in SHARED))
        moves = _at([f"compute.kinds.{kind}" for kind in kinds], factor.deviation)
        for name, shift in shifts(moves, own_speeds):
            sensitivity = shift / factor.deviation
            shared[name] |= {f"{kind}{uncertainty.ON_LAMBDA}": sensitivity * common for kind in kinds}
            host[name].append(sensitivity * factor.deviations["host"])
    if tested is not None:
        deviation = max(tested.values()) * uncertainty.PER_MEAN_ERROR
        for name, shift in shifts(lambda entry, _: 0.0 if entry.startswith(APART) else deviation):
            sensitivity = shift / deviation
            shared[name][uncertainty.PROFILE] = sensitivity * tested[like[name]] * uncertainty.PER_MEAN_ERROR
    slower: dict[str, Moves] = {}
    if instances:
        slower[uncertainty.GPU] = _at(_assumed_speeds(profile, True), speed_deviation("gpu"))
        slower[uncertainty.INSTANCE] = _at(_assumed_speeds(profile, False), speed_deviation("instance"))
    if _has_ranges(profile):
        slower |= {source: _to_range_ends(names) for source, names in RANGED.items()}
    for source, moves in slower.items():
        for name, shift in shifts(moves):
            shared[name][source] = shift
    return {
        name: uncertainty.Uncertainty(
            shared[name],
            {
                uncertainty.HOST: math.hypot(*host[name]),
                uncertainty.REPLAY: replayed[like[name]] * uncertainty.PER_MEAN_ERROR,
            },
        )
        for name in plain
    }


def _errors(profile: Profile, processor: Processor) -> list[Sequence[Kind]]:
    """Return the kinds of work that have independent errors; on an unmeasured host all share one error."""
    if not profile.compute.kinds and profile.compute.speed.status != "assumed":
        return []
    # A speed with a range of its own isn't the processor's: it is a GPU's.
    kinds = [kind for kind in KINDS if kind not in profile.compute.kinds or not profile.compute.kinds[kind].half_range]
    return [(kind,) for kind in kinds] if processor.anchored else [kinds]


def _assumed_speeds(profile: Profile, gpus: bool) -> list[str]:
    """Return the entries of the instances' assumed speeds: of GPUs, or of processors.

    An instance that computes faster than its host has a GPU.
    """
    return [
        f"instances.{kind}.{name}"
        for kind, instance in profile.instances.items()
        for name in ("compute_speed", "host_speed")
        if getattr(instance, name).status == "assumed"
        and gpus == (name == "compute_speed" and instance.compute_speed.value > instance.host_speed.value)
    ]


def _has_ranges(profile: Profile) -> bool:
    return profile.containers is not None or any(
        figure.half_range for each in profile.instances.values() for figure in (each.boot_s, each.compute_speed)
    )


def _at(entries: Container[str], deviation: float) -> Moves:
    return lambda entry, _: deviation if entry in entries else 0.0


def _to_range_ends(names: Container[str]) -> Moves:
    return lambda entry, figure: figure.half_range / Z80 if entry.rpartition(".")[2] in names else 0.0


def _slower(profile: Profile, moves: Moves) -> Profile:
    """Return the profile with each figure's logarithm moved to the slow side."""

    def slower(entry: str, figure: Figure) -> Figure:
        move = moves(entry, figure)
        if not move:
            return figure
        power = entry.endswith(LONGER) - entry.endswith(SHORTER)
        return figure.model_copy(update={"value": figure.value * math.exp(power * move)})

    return with_figures(profile, slower)
