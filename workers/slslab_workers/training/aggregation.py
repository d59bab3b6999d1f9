"""The aggregation rules by name, which turn the sum of the workers' vectors into the aggregate that workers apply.

A rule takes the sum (P,), the number of workers in the step and the number of senders. It changes the vector in place
and returns it as the aggregate (P,). All sums run in rank order, so equal gradients give equal bits.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Rule = Callable[["torch.Tensor", int, int], "torch.Tensor"]
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "mean": lambda total, workers, _senders: total.div_(workers),
        # As in Barrak et al.'s released code.
        "sum": lambda total, _workers, _senders: total,
        # Every gradient counts as 1/n, whenever a filter lets it pass, whatever others send in the step.
        "mean-over-workers": lambda total, workers, _senders: total.div_(workers),
        # As in Barrak et al.'s released code. An update may contain the gradients of many steps. The released Adam
        # doesn't depend on this scale; SGD does.
        "mean-over-senders": lambda total, _workers, senders: total.div_(senders),
    }
)


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
