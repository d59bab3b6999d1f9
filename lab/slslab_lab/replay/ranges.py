"""The uncertainty of modelled figures: how much each source of error adds to a figure's logarithm.

To find a figure's sensitivity to a source, the program is played again with that source one standard deviation off.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from slslab.predict import uncertainty
from slslab.predict.accuracy import mean_errors, speed_deviation
from slslab.predict.anchors import Z80
from slslab.predict.processor import SHARED, UNANCHORED, Processor
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import Figure, Profile
from slslab.run.bill import Bill
from slslab_lab.replay.measured import Measured
from slslab_lab.replay.outcome import Totals
from slslab_workers.trace.kinds import COMPUTE, KINDS, Kind

# Figures of a profile that lengthen a run as they grow, and those that shorten it.
LONGER, SHORTER = (
    ("_ms", "_ms_per_mb", "_ms_per_kb", "boot_s", "idle_s"),
    ("_mb_s", "burst_mb", COMPUTE, "compute_speed"),
)
# The figures that may have ranges of their own, by source of error.
RANGED = {
    uncertainty.GPU: (COMPUTE, "compute_speed"),
    uncertainty.STARTS: ("boot_s", "cold_zip_ms", "cold_image_ms"),
    uncertainty.STORES: ("latency_ms", "bandwidth_mb_s", "rate_mb_s"),
    uncertainty.IDLE: ("idle_s",),
}
Figures = Mapping[str, float]
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
    `like` maps a figure of another name to seconds, billed_seconds or cost, the one with the same mean errors.
    """
    like = {**{name: name for name in plain}, **(like or {})}
    # A platform whose starts have ranges is tested by nothing; it errs at least as much as the profile it is based on.
    untested = profile.containers is not None or any(each.boot_s.half_range for each in profile.instances.values())
    errors = mean_errors(DEFAULT_PROFILE if untested else profile.name, instances=instances)
    shared: dict[str, dict[str, float]] = {name: {} for name in plain}
    host: dict[str, list[float]] = {name: [] for name in plain}
    processor = processor or UNANCHORED

    def shifts(moved: Profile) -> Iterator[tuple[str, float]]:
        found = play(moved)
        return ((name, math.log(found[name] / value) if value > 0 else 0.0) for name, value in plain.items())

    for kinds in _errors(profile, processor):
        factor = processor.factor(kinds[0])
        common = math.hypot(*(factor.deviations[source] for source in SHARED))
        for name, shift in shifts(_slower(profile, kinds, factor.deviation)):
            sensitivity = shift / factor.deviation
            shared[name] |= {f"{kind}{uncertainty.ON_LAMBDA}": sensitivity * common for kind in kinds}
            host[name].append(sensitivity * factor.deviations["host"])
    if errors.profile is not None:
        deviation = max(errors.profile.values()) * uncertainty.PER_MEAN_ERROR
        for name, shift in shifts(_slower_platform(profile, math.exp(deviation))):
            sensitivity = shift / deviation
            shared[name][uncertainty.PROFILE] = sensitivity * errors.profile[like[name]] * uncertainty.PER_MEAN_ERROR
    slower: dict[str, Profile] = {}
    if instances:
        slower[uncertainty.GPU] = _slower_instances(profile, True, speed_deviation("gpu"))
        slower[uncertainty.INSTANCE] = _slower_instances(profile, False, speed_deviation("instance"))
    if _has_ranges(profile):
        slower |= {source: _slower_figures(profile, names) for source, names in RANGED.items()}
    for source, moved in slower.items():
        for name, shift in shifts(moved):
            shared[name][source] = shift
    return {
        name: uncertainty.Uncertainty(
            shared[name],
            {
                uncertainty.HOST: math.hypot(*host[name]),
                uncertainty.REPLAY: errors.replay[like[name]] * uncertainty.PER_MEAN_ERROR,
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


def _slower(profile: Profile, kinds: Sequence[Kind], deviation: float) -> Profile:
    compute = profile.compute
    speeds = {kind: compute.kinds.get(kind, compute.speed) for kind in kinds}
    moved = {
        kind: speed.model_copy(update={"value": speed.value * math.exp(-deviation)}) for kind, speed in speeds.items()
    }
    return profile.model_copy(update={"compute": compute.model_copy(update={"kinds": {**compute.kinds, **moved}})})


def _slower_instances(profile: Profile, gpus: bool, deviation: float) -> Profile:
    """Return the profile with slower GPUs, or slower processors of instances, where their speed is assumed.

    An instance that computes faster than its host has a GPU.
    """

    def slower(name: str, speed: Figure, has_gpu: bool) -> Figure:
        on_gpu = has_gpu and name == "compute_speed"
        if speed.status != "assumed" or on_gpu != gpus:
            return speed
        return speed.model_copy(update={"value": speed.value * math.exp(-deviation)})

    moved = {}
    for kind, instance in profile.instances.items():
        has_gpu = instance.compute_speed.value > instance.host_speed.value
        speeds = {name: slower(name, getattr(instance, name), has_gpu) for name in ("compute_speed", "host_speed")}
        moved[kind] = instance.model_copy(update=speeds)
    return profile.model_copy(update={"instances": moved})


def _slower_platform(profile: Profile, factor: float) -> Profile:
    parts = {name: value for name, value in profile if name not in ("compute", "instances", "containers")}
    return profile.model_copy(update={name: _scaled(name, value, lambda *_: factor) for name, value in parts.items()})


def _has_ranges(profile: Profile) -> bool:
    return profile.containers is not None or any(
        figure.half_range for each in profile.instances.values() for figure in (each.boot_s, each.compute_speed)
    )


def _slower_figures(profile: Profile, names: Sequence[str]) -> Profile:
    """Return the profile with each of these figures at the slow side of its range, one standard deviation off."""

    def factor(name: str, figure: Figure) -> float:
        return math.exp(figure.half_range / Z80) if name in names else 1.0

    return profile.model_copy(update={name: _scaled(name, value, factor) for name, value in profile})


def _scaled(name: str, value: Any, factor: Callable[[str, Figure], float]) -> Any:
    if isinstance(value, Figure):
        power = name.endswith(LONGER) - name.endswith(SHORTER)
        return value.model_copy(update={"value": value.value * factor(name, value) ** power}) if power else value
    if isinstance(value, BaseModel):
        return value.model_copy(update={inner: _scaled(inner, each, factor) for inner, each in value})
    if isinstance(value, Mapping):
        return {inner: _scaled(inner, each, factor) for inner, each in value.items()}
    return value
