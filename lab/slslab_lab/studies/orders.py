"""Orders that a figure shows without numbers: whether they hold here, and by which figures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from slslab_lab.studies.minibatches import Estimate
from slslab_lab.studies.rankings import UNDECIDED

HOLDS, FAILS = "holds", "does not hold"


@dataclass(frozen=True)
class Order:
    """What is expected, `of` what, its verdict and the figures that it follows from."""

    order: str
    of: str
    verdict: str
    figures: str


def judge(each: Iterable[bool | None]) -> str:
    """Return the verdict of an order that must hold each time; None is where it cannot be told."""
    found = list(each)
    if False in found:
        return FAILS
    return HOLDS if found and None not in found else UNDECIDED


def middle(values: Sequence[float]) -> Estimate:
    """Return the median, with the least and the greatest of several."""
    several = len(values) > 1
    return Estimate(median(values), min(values) if several else None, max(values) if several else None, len(values))
