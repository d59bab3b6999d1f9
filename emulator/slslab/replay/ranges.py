"""80 % ranges of modelled figures, and of their ratios: what each source of error adds to a figure's logarithm.

A figure's sensitivity to a source is found by playing the program again with that source one standard deviation off.
Two systems share the anchors' errors and the profile's, so these are drawn once for both sides of a ratio.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from slslab.billing.bill import Bill
from slslab.predict.anchors import Z80
from slslab.predict.kinds import KINDS, Kind
from slslab.predict.processor import SHARED, UNANCHORED, Processor
from slslab.replay.accuracy import mean_errors
from slslab.replay.outcome import Outcome
from slslab.replay.profiles.profile import Figure, Profile

# Standard deviation ÷ mean absolute error of a normal distribution.
PER_MEAN_ERROR = math.sqrt(math.pi / 2)
# Figures of a profile that make a run longer as they grow, and those that make it shorter.
LONGER, SHORTER = ("_ms", "_ms_per_mb", "_ms_per_kb"), ("_mb_s", "burst_mb")
Figures = Mapping[str, float]


@dataclass(frozen=True)
class Uncertainty:
    """Standard deviations of a figure's logarithm, by source.

    `shared` ones are the same error in every figure, and signed; `own` ones belong to this figure alone.
    """

    shared: Mapping[str, float]
    own: Mapping[str, float]

    @property
    def deviation(self) -> float:
        """The standard deviation of all sources together."""
        return math.hypot(*self.shared.values(), *self.own.values())

    def around(self, value: float) -> tuple[float, float]:
        """Return the 80 % range of a figure of this value."""
        return _range(value, self.deviation)

    def of_ratio(self, other: "Uncertainty") -> float:
        """Return the standard deviation of the logarithm of this figure ÷ another one."""
        names = self.shared.keys() | other.shared.keys()
        differences = [self.shared.get(name, 0.0) - other.shared.get(name, 0.0) for name in names]
        return math.hypot(*differences, *self.own.values(), *other.own.values())

    def half_widths(self) -> dict[str, float]:
        """Return by source how far the upper end would be above the figure with that source alone, as a share."""
        sources = {**self.shared, **self.own}
        return {name: math.exp(Z80 * abs(deviation)) - 1 for name, deviation in sources.items() if deviation}

    def as_document(self) -> dict[str, Any]:
        """Return the deviations for JSON; `read_uncertainty` reads them."""
        return {"shared": _rounded(self.shared), "own": _rounded(self.own)}


def read_uncertainty(document: Mapping[str, Any]) -> Uncertainty:
    """Return the deviations that `Uncertainty.as_document` wrote."""
    return Uncertainty(document["shared"], document["own"])


def ratio_range(values: tuple[float, float], uncertainties: tuple[Uncertainty, Uncertainty]) -> tuple[float, float]:
    """Return the 80 % range of the ratio of two figures."""
    return _range(values[0] / values[1], uncertainties[0].of_ratio(uncertainties[1]))


def figures_of(played: Outcome, bill: Bill) -> dict[str, float]:
    """Return the figures of a played run that have ranges: seconds, billed seconds and cost."""
    return {"seconds": played.seconds, "billed_seconds": played.billed_seconds, "cost": float(bill.total)}


def with_processor(profile: Profile, processor: Processor | None) -> Profile:
    """Return the profile with the speeds of Lambda's processors next to those of the host that recorded a run.

    A profile whose speed was measured or fitted keeps it, as every profile does if the host was not measured.
    """
    if not _applies(profile, processor):
        return profile
    assert processor is not None
    anchors = ", ".join(f"{name} ({year})" for name, year in processor.anchors.items())
    source = f"slslab calibrate --processor ({processor.form}) on {processor.name}, {processor.measured}; {anchors}"
    speeds = {kind: Figure(value=1 / processor.factor(kind).value, status="fitted", source=source) for kind in KINDS}
    return profile.model_copy(update={"compute": profile.compute.model_copy(update={"kinds": speeds})})


def find_uncertainties(
    plain: Figures, play: Callable[[Profile], Figures], profile: Profile, processor: Processor | None, instances: bool
) -> dict[str, Uncertainty]:
    """Return the uncertainty of every figure in `plain`, which is what `play` gives on the profile.

    The profile already has the processor's speeds (`with_processor`). `instances` tells whether instances are billed.
    """
    errors = mean_errors(profile.name, instances=instances)
    shared: dict[str, dict[str, float]] = {name: {} for name in plain}
    host: dict[str, list[float]] = {name: [] for name in plain}
    for kind in KINDS if profile.compute.kinds or profile.compute.speed.status == "assumed" else ():
        factor = (processor or UNANCHORED).factor(kind)
        moved = play(_slower(profile, kind, factor.deviation))
        for name, value in plain.items():
            sensitivity = _shift(moved[name], value) / factor.deviation
            common = math.hypot(*(factor.deviations[source] for source in SHARED))
            shared[name][f"{kind} work on Lambda"] = sensitivity * common
            host[name].append(sensitivity * factor.deviations["host"])
    if errors.profile is not None:
        deviation = max(errors.profile.values()) * PER_MEAN_ERROR
        moved = play(_slower_platform(profile, math.exp(deviation)))
        for name, value in plain.items():
            sensitivity = _shift(moved[name], value) / deviation
            shared[name]["the profile's requests"] = sensitivity * errors.profile[name] * PER_MEAN_ERROR
    return {
        name: Uncertainty(
            shared[name],
            {"this machine's processor": math.hypot(*host[name]), "the replay": errors.replay[name] * PER_MEAN_ERROR},
        )
        for name in plain
    }


def _applies(profile: Profile, processor: Processor | None) -> bool:
    return processor is not None and processor.anchored and profile.compute.speed.status == "assumed"


def _slower(profile: Profile, kind: Kind, deviation: float) -> Profile:
    compute = profile.compute
    speed = compute.kinds.get(kind, compute.speed)
    moved = speed.model_copy(update={"value": speed.value * math.exp(-deviation)})
    return profile.model_copy(update={"compute": compute.model_copy(update={"kinds": {**compute.kinds, kind: moved}})})


def _slower_platform(profile: Profile, factor: float) -> Profile:
    """Return the profile with everything but processors and instances slower by a factor."""
    parts = {name: value for name, value in profile if name not in ("compute", "instances")}
    return profile.model_copy(update={name: _scaled(name, value, factor) for name, value in parts.items()})


def _scaled(name: str, value: Any, factor: float) -> Any:
    if isinstance(value, Figure):
        power = name.endswith(LONGER) - name.endswith(SHORTER)
        return value.model_copy(update={"value": value.value * factor**power}) if power else value
    if isinstance(value, BaseModel):
        return value.model_copy(update={inner: _scaled(inner, each, factor) for inner, each in value})
    if isinstance(value, Mapping):
        return {inner: _scaled(inner, each, factor) for inner, each in value.items()}
    return value


def _shift(moved: float, plain: float) -> float:
    return math.log(moved / plain) if plain > 0 else 0.0


def _range(value: float, deviation: float) -> tuple[float, float]:
    return value * math.exp(-Z80 * deviation), value * math.exp(Z80 * deviation)


def _rounded(deviations: Mapping[str, float]) -> dict[str, float]:
    return {name: round(deviation, 5) for name, deviation in deviations.items()}
