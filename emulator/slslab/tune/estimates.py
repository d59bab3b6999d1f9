"""Estimates of a function's memory sizes, from metered invocations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev

from slslab.aws.limits import billed_ms
from slslab.predict.accuracy import mean_errors
from slslab.predict.anchors import Z80
from slslab.predict.invocation import Model, Moved, Predictor, Record, Request, billed
from slslab.predict.uncertainty import PER_MEAN_ERROR
from slslab.run.bill import Book, Usage, compute_bill
from slslab.tune.decision import Estimate, Figures

# Bill this much time, so that the price of a millisecond is exact.
PRICED_MS = 1_000_000
FIGURES = ("seconds", "cost")
NOT_MOVED: Moved = {}
# Student's 90 % quantiles where the series is too far off, by degrees of freedom.
FEW_DEGREES = {1: 3.0777, 2: 1.8856, 3: 1.6377}


@dataclass(frozen=True)
class Sample:
    """An invocation's metered record and its requests to S3 and SQS."""

    record: Record
    requests: Sequence[Request] = ()


@dataclass
class Measured:
    """What was measured of a memory size: rounds with a warm invocation of each payload, and cold starts."""

    memory_mb: int
    rounds: list[Sequence[Sample]] = field(default_factory=list)
    cold: list[Sample] = field(default_factory=list)

    @property
    def samples(self) -> list[Sample]:
        """All invocations."""
        return [*self.cold, *(sample for round_ in self.rounds for sample in round_)]

    @property
    def cpu_ms(self) -> float:
        """The mean CPU time of a round."""
        return fmean(sum(float(sample.record["cpu_ms"]) for sample in round_) for round_ in self.rounds)

    @property
    def busy(self) -> float:
        """The share of the warm invocations' time that their CPU time took, held back by the quota."""
        warm = [sample.record for round_ in self.rounds for sample in round_]
        able_ms = sum(min(1.0, record["cpu_share"]) * record["duration_ms"] for record in warm)
        return min(1.0, sum(float(record["cpu_ms"]) for record in warm) / float(able_ms))

    @property
    def peak_mb(self) -> int:
        """The most memory that one of them used."""
        return max((int(sample.record["max_memory_mb"]) for sample in self.samples), default=0)


@dataclass(frozen=True)
class _Priced:
    """An invocation as Lambda would run it, and the prices of a millisecond and of its requests, USD."""

    model: Model
    ms_usd: float
    requests_usd: float

    def figures(self, moved: Moved) -> Figures:
        took_ms = self.model.figures(moved)["total"]
        return {"seconds": took_ms / 1000, "cost": billed_ms(took_ms, None) * self.ms_usd + self.requests_usd}


@dataclass(frozen=True)
class Estimator:
    """Estimates memory sizes of one function.

    `weights` belong to the payloads and add up to 1. `cores` are this host's processors.
    """

    predictor: Predictor
    book: Book
    weights: Sequence[float]
    cores: int

    def runs(self, memory_mb: int) -> bool:
        """Return whether this host has the processors of a memory size."""
        return memory_mb / self.predictor.profile.compute.vcpu_mb.value <= self.cores

    def half_width(self, measured: Measured) -> float:
        """Return half of the 80 % interval of the mean duration on Lambda, as a share of the mean; inf for one."""
        durations = [self._round(round_)["seconds"] for round_ in self._rounds(measured, None)]
        if len(durations) < 2:
            return math.inf
        return student(len(durations) - 1) * stdev(durations) / math.sqrt(len(durations)) / fmean(durations)

    def estimate(self, base: Measured, memory_mb: int, drift: float = 0.0) -> Estimate:
        """Return what a size takes and costs, from what was measured of the same or another size.

        `drift` is half of the 80 % range of the logarithm of this machine's speed, from size to size.
        """
        here = memory_mb == base.memory_mb and self.runs(memory_mb)
        rounds = self._rounds(base, None if here else memory_mb)

        def mean(moved: Moved) -> Figures:
            found = [self._round(round_, moved) for round_ in rounds]
            return {name: fmean(figures[name] for figures in found) for name in FIGURES}

        plain, sources = (
            mean({}),
            dict.fromkeys(name for round_ in rounds for one in round_ for name in one.model.sources),
        )
        moved = {source: (mean({source: -Z80}), mean({source: Z80})) for source in sources}
        # Sizes that were modelled from the same invocations share their noise. What Lambda's processors do at a size is
        # that size's own; two of them differ as much as a size that was predicted from another one.
        own = mean_errors(self.predictor.profile.name, instances=False).replay["billed_seconds"]
        reach = math.expm1(Z80 * own * PER_MEAN_ERROR / math.sqrt(2))
        noise = math.hypot(min(self.half_width(base), 1.0), math.expm1(drift) * base.busy)
        scales = {f"noise at {base.memory_mb} MB": noise, f"Lambda at {memory_mb} MB": reach}
        for source, share in scales.items():
            moved[source] = _scaled(plain, 1 / (1 + share)), _scaled(plain, 1 + share)
        return Estimate(memory_mb, here, plain, moved)

    def cold(self, measured: Measured) -> Estimate:
        """Return what a cold start takes and costs, init included; `measured` has some."""
        rounds: list[Sequence[Sample]] = [[sample] for sample in measured.cold]
        return replace(self, weights=(1.0,)).estimate(Measured(measured.memory_mb, rounds), measured.memory_mb)

    def _rounds(self, measured: Measured, memory_mb: int | None) -> list[list[_Priced]]:
        return [[self._priced(sample, memory_mb) for sample in round_] for round_ in measured.rounds]

    def _round(self, round_: Sequence[_Priced], moved: Moved = NOT_MOVED) -> Figures:
        found = [one.figures(moved) for one in round_]
        return {
            name: sum(weight * figures[name] for weight, figures in zip(self.weights, found, strict=True))
            for name in FIGURES
        }

    def _priced(self, sample: Sample, memory_mb: int | None) -> _Priced:
        model = self.predictor.model(sample.record, sample.requests, memory_mb, self.cores)
        record = {**sample.record, "memory_mb": memory_mb or sample.record["memory_mb"]}
        time = Usage([{**record, "billed_ms": PRICED_MS, "requests": 0}])
        requests = Usage([{**record, "billed_ms": 0}], billed(sample.requests))
        time_usd, requests_usd = (float(compute_bill(usage, self.book).total) for usage in (time, requests))
        return _Priced(model, time_usd / PRICED_MS, requests_usd)


def student(degrees: int) -> float:
    """Return the 90 % quantile of Student's t distribution (from 4 on Abramowitz and Stegun, 26.7.5: 0.3 % off)."""
    if degrees in FEW_DEGREES:
        return FEW_DEGREES[degrees]
    z = Z80
    second = (z**3 + z) / 4
    third = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + second / degrees + third / degrees**2


def _scaled(figures: Figures, factor: float) -> Figures:
    return {name: value * factor for name, value in figures.items()}
