"""Differences of means with their confidence intervals, and the samples of runs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any
from warnings import catch_warnings, simplefilter

from slslab.run.metrics import BESIDE, lambda_clock_ns

CONFIDENCE = 0.95
STEP_PHASES = ("fetch", "compute", "synchronise", "update", "wait")


@dataclass(frozen=True)
class Interval:
    """The difference of two means, second minus first, and its confidence interval."""

    first: float
    second: float
    samples: tuple[int, int]
    difference: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Return whether zero is outside the interval."""
        return self.low > 0 or self.high < 0


def welch(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """Return Welch's interval of the difference of means, for samples of unequal variance.

    None if a sample has fewer than two values, or if neither varies, since their spread is then unknown.
    """
    if min(len(first), len(second)) < 2 or (len(set(first)) == 1 and len(set(second)) == 1):
        return None
    from scipy.stats import ttest_ind

    with catch_warnings():
        # If one of the samples doesn't vary, scipy warns that its zero variance may be inexact.
        simplefilter("ignore", RuntimeWarning)
        interval = ttest_ind(second, first, equal_var=False).confidence_interval(CONFIDENCE)
    means = fmean(first), fmean(second)
    return Interval(*means, (len(first), len(second)), means[1] - means[0], float(interval.low), float(interval.high))


def step_samples(events: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the seconds on the Lambda clock of each phase, and of all together, as samples by worker and minibatch."""
    seconds: dict[tuple[int, int, int], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for event in events:
        if event["worker"] >= 0 and event["step"] >= 0 and event["op"] not in BESIDE:
            seconds[event["worker"], event["epoch"], event["step"]][event["phase"]] += lambda_clock_ns(event) / 1e9
    steps = list(seconds.values())
    samples = {phase: [step.get(phase, 0.0) for step in steps] for phase in STEP_PHASES}
    samples = {phase: values for phase, values in samples.items() if any(values)}
    if steps:
        samples["whole step"] = [sum(step.values()) for step in steps]
    return samples


def worker_samples(document: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return figures of a run's document that each worker has."""
    per_worker = [worker for worker in document.get("per_worker", ()) if worker["worker"] >= 0]
    return {
        "billed time a worker, s": [worker["billed_seconds"] for worker in per_worker],
        "peak memory a worker, MB": [worker["peak_memory_mb"] for worker in per_worker],
    }
