"""The aggregation rules by name: what a worker applies, made of the sum of what the workers of a step sent.

A rule takes this sum (P,), how many workers took part in the step and how many of them sent something, and returns the
aggregate (P,), which is the same vector changed in place. All sums run in rank order, so that equal gradients give
equal bits.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from slslab_workers.option import choose

if TYPE_CHECKING:
    import torch

Rule = Callable[["torch.Tensor", int, int], "torch.Tensor"]


def mean(total: "torch.Tensor", workers: int, senders: int) -> "torch.Tensor":  # noqa: ARG001
    """Divide by all workers, so that every gradient counts once and for 1/n, whenever a filter lets it pass.

    The original MLLess adds updates as they are, so that nothing depends on who happens to send in the same step.
    """
    return total.div_(workers)


def mean_over_senders(total: "torch.Tensor", workers: int, senders: int) -> "torch.Tensor":  # noqa: ARG001
    """Divide by the workers that sent something, as the released MLLess does.

    Each update may hold the gradients of many steps. The released Adam does not depend on this scale; SGD does.
    """
    return total.div_(senders)


def plain_sum(total: "torch.Tensor", workers: int, senders: int) -> "torch.Tensor":  # noqa: ARG001
    """Leave the sum as it is, as the released AllReduce does."""
    return total


RULES: Mapping[str, Rule] = MappingProxyType(
    {"mean": mean, "sum": plain_sum, "mean-over-workers": mean, "mean-over-senders": mean_over_senders}
)


def rule(name: str) -> Rule:
    """Return the rule of this name; raise PlanError for an unknown name."""
    return choose("aggregation rule", name, RULES)


def sum_in_rank_order(parts: Iterable["torch.Tensor"]) -> "torch.Tensor":
    """Return a clone of the first part with the others added in their order.

    Of parts that are made one by one, two are held at a time.
    """
    rest = iter(parts)
    total = next(rest).clone()
    for part in rest:
        total.add_(part)
    return total
