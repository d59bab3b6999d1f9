"""A plan's images: training images and their order, held-out validation images, and test images."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slslab_workers.models import spec_of
from slslab_workers.plan import Plan
from slslab_workers.training import algorithms, datasets, partitions
from slslab_workers.training.options import PARTITION, uneven

HELD_OUT = 10


class Samples:
    """The images of a plan's data set, in the shape that its model takes.

    `images` (N, C, 32, 32) uint8 and `labels` (N,) are for training. With early stopping, `validation` is the held-out
    tenth of the training images, otherwise None. `report` receives the numbers of loaded images and of all images.
    """

    def __init__(self, plan: Plan, report: Callable[[int, int], None] = lambda _done, _total: None) -> None:
        self.plan = plan
        count = plan.workers * plan.batches * plan.batch_size
        if plan.early_stopping:
            count = math.ceil(count * HELD_OUT / (HELD_OUT - 1))
        self.dataset = datasets.load(plan.dataset, count, plan.seed, report).for_model(spec_of(plan))
        self.images, self.labels = self.dataset.train_images, self.dataset.train_labels
        self.validation: tuple[datasets.Images, datasets.Labels] | None = None
        if plan.early_stopping:
            # A seeded tenth, which is the same for every architecture.
            order = np.random.default_rng([plan.seed, 0, HELD_OUT]).permutation(len(self.labels))
            held, rest = map(np.sort, np.split(order, [len(self.labels) // HELD_OUT]))
            self.validation = (self.images[held], self.labels[held])
            self.images, self.labels = self.images[rest], self.labels[rest]
        chosen = uneven(plan)
        self._shards = partitions.shards(chosen, self.labels, plan.workers, plan.seed) if chosen else None
        # Fail early if the data set has too few samples.
        self.indices(0)

    def indices(self, epoch: int) -> NDArray[np.int64]:
        """Return the indices of the images in each minibatch of an epoch: (workers, batches, batch_size)."""
        plan = self.plan
        if self._shards:
            return partitions.drawn(self._shards, plan, 0 if algorithms.is_em(plan.options) else epoch)
        return datasets.partition(
            len(self.labels),
            plan.workers,
            plan.batches,
            plan.batch_size,
            plan.seed,
            epoch,
            overlapping=PARTITION.of(plan.options) == "overlapping",
            kept=algorithms.is_em(plan.options) or PARTITION.of(plan.options) == "kept",
        )

    def shares(self) -> list[list[int]] | None:
        """Return each worker's number of samples of each class, if the partition is uneven; otherwise None."""
        return partitions.shares(self._shards, self.labels) if self._shards else None

    def prepare(self, chosen: NDArray[np.int64], epoch: int, rank: int, step: int) -> tuple[Any, Any]:
        """Return a minibatch's augmented inputs (B, C, 32, 32) float32 and its targets (B,) int64.

        The inputs have the plan's memory format.
        """
        from slslab_workers.training import models

        images, labels, plan = self.images[chosen], self.labels[chosen], self.plan
        inputs, targets = datasets.prepare(images, labels, self.dataset.policy, plan.seed, epoch, rank, step)
        return models.arranged(inputs, plan.memory_format), targets
