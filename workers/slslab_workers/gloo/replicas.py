"""All peers in one process, added up like gloo's ring does."""

from collections.abc import Iterator

import torch

from slslab_workers.gloo import ring
from slslab_workers.training import replicas


class Replicas(replicas.Replicas):
    """n peers that update in every step with the aggregate of their gradients."""

    def synchronise(self, parts: Iterator[torch.Tensor]) -> torch.Tensor:
        """Return the aggregate (P,) of a step's gradients (P,), to the bit as n instances compute it on CPUs."""
        return self.combine(ring.add_up(list(parts)), self.plan.workers, self.plan.workers)
