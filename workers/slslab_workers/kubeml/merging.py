"""K-AVG: the mean of the models of those that reported in a round; or, by a rule that withstands Byzantine functions,
their aggregate. The mean needs NumPy and no torch."""

import numpy as np

from slslab_workers.kubeml.settings import Tensors, Vector
from slslab_workers.plan import Plan
from slslab_workers.training import robust


class Mean:
    """The mean of functions' tensors, which are added in rank order: equal models give equal bits."""

    # What the trace names.
    rule = ""

    def __init__(self) -> None:
        self.ranks: list[int] = []
        self._total: dict[str, Vector] = {}

    def add(self, rank: int, tensors: Tensors) -> None:
        """Add the tensors of the next function; the first ones become the sum."""
        if self.ranks:
            for layer, vector in tensors.items():
                self._total[layer] += vector
        else:
            self._total = dict(tensors)
        self.ranks.append(rank)

    def take(self) -> Tensors:
        """Return the sum divided by how many functions were added, and start anew."""
        mean, divisor = self._total, np.float32(len(self.ranks))
        for vector in mean.values():
            vector /= divisor
        self.ranks, self._total = [], {}
        return mean


class Robust:
    """The aggregate of functions' models by a robust rule. Each is one vector, of all its tensors, and is held."""

    # Tensors with the names and lengths that the aggregate is to have.
    _like: Tensors

    def __init__(self, rule: str, byzantine: int) -> None:
        self.ranks: list[int] = []
        self.rule = rule
        self._byzantine = byzantine
        self._models: list[Vector] = []

    def add(self, rank: int, tensors: Tensors) -> None:
        """Hold the tensors of the next function."""
        self._models.append(flat(tensors))
        self._like = tensors
        self.ranks.append(rank)

    def take(self) -> Tensors:
        """Return the aggregate of all that were added, and start anew; ValueError if too few were for the rule."""
        import torch

        robust.check_count(self.rule, len(self.ranks), self._byzantine)
        aggregate = robust.aggregate(self.rule, [torch.from_numpy(model) for model in self._models], self._byzantine)
        self.ranks, self._models = [], []
        return parted(aggregate.numpy(), self._like)


def merger(plan: Plan) -> Mean | Robust:
    """Return what merges the models of the plan's rounds."""
    rule = robust.name_of(plan.options)
    return Mean() if rule is None else Robust(rule, int(robust.BYZANTINE.of(plan.options)))


def flat(tensors: Tensors) -> Vector:
    """Return all tensors as one new vector."""
    return np.concatenate(list(tensors.values()))


def parted(vector: Vector, like: Tensors) -> Tensors:
    """Return the parts of a vector that are as long as these tensors, by their names; they share its memory."""
    parts, start = {}, 0
    for layer, part in like.items():
        parts[layer] = vector[start : start + part.size]
        start += part.size
    return parts
