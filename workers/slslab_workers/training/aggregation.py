"""The aggregation rules by name, which turn the sum of the workers' vectors into the aggregate that workers apply.

A rule takes the sum (P,), the number of workers in the step and the number of senders. It changes the vector in place
and returns it as the aggregate (P,). All sums run in rank order, so equal gradients give equal bits.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from slslab_workers.option import choose

if TYPE_CHECKING:
    import torch

Rule = Callable[["torch.Tensor", int, int], "torch.Tensor"]


def mean(total: "torch.Tensor", workers: int, senders: int) -> "torch.Tensor":  # noqa: ARG001
    """Divide by the number of all workers, so that every gradient counts as 1/n, whenever a filter lets it pass.

    It doesn't depend on the other senders of the step.
    """
    return total.div_(workers)


def mean_over_senders(total: "torch.Tensor", workers: int, senders: int) -> "torch.Tensor":  # noqa: ARG001
    """Divide by the workers that sent something, as Barrak et al.'s released code does.

    An update may contain the gradients of many steps. The released Adam doesn't depend on this scale; SGD does.
    """
    return total.div_(senders)


def plain_sum(total: "torch.Tensor", workers: int, senders: int) -> "torch.Tensor":  # noqa: ARG001
    """Return the sum unchanged, as Barrak et al.'s released code does."""
    return total


RULES: Mapping[str, Rule] = MappingProxyType(
    {"mean": mean, "sum": plain_sum, "mean-over-workers": mean, "mean-over-senders": mean_over_senders}
)


def rule(name: str) -> Rule:
    """Return the rule with this name; raise PlanError for an unknown name."""
    return choose("aggregation rule", name, RULES)


def chunk(elements: int, parts: int, index: int) -> slice:
    """Return the slice of part `index` if `elements` are cut into `parts`.

    q = P div n, r = P mod n; the first r parts have q + 1 elements (docs/protocols.md). With more
    parts than elements, the last parts are empty.
    """
    quotient, remainder = divmod(elements, parts)
    start = quotient * index + min(remainder, index)
    return slice(start, start + quotient + (index < remainder))


def sum_in_rank_order(parts: Iterable["torch.Tensor"]) -> "torch.Tensor":
    """Return a new vector: the first part, with the others added in order.

    If the parts are made one by one, only two are in memory at a time.
    """
    rest = iter(parts)
    total = next(rest).clone()
    for part in rest:
        total.add_(part)
    return total
