"""AllReduce's workers in one process."""

from collections.abc import Iterator

import torch

from slslab_workers import gradients
from slslab_workers.allreduce.handlers import conclude
from slslab_workers.replicas import Replicas


class AllReduceReplicas(Replicas):
    """They update with the mean of their gradients, as released with the sum."""

    def synchronise(self, parts: Iterator[torch.Tensor]) -> None:
        """Update."""
        self.update(conclude(self.plan, gradients.sum_in_rank_order(parts)))
