"""MLLess's workers in one process."""

from collections.abc import Callable, Iterator

import torch

from slslab_workers import gradients
from slslab_workers.mlless.filters import make_filter
from slslab_workers.mlless.settings import END_STEPS, Settings
from slslab_workers.plan import Plan, PlanError
from slslab_workers.replicas import Replicas
from slslab_workers.samples import Samples

BELOW = "below"


class MLLessReplicas(Replicas):
    """They update with what is significant, if anything is; each keeps a residual of its own."""

    def __init__(
        self, plan: Plan, samples: Samples, device: str = "cpu", heard: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(plan, samples, device, heard)
        self._settings = Settings.of(plan)
        self._filter = make_filter(plan, self._settings)
        self._sent = 0

    @staticmethod
    def check(plan: Plan) -> None:
        """PlanError for what the clock decides: when time is over, and whom the auto-tuner removes."""
        settings = Settings.of(plan)
        if settings.max_time or settings.scales_in:
            option = "--max-time" if settings.max_time else "--remove-threshold and --remove-interval"
            raise PlanError(
                "What MLLess's clock decides cannot be told without the functions whose time it is.",
                f"leave out {option}, or `slslab run mlless`.",
            )

    def synchronise(self, parts: Iterator[torch.Tensor]) -> None:
        """Filter every worker's gradient, and update; training may end with the loss."""
        significant = []
        for state, gradient in zip(self.states, parts, strict=True):
            update = self._filter.significant(state, gradient, self.position)
            if update is not None:
                significant.append(self._filter.decode(update, gradient.numel()))
        self._sent += len(significant)
        if significant:
            divisor = self._settings.divisor(len(self.states), len(significant))
            self.update(gradients.sum_in_rank_order(significant).div_(divisor))
        notes = self.states[0].notes
        losses = self._losses[-len(self.states) :]
        notes[BELOW] = self._settings.count_below(sum(losses) / len(losses), notes.get(BELOW, 0))
        if notes[BELOW] >= END_STEPS:
            self.ended = "loss"

    def sent(self) -> int:
        """Significant updates of this epoch."""
        sent, self._sent = self._sent, 0
        return sent
