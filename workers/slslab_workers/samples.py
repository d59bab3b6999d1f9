"""A plan's images: what is trained with and in which order, what is held out to judge by, and what tests."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slslab_workers import datasets, models
from slslab_workers.datasets import Images, Labels
from slslab_workers.plan import Plan

HELD_OUT = 10


class Samples:
    """The images of a plan's data set, as its model takes them.

    `images` (N, C, 32, 32) uint8 and `labels` (N,) are trained with; `validation` is the tenth of the training images
    that is held out where training stops by itself, else None. `report` hears how many have been loaded.
    """

    def __init__(self, plan: Plan, report: Callable[[int, int], None] = lambda _done, _total: None) -> None:
        self.plan = plan
        wanted = plan.workers * plan.batches * plan.batch_size
        if plan.early_stopping:
            wanted = math.ceil(wanted * HELD_OUT / (HELD_OUT - 1))
        loaded = datasets.load(plan.dataset, wanted, plan.seed, report)
        self.dataset = loaded.with_channels(models.spec(plan.model).channels)
        self.images, self.labels = self.dataset.train_images, self.dataset.train_labels
        self.validation: tuple[Images, Labels] | None = None
        if plan.early_stopping:
            self._hold_out()
        # The arithmetic is checked before anything is made.
        self.indices(0)

    def indices(self, epoch: int) -> NDArray[np.int64]:
        """Which images are in every minibatch of an epoch: (workers, batches, batch_size)."""
        plan = self.plan
        overlapping = plan.options.get("partition", "disjoint") == "overlapping"
        return datasets.partition(
            len(self.labels), plan.workers, plan.batches, plan.batch_size, plan.seed, epoch, overlapping
        )

    def prepare(self, chosen: NDArray[np.int64], epoch: int, rank: int, step: int) -> tuple[Any, Any]:
        """The images of a minibatch as inputs (B, C, 32, 32) float32, augmented, in the plan's memory format, with
        targets (B,) int64."""
        images, labels, plan = self.images[chosen], self.labels[chosen], self.plan
        inputs, targets = datasets.prepare(images, labels, self.dataset.policy, plan.seed, epoch, rank, step)
        return models.arranged(inputs, plan.memory_format), targets

    def _hold_out(self) -> None:
        """A seeded tenth of the training images, the same for every architecture, judges when to stop."""
        order = np.random.default_rng([self.plan.seed, 0, HELD_OUT]).permutation(len(self.labels))
        held = np.sort(order[: len(self.labels) // HELD_OUT])
        rest = np.sort(order[len(self.labels) // HELD_OUT :])
        self.validation = (self.images[held], self.labels[held])
        self.images, self.labels = self.images[rest], self.labels[rest]
