"""K-AVG: the mean of the models reported in a round, which needs no torch, or their aggregate by a robust rule."""

import numpy as np

from slslab_workers.kubeml.settings import Tensors, Vector
from slslab_workers.plan import Plan
from slslab_workers.training import robust


class Mean:
    """The mean of functions' tensors, added in rank order so that equal models give equal bits."""

    # The operation's name in the trace.
    rule = ""

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


class Robust:
    """The aggregate of functions' models by a robust rule. It holds each model as one vector."""

    # Tensors with the names and lengths of the aggregate.
    _like: Tensors

    def __init__(self, rule: str, byzantine: int) -> None:
        self.ranks: list[int] = []
        self.rule = rule
        self._byzantine = byzantine
        self._models: list[Vector] = []

    def add(self, rank: int, tensors: Tensors) -> None:
        """Hold the next function's tensors."""
        self._models.append(flat(tensors))
        self._like = tensors
        self.ranks.append(rank)

    def take(self) -> Tensors:
        """Return the aggregate of all added models, and start anew; ValueError if there are too few for the rule."""
        import torch

        robust.check_count(self.rule, len(self.ranks), self._byzantine)
        aggregate = robust.aggregate(self.rule, [torch.from_numpy(model) for model in self._models], self._byzantine)
        self.ranks, self._models = [], []
        return parted(aggregate.numpy(), self._like)


def merger(plan: Plan) -> Mean | Robust:
    """Return a merger for the plan's rounds."""
    rule = robust.name_of(plan.options)
    return Mean() if rule is None else Robust(rule, int(robust.BYZANTINE.of(plan.options)))


def flat(tensors: Tensors) -> Vector:
    """Concatenate all tensors to a new vector."""
    return np.concatenate(list(tensors.values()))


def parted(vector: Vector, like: Tensors) -> Tensors:
    """Split a vector into parts as long as these tensors, by their names; the parts share its memory."""
    parts, start = {}, 0
    for layer, part in like.items():
        parts[layer] = vector[start : start + part.size]
        start += part.size
    return parts
