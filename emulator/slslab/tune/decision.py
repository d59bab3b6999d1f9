"""Which memory size is best, by what an invocation takes and costs on Lambda with each, as 80 % ranges.

Sizes share most sources of error. A ratio of two sizes moves each source in both at once, so that it cancels.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slslab.predict.invocation import THREADS

# Each goal minimises the product of these figures.
GOALS: Mapping[str, tuple[str, ...]] = {
    "cheapest": ("cost",),
    "fastest": ("seconds",),
    "balanced": ("cost", "seconds"),
}
# Costs that differ by less than this share count as the same.
SAME = 0.01
# A difference of this share is worth an invocation.
CLEARLY = 0.05
# Seconds and cost (USD) of an invocation.
Figures = Mapping[str, float]


@dataclass(frozen=True)
class Estimate:
    """What an invocation takes and costs on Lambda with a memory size.

    `moved` has the figures at both ends of the 80 % range of each source of error. `measured` tells whether this
    machine ran the size.
    """

    memory_mb: int
    measured: bool
    plain: Figures
    moved: Mapping[str, tuple[Figures, Figures]]

    def value(self, goal: str) -> float:
        """Return what the goal minimises."""
        return _product(self.plain, goal)

    def range(self, figure: str) -> tuple[float, float]:
        """Return the 80 % range of `seconds` or `cost`."""
        return _range(lambda source, end: self._at(source, end)[figure], self.moved)

    def ratio(self, other: "Estimate", goal: str) -> tuple[float, float]:
        """Return the 80 % range of this size ÷ another one, by a goal."""
        return _range(
            lambda source, end: _product(self._at(source, end), goal) / _product(other._at(source, end), goal),
            {**self.moved, **other.moved},
        )

    def _at(self, source: str, end: int) -> Figures:
        return self.moved[source][end] if source in self.moved else self.plain


@dataclass(frozen=True)
class Best:
    """The best size by a goal, and the sizes that can't be told apart from it."""

    memory_mb: int
    alike: list[int]


def best(estimates: Sequence[Estimate], goal: str) -> Best | None:
    """Return the best size by a goal; None without sizes.

    A size can't be told apart from the best if the range of their ratio contains 1. Among such sizes the lowest cost
    wins, or the lowest product if the goal is a product. If that is the same, the larger memory size wins.
    """
    if not estimates:
        return None
    least = _least(estimates, goal)
    equal = [size for size in estimates if size is least or size.ratio(least, goal)[0] <= 1]
    by = goal if "cost" in GOALS[goal] else "cheapest"
    lowest = min(size.value(by) for size in equal)
    chosen = max(size.memory_mb for size in equal if size.value(by) <= (1 + SAME) * lowest)
    return Best(chosen, [size.memory_mb for size in equal if size.memory_mb != chosen])


def in_time(estimates: Sequence[Estimate], deadline_s: float) -> list[Estimate]:
    """Return the sizes that surely meet a deadline, because the upper ends of their ranges do."""
    return [size for size in estimates if size.range("seconds")[1] <= deadline_s]


def may_win(size: Estimate, estimates: Sequence[Estimate]) -> bool:
    """Return whether measuring a size may show that it is the best by any goal.

    It must not be surely worse than the present best. In addition, it may cost less, or its estimate is clearly
    better, possibly thanks to threads that didn't show yet.
    """
    sizes = {one.memory_mb: one for one in estimates}
    return any(_may_win(size, sizes[found.memory_mb], goal) for goal in GOALS if (found := best(estimates, goal)))


def excess(size: Estimate, estimates: Sequence[Estimate]) -> tuple[float, float]:
    """Return the 80 % range of a size's cost ÷ the least cost."""
    return size.ratio(_least(estimates, "cheapest"), "cheapest")


def _may_win(size: Estimate, present: Estimate, goal: str) -> bool:
    if size is present:
        return True
    at_best = min(_product(figures, goal) for figures in (size.plain, *size.moved.get(THREADS, ())))
    clearly = at_best < (1 - CLEARLY) * present.value(goal)
    return size.ratio(present, goal)[0] <= 1 and (clearly or size.ratio(present, "cheapest")[0] <= 1)


def _least(estimates: Sequence[Estimate], goal: str) -> Estimate:
    return min(estimates, key=lambda size: size.value(goal))


def _product(figures: Figures, goal: str) -> float:
    return math.prod(figures[name] for name in GOALS[goal])


def _range(figure: Callable[[str, int], float], sources: Mapping[str, object]) -> tuple[float, float]:
    """Return the range of a figure on a logarithmic scale; its sources of error are independent."""
    plain = math.log(figure("", 0))
    ends = [sorted(math.log(figure(source, end)) - plain for end in (0, 1)) for source in sources]
    lower, upper = (math.hypot(*(max(0.0, sign * pair[end]) for pair in ends)) for sign, end in ((-1, 0), (1, 1)))
    return math.exp(plain - lower), math.exp(plain + upper)
