"""The scheduler's policy: one more function while epochs don't take longer, one fewer when they do."""

from collections.abc import Mapping, Sequence
from typing import Any

from slslab_workers.kubeml.settings import PARALLELISM, STATIC, most_functions
from slslab_workers.plan import Plan

# Relative to the epoch that decided the last change.
NO_SLOWER, SLOWER = 1.05, 1.2


class Scheduler:
    """Decides how many functions train in the next epoch."""

    def __init__(self, plan: Plan) -> None:
        self.functions = plan.workers
        self._static = plan.options[PARALLELISM.name] == STATIC
        self._most = most_functions(plan)
        self._reference_s: float | None = None

    def record(self, elapsed_s: float) -> None:
        """Decide by how long the last epoch took; the first is the reference for later ones."""
        if self._static:
            return
        reference = self._reference_s
        if reference is None or elapsed_s <= NO_SLOWER * reference:
            self.functions, self._reference_s = min(self.functions + 1, self._most), elapsed_s
        elif elapsed_s >= SLOWER * reference:
            self.functions, self._reference_s = max(self.functions - 1, 1), elapsed_s


def weighted(judged: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Combine the functions' accuracies (0..1) and mean losses, weighted by their samples."""
    total = sum(one["length"] for one in judged)
    # Accuracy times samples is a whole number.
    correct = sum(round(one["accuracy"] * one["length"]) for one in judged)
    return correct / total, sum(one["loss"] * one["length"] for one in judged) / total
