"""The means of functions' models in a round (K-AVG), and of their evaluations. Imports no torch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slslab_workers.kubeml.settings import Tensors, Vector


class Mean:
    """The mean of functions' tensors, added in rank order so that equal models give equal bits."""

    def __init__(self) -> None:
        self.ranks: list[int] = []
        self._total: dict[str, Vector] = {}

    def add(self, rank: int, tensors: Tensors) -> None:
        """Add the next function's tensors; the first ones become the sum."""
        if self.ranks:
            for layer, vector in tensors.items():
                self._total[layer] += vector
        else:
            self._total = dict(tensors)
        self.ranks.append(rank)

    def take(self) -> Tensors:
        """Return the sum divided by the number of functions, and start anew."""
        mean, divisor = self._total, np.float32(len(self.ranks))
        for vector in mean.values():
            vector /= divisor
        self.ranks, self._total = [], {}
        return mean


def weighted(judged: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Combine the functions' accuracies (0..1) and mean losses, weighted by their samples."""
    total = sum(one["length"] for one in judged)
    # Accuracy times samples is a whole number.
    correct = sum(round(one["accuracy"] * one["length"]) for one in judged)
    return correct / total, sum(one["loss"] * one["length"] for one in judged) / total
