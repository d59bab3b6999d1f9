"""Compute 80 % ranges of modelled figures and of their ratios, from the standard deviations of their sources of error.

Two systems share the anchors' and the profile's errors, so these are drawn once for both sides of a ratio.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from slslab.predict.anchors import Z80

# Sources of error. The processors' are named after a kind of work: "dense work on Lambda".
ON_LAMBDA = " work on Lambda"
PROFILE, HOST, REPLAY = "the profile's requests", "this machine's processor", "the replay"
GPU, INSTANCE = "the GPU's speed", "the instances' processors"
STARTS, STORES, IDLE = "cold starts", "requests from outside AWS", "idle containers"
SPREAD = "the recordings' spread"
# Standard deviation ÷ mean absolute error of a normal distribution.
PER_MEAN_ERROR = math.sqrt(math.pi / 2)


@dataclass(frozen=True)
class Uncertainty:
    """Standard deviations of a figure's logarithm, by source: signed `shared` ones of all figures, and its `own`."""

    shared: Mapping[str, float]
    own: Mapping[str, float]

    @property
    def deviation(self) -> float:
        """The standard deviation from all sources together."""
        return math.hypot(*self.shared.values(), *self.own.values())

    def around(self, value: float) -> tuple[float, float]:
        """Return the 80 % range of a figure of this value."""
        return _range(value, self.deviation)

    def of_ratio(self, other: "Uncertainty") -> float:
        """Return the standard deviation of the logarithm of this figure ÷ another one."""
        names = self.shared.keys() | other.shared.keys()
        differences = [self.shared.get(name, 0.0) - other.shared.get(name, 0.0) for name in names]
        return math.hypot(*differences, *self.own.values(), *other.own.values())

    def of_one_recording(self) -> "Uncertainty":
        """Return the uncertainty for ratios of figures from one recording, which share this machine's error, too."""
        own = {name: deviation for name, deviation in self.own.items() if name != HOST}
        return Uncertainty({**self.shared, HOST: self.own.get(HOST, 0.0)}, own)

    def of_product(self, other: "Uncertainty") -> "Uncertainty":
        """Return the uncertainty of this figure × another one of the same run."""
        return Uncertainty(_added(self.shared, other.shared), _added(self.own, other.own))

    def of_sum(self, share: float) -> "Uncertainty":
        """Return the uncertainty of a sum that has this figure as a share, from 0 to 1, and is exact otherwise."""
        shared, own = ({name: share * each for name, each in errors.items()} for errors in (self.shared, self.own))
        return Uncertainty(shared, own)

    def likelihood(self, value: float, limit: float) -> float:
        """Return the probability that a figure of this value is at most `limit`, from 0 to 1."""
        if not self.deviation:
            return float(value <= limit)
        return NormalDist(sigma=self.deviation).cdf(math.log(limit / value))

    def half_widths(self) -> dict[str, float]:
        """Return by source how far the upper end would be above the figure with only that source, as a share."""
        sources = {**self.shared, **self.own}
        return {name: half_width(deviation) for name, deviation in sources.items() if deviation}

    def as_document(self) -> dict[str, Any]:
        """Return the deviations for JSON; `read_uncertainty` reads them."""
        return {"shared": _rounded(self.shared), "own": _rounded(self.own)}


NONE = Uncertainty({}, {})


def read_uncertainty(document: Mapping[str, Any]) -> Uncertainty:
    """Return the deviations that `Uncertainty.as_document` wrote."""
    return Uncertainty(document["shared"], document["own"])


def ratio_range(values: tuple[float, float], uncertainties: tuple[Uncertainty, Uncertainty]) -> tuple[float, float]:
    """Return the 80 % range of the ratio of two figures."""
    return _range(values[0] / values[1], uncertainties[0].of_ratio(uncertainties[1]))


def half_width(deviation: float) -> float:
    """Return the share by which the upper end of the 80 % range is above the middle."""
    return math.expm1(Z80 * abs(deviation))


def _range(value: float, deviation: float) -> tuple[float, float]:
    return value * math.exp(-Z80 * deviation), value * math.exp(Z80 * deviation)


def _added(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {name: first.get(name, 0.0) + second.get(name, 0.0) for name in {**first, **second}}


def _rounded(deviations: Mapping[str, float]) -> dict[str, float]:
    return {name: round(deviation, 5) for name, deviation in deviations.items()}
