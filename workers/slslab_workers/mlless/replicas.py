"""MLLess's workers in one process."""

from collections.abc import Iterator

import torch

from slslab_workers.mlless.filters import make_filter
from slslab_workers.mlless.settings import END_STEPS, count_below, scales_in
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import aggregation
from slslab_workers.training.replicas import Replicas

BELOW = "below"


class MLLessReplicas(Replicas):
    """Workers that update with the significant updates, if there are any, and keep a residual each."""

    def begin(self) -> None:
        """Make the filter and the rule."""
        self._filter = make_filter(self.plan)
        self.combine = aggregation.RULES[f"mean-over-{self.plan.options['mean-over']}"]
        self._sent = 0

    @staticmethod
    def check(plan: Plan) -> None:
        """Raise PlanError for options that depend on the clock: maximum time, and the auto-tuner."""
        ends_by_time = float(plan.options["max-time"]) > 0
        if ends_by_time or scales_in(plan):
            option = "--max-time" if ends_by_time else "--remove-threshold and --remove-interval"
            raise PlanError(
                f"Replicas run without functions, which {option} would need to time.",
                f"leave out {option}, or use `slslab run mlless`.",
            )

    def synchronise(self, parts: Iterator[torch.Tensor]) -> torch.Tensor | None:
        """Return the aggregate (P,) of the significant updates, or None without any; end training by the loss."""
        significant = []
        for state, gradient in zip(self.states, parts, strict=True):
            update = self._filter.significant(state, gradient, self.position)
            if update is not None:
                significant.append(self._filter.decode(update, gradient.numel()))
        self._sent += len(significant)
        notes = self.states[0].notes
        losses = self._losses[-len(self.states) :]
        notes[BELOW] = count_below(self.plan, sum(losses) / len(losses), notes.get(BELOW, 0))
        if notes[BELOW] >= END_STEPS:
            self.ended = "loss"
        if not significant:
            return None
        if self.robust is not None:
            return super().synchronise(iter(significant))
        return self.combine(aggregation.sum_in_rank_order(significant), len(self.states), len(significant))

    def sent(self) -> int:
        """Return the number of significant updates in this epoch, and reset it."""
        sent, self._sent = self._sent, 0
        return sent
