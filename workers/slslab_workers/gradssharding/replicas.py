"""All clients in one process, and the aggregators' sums in the same order."""

from collections.abc import Iterator

import torch

from slslab_workers.gradssharding.settings import GRADIENTS, UPLOADED, divisor
from slslab_workers.gradssharding.topology import Aggregator, levels
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import aggregation
from slslab_workers.training.replicas import Replicas


class GradsShardingReplicas(Replicas):
    """Clients that update in every step with the last level's output. They don't slice gradients, which wouldn't change
    a bit."""

    @staticmethod
    def check(plan: Plan) -> None:
        """Raise PlanError for uploaded gradients."""
        if plan.options[GRADIENTS.name] == UPLOADED:
            raise PlanError("Uploaded gradients don't train a model.", "leave out --gradients uploaded.")

    def synchronise(self, parts: Iterator[torch.Tensor]) -> torch.Tensor | None:
        """Return the mean (P,) of a step's gradients (P,), LIFL's mean of means, or a robust rule's aggregate."""
        if self.robust is not None:
            return super().synchronise(parts)
        options = self.plan.options
        tree = levels(str(options["topology"]), self.plan.workers)

        def combine(one: Aggregator, inputs: list[torch.Tensor]) -> torch.Tensor:
            total = aggregation.sum_in_rank_order(inputs[number] for number in one.inputs)
            return total.div_(divisor(one, tree, str(options["averaging"])))

        made = list(parts)
        for level in tree:
            made = [combine(one, made) for one in level]
        return made[0]
