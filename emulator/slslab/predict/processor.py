"""Compare a host's processor with Lambda's: seconds of one full Lambda vCPU per CPU second here, by kind of work.

A factor has two steps. From this host to the reference machine: the same work, measured on both. From the reference
machine to Lambda: one constant for each kind of work, from its anchor. The second step's uncertainty is the same for
all hosts and all systems, so a comparison must draw it once for both sides.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from pydantic import TypeAdapter, ValidationError

from slslab.errors import RequestError
from slslab.predict.anchors import (
    Z80,
    Anchors,
    Architecture,
    Deviation,
    Form,
    Positive,
    envelope,
    load_anchors,
    minor_version,
)
from slslab_workers.trace.kinds import KINDS, Kind

NOT_ANCHORED: Literal["not anchored"] = "not anchored"
# Sources of uncertainty. The ones that all hosts share come first.
Source = Literal["anchors", "year", "host"]
SHARED: tuple[Source, ...] = ("anchors", "year")
SOURCES: tuple[Source, ...] = (*SHARED, "host")
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Factor:
    """Seconds of one full Lambda vCPU per CPU second of a host.

    `deviations` are standard deviations of its logarithm, by source; the sources are independent.
    """

    value: Positive
    deviations: Mapping[Source, Deviation] = field(default_factory=dict)

    @property
    def deviation(self) -> float:
        """The standard deviation of the logarithm, from all sources together."""
        return math.hypot(*self.deviations.values())

    @property
    def low(self) -> float:
        """The lower end of the 80 % range."""
        return self.value * math.exp(-Z80 * self.deviation)

    @property
    def high(self) -> float:
        """The upper end of the 80 % range."""
        return self.value * math.exp(Z80 * self.deviation)

    def scaled(self, by: float, source: Source = "host", deviation: float = 0.0) -> "Factor":
        """Return the factor times `by`, with this additional deviation of a source."""
        total = math.hypot(self.deviations.get(source, 0.0), deviation)
        return Factor(self.value * by, {**self.deviations, source: total})


@dataclass(frozen=True)
class Timing:
    """CPU seconds of a workload's repetitions on a host, in the order in which they ran."""

    form: Form
    cpu_s: Sequence[float]

    @property
    def least(self) -> float:
        """The least of them, because other work on the host can only add time."""
        return min(self.cpu_s)

    @property
    def spread(self) -> float:
        """The standard deviation of their logarithms around the least; 0 for one repetition."""
        squares = [math.log(seconds / self.least) ** 2 for seconds in self.cpu_s]
        return math.sqrt(sum(squares) / max(1, len(squares) - 1))


@dataclass(frozen=True)
class Host:
    """A host's measurements, and the versions of Python and PyTorch (3.11, 2.13) that they were made with.

    `checks` are other timings of the same workloads, such as short forms in addition to whole ones.
    """

    timings: Mapping[str, Timing]
    python: str
    torch: str
    anchors: Anchors
    checks: Mapping[str, Timing] = field(default_factory=dict)

    def ratios(self, workloads: Sequence[str], checks: bool = False) -> list[float]:
        """Return the reference machine's seconds in this Python ÷ this host's, for workloads that were measured."""
        timings = self.checks if checks else self.timings
        return [
            self.anchors.workloads[workload].seconds(timing.form, self.python) / timing.least
            for workload in workloads
            if (timing := timings.get(workload))
        ]

    def disagreement(self, workloads: Sequence[str]) -> float:
        """Return the deviation that covers this host's speed according to each of these workloads and their checks."""
        ratios = self.ratios(workloads)
        middle, _ = envelope(ratios)
        return max(abs(math.log(ratio / middle)) for ratio in ratios + self.ratios(workloads, checks=True)) / Z80

    def anchor_factors(self) -> dict[str, float]:
        """Return the factor from each anchor alone, except anchors that weren't measured."""
        return {
            name: envelope(ratios)[0] * self.anchors.constant(name)
            for name, anchor in self.anchors.usable().items()
            if (ratios := self.ratios(anchor.hosts))
        }

    def version_deviation(self, kind: Kind) -> float:
        """Return how much versions other than the reference machine's add to the deviation of a kind."""
        if kind == "dense":
            return 0.0 if self.torch in ("", minor_version(self.anchors.reference.torch)) else self.anchors.host.torch
        if kind == "streaming" or self.python in ("", self.anchors.python):
            return 0.0
        workloads = {name for anchor in self.anchors.fitted(kind) for name in self.anchors.anchors[anchor].hosts}
        known = all(self.python in self.anchors.workloads[name].python for name in workloads)
        return self.anchors.host.python if known else self.anchors.host.unknown_python


@dataclass(frozen=True)
class Processor:
    """A host's factors by kind of work, and the one for work of an unknown kind.

    `name` says what was measured (processor and interpreter), `form` how: whole anchors, short ones, or not at all.
    `anchors` are the names of the anchors that were used, with their year. `missing` is a sentence about an anchor that
    is missing or contradicts another.
    """

    name: str
    form: Form | Literal["not anchored"]
    measured: str
    version: str
    factors: Mapping[Kind, Factor]
    unknown: Factor
    arm64: Mapping[str, tuple[Positive, Deviation]]
    anchors: Mapping[str, int]
    missing: str

    @property
    def anchored(self) -> bool:
        """Whether anything was measured on this host."""
        return self.form != NOT_ANCHORED

    def factor(self, kind: str, architecture: Architecture = "x86_64") -> Factor:
        """Return the factor of a kind of work on one of Lambda's architectures.

        Any kind not in KINDS is unknown.
        """
        factor = self.factors.get(cast(Kind, kind), self.unknown)
        if architecture == "x86_64":
            return factor
        ratio, deviation = self.arm64[kind if kind in self.factors else UNKNOWN]
        return factor.scaled(ratio, "anchors", deviation)

    def drifted(self, before: Mapping[Kind, float], after: Mapping[Kind, float]) -> "Processor":
        """Return the processor's state between two probes, each of CPU seconds then ÷ when it was measured, by kind.

        Half of the difference between the probes is one standard deviation of the host's. So is half of the correction,
        because another guest may slow work down more or less than the probe.
        """
        factors = dict(self.factors)
        for kind in before.keys() & after.keys():
            middle = math.sqrt(before[kind] * after[kind])
            deviation = math.hypot(math.log(after[kind] / before[kind]), math.log(middle)) / 2
            factors[kind] = factors[kind].scaled(1 / middle, "host", deviation)
        return replace(self, factors=factors)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON document, which `from_dict` reads; factors also have their `low` and `high`."""
        document: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        for kind, factor in self.factors.items():
            document["factors"][kind] |= {"low": factor.low, "high": factor.high}
        document["unknown"] |= {"low": self.unknown.low, "high": self.unknown.high}
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "Processor":
        """Return the processor in a document; RequestError if it is invalid.

        A kind of work that an older document lacks counts as unknown.
        """
        with suppress(ValidationError):
            processor = _ADAPTER.validate_python(document)
            if processor.factors and {*processor.factors, UNKNOWN} <= set(processor.arm64):
                return processor
        raise RequestError(
            "The description of a processor is damaged.", "measure it again: slslab calibrate --processor"
        )


_ADAPTER = TypeAdapter(Processor)


def make_processor(
    timings: Mapping[str, Timing],
    name: str,
    measured: str,
    python: str = "",
    torch: str = "",
    checks: Mapping[str, Timing] | None = None,
) -> Processor:
    """Return the processor of a host on which these workloads were measured.

    `python` and `torch` are the interpreter's versions, by default the reference machine's. `checks` are other timings
    of the same workloads: where they disagree, the host's own range widens. A kind of work that none of the workloads
    measures gets the factor for unknown work.
    """
    anchors = load_anchors()
    host = Host(timings, minor_version(python), minor_version(torch), anchors, checks or {})
    found = {kind: factor for kind in KINDS if (factor := _fit(kind, host))}
    if not found:
        return UNANCHORED
    values = host.anchor_factors()
    middle, half = envelope(list(values.values()))
    own = max(factor.deviations["host"] for factor in found.values())
    # A single anchor has no distance to others, and unknown work can't be more certain than a known kind.
    shared = max(math.hypot(*(factor.deviations[source] for source in SHARED)) for factor in found.values())
    unknown = Factor(middle, {"anchors": max(half, shared), "year": 0.0, "host": own})
    absent = [kind for kind in KINDS if kind not in found]
    missing = f"{anchors.missing} {' and '.join(absent).capitalize()} work was not measured here."
    return Processor(
        name,
        "short" if any(timing.form == "short" for timing in timings.values()) else "whole",
        measured,
        anchors.version,
        {kind: found.get(kind, unknown) for kind in KINDS},
        unknown,
        _arm64(anchors),
        {anchor: anchors.anchors[anchor].year for anchor in values},
        missing if absent else anchors.missing,
    )


def anchor_residuals(factors: Mapping[str, float], anchors: Anchors) -> dict[str, tuple[float, list[str]]]:
    """Return for each anchor the error of predicting it from others, as a share, and the names of these others.

    They are the anchors that give its kind's factor. A kind's only anchor is left out.
    """
    residuals = {}
    for name, factor in factors.items():
        near = [near for near in anchors.fitted(anchors.anchors[name].kind) if near != name and near in factors]
        if near:
            residuals[name] = envelope([factors[one] for one in near])[0] / factor - 1, near
    return residuals


def _fit(kind: Kind, host: Host) -> Factor | None:
    """Return the factor of a kind; None if no workload of its anchors was measured on the host."""
    anchors, timings, factors = host.anchors, host.timings, host.anchor_factors()
    names = [name for name in anchors.fitted(kind) if name in factors]
    if not names:
        return None
    workloads = sorted({workload for name in names for workload in anchors.anchors[name].hosts} & set(timings))
    deviations: dict[Source, float] = {
        "anchors": anchors.deviation(kind),
        "year": anchors.kinds[kind].year_deviation,
        "host": math.hypot(
            anchors.host.least,
            host.disagreement(workloads),
            max(timings[workload].spread for workload in workloads),
            anchors.host.short if any(timings[workload].form == "short" for workload in workloads) else 0.0,
            host.version_deviation(kind),
        ),
    }
    return Factor(envelope([factors[name] for name in names])[0], deviations)


def _arm64(anchors: Anchors) -> dict[str, tuple[float, float]]:
    known: dict[str, tuple[float, float]] = {kind: anchors.arm64(kind) for kind in KINDS}
    return known | {UNKNOWN: envelope([1.0, *(ratio for ratio, _ in known.values())])}


def _make_unanchored() -> Processor:
    """Return the processor of an unmeasured host: factor 1, with a range that covers everything seen so far."""
    anchors = load_anchors()
    seen = anchors.unanchored
    half = max(abs(math.log(seen.lowest)), abs(math.log(seen.highest))) / Z80
    factor = Factor(1.0, {"anchors": 0.0, "year": 0.0, "host": half})
    sentence = "This machine's processor was not measured. To measure it, run: slslab calibrate --processor"
    factors = dict.fromkeys(KINDS, factor)
    return Processor(NOT_ANCHORED, NOT_ANCHORED, "", anchors.version, factors, factor, _arm64(anchors), {}, sentence)


UNANCHORED = _make_unanchored()
