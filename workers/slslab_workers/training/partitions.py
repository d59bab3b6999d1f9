"""Divide a data set unevenly among workers (non-IID). Each worker keeps its samples in all epochs.

`dirichlet:ALPHA` draws the workers' shares of each class from a Dirichlet distribution (Hsu et al. 2019), `labels:K`
gives each worker samples of only K classes (McMahan et al. 2017), and `sizes:A,B,...` gives shares of different sizes.
All of them are seeded. All workers train the same number of minibatches in an epoch: a worker with fewer samples
repeats them.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slslab_workers.plan import Plan, PlanError

Indices = NDArray[np.int64]
FORMS = "dirichlet:0.3, labels:2 or sizes:4,2,1,1"
# The most draws until every worker has a sample, and a number that sets this generator apart from others.
DRAWS, STREAM = 100, 7


def parse(text: str) -> tuple[str, tuple[float, ...]]:
    """Return the kind and numbers of an uneven partition; raise PlanError for any other text."""
    kind, _, words = text.partition(":")
    try:
        numbers = tuple(map(float, words.split(",")))
        single = len(numbers) == 1
        if not all(0 < number < math.inf for number in numbers):
            raise ValueError
        if {"dirichlet": single, "labels": single and numbers[0].is_integer(), "sizes": True}[kind]:
            return kind, numbers
    except (KeyError, ValueError):
        pass
    raise PlanError(f"There is no partition {text!r}.", f"choose disjoint, overlapping or kept, or {FORMS}.")


def check(text: str, workers: int, classes: int) -> None:
    """Raise PlanError if a partition doesn't fit the number of workers or of classes (0 for a regression)."""
    kind, numbers = parse(text)
    if kind == "sizes" and len(numbers) != workers:
        raise PlanError(f"--partition {text} has {len(numbers)} sizes for {workers} workers.", "give one for each.")
    if kind != "sizes" and not classes:
        raise PlanError(
            f"--partition {text} is by classes, and a regression doesn't have classes.", "give sizes:A,B,..."
        )
    if kind == "labels" and numbers[0] > classes:
        raise PlanError(f"--partition {text} needs more classes than the {classes} there are.", "give fewer.")


def shards(text: str, labels: NDArray[np.int64], workers: int, seed: int) -> list[Indices]:
    """Return the indices of each worker's samples; raise PlanError if a worker would get no sample."""
    kind, numbers = parse(text)
    generator = np.random.default_rng([seed, STREAM])
    for _ in range(DRAWS):
        if kind == "sizes":
            found = [_cut(generator.permutation(len(labels)), numbers)]
        elif kind == "labels":
            found = _by_labels(labels, workers, int(numbers[0]), generator)
        else:
            alpha = [numbers[0]] * workers
            found = [
                _cut(_shuffled(labels, label, generator), generator.dirichlet(alpha)) for label in np.unique(labels)
            ]
        owned = [np.concatenate(parts) for parts in zip(*found, strict=True)]
        if all(map(len, owned)):
            return owned
    raise PlanError(
        f"--partition {text} leaves a worker without a sample.", "give fewer --workers, or a more even partition."
    )


def shares(owned: Sequence[Indices], labels: NDArray[np.int64]) -> list[list[int]]:
    """Return each worker's number of samples of each class; for a regression, of all its samples."""
    if labels.dtype.kind == "f":
        return [[len(indices)] for indices in owned]
    classes = int(labels.max()) + 1
    return [np.bincount(labels[indices], minlength=classes).tolist() for indices in owned]


def drawn(owned: Sequence[Indices], plan: Plan, epoch: int) -> Indices:
    """Return the indices of an epoch's minibatches (workers, batches, batch_size).

    Each worker shuffles its samples, and shuffles them again when it has used them all.
    """
    needed = plan.batches * plan.batch_size
    rows = []
    for rank, indices in enumerate(owned):
        generator = np.random.default_rng([plan.seed, epoch, rank, STREAM])
        passes = [generator.permutation(indices) for _ in range(-(-needed // len(indices)))]
        rows.append(np.concatenate(passes)[:needed])
    return np.stack(rows).reshape(plan.workers, plan.batches, plan.batch_size)


def _cut(indices: Indices, weights: Sequence[float] | NDArray[np.float64]) -> list[Indices]:
    bounds = np.cumsum(weights)[:-1] / np.sum(weights) * len(indices)
    return np.split(indices, np.rint(bounds).astype(int))


def _shuffled(labels: NDArray[np.int64], label: int, generator: np.random.Generator) -> Indices:
    return generator.permutation(np.flatnonzero(labels == label))


def _by_labels(
    labels: NDArray[np.int64], workers: int, most: int, generator: np.random.Generator
) -> list[list[Indices]]:
    """Return each class's samples for each worker; the shuffled classes are dealt to the workers in turn."""
    order = generator.permutation(np.unique(labels))
    dealt = [{order[(rank * most + number) % len(order)] for number in range(most)} for rank in range(workers)]
    return [
        _cut(_shuffled(labels, label, generator), [float(label in own) for own in dealt])
        for label in order
        if any(label in own for own in dealt)
    ]
