"""Exchange a model's buffers, batch normalisation's running means and variances, together with its gradients.

They follow each vector that workers exchange, as float32 in the order of `model.buffers()`. Importing this module does
not import torch.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from slslab_workers.models import exchanged_buffers
from slslab_workers.option import Option
from slslab_workers.plan import Plan
from slslab_workers.training.aggregation import Rule

if TYPE_CHECKING:
    import torch

LOCAL, AVERAGED, BROADCAST = "local", "averaged", "broadcast"


def option(others: str, *choices: str) -> Option:
    """Return the option `--buffers` with these choices; `others` describes those except local."""
    return Option(
        "buffers",
        str,
        LOCAL,
        "Batch normalisation's running means and variances: local ones differ between workers, and rank 0's are "
        f"evaluated; {others}",
        choices,
    )


BUFFERS = option(
    "averaged makes them the mean of all workers' in each exchange, broadcast makes them rank 0's.",
    *(LOCAL, AVERAGED, BROADCAST),
)


def append(plan: Plan, rank: int, buffers: "Iterable[torch.Tensor]", vector: "torch.Tensor") -> "torch.Tensor":
    """Return a worker's vector (P,) with its buffers (B,) behind it, if workers exchange them.

    With broadcast all ranks except 0 append zeros, so that the sum is rank 0's.
    """
    import torch

    if not exchanged_buffers(plan):
        return vector
    if BUFFERS.of(plan.options) == BROADCAST and rank:
        return torch.cat([vector, vector.new_zeros(exchanged_buffers(plan))])
    return torch.cat([vector, *(buffer.reshape(-1).to(vector) for buffer in buffers)])


def rule(plan: Plan, combine: Rule) -> Rule:
    """Return the rule that applies `combine` to a sum of vectors, and makes the mean or rank 0's buffers behind it."""
    count, averaged = exchanged_buffers(plan), BUFFERS.of(plan.options) == AVERAGED

    def combine_both(total: "torch.Tensor", workers: int, senders: int) -> "torch.Tensor":
        combine(total[:-count], workers, senders)
        if averaged:
            total[-count:].div_(workers)
        return total

    return combine_both if count else combine


def take(plan: Plan, buffers: "Iterable[torch.Tensor]", aggregate: "torch.Tensor") -> "torch.Tensor":
    """Copy the buffers behind an aggregate into a worker's own, and return the rest (P,).

    Counters such as `num_batches_tracked` stay as they are: all workers count the same minibatches.
    """
    start = len(aggregate) - exchanged_buffers(plan)
    rest = aggregate[start:]
    for buffer in buffers if len(rest) else ():
        if buffer.is_floating_point():
            buffer.copy_(rest[: buffer.numel()].view_as(buffer))
        rest = rest[buffer.numel() :]
    return aggregate[:start]
