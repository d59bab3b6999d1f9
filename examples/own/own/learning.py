"""What is trained: a model, and a data set of three classes."""

import numpy as np
from numpy.typing import NDArray
from torch import nn


def mlp(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Return a network with one hidden layer for rows (D,), which answers with a score for each class."""
    return nn.Sequential(nn.Linear(shape[0], 32), nn.ReLU(), nn.Linear(32, outputs))


def spirals() -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """Return points (600, 2) on three spirals, and the name of each point's spiral (600,)."""
    generator, names = np.random.default_rng(0), np.array(["blue", "green", "red"])
    labels, radius = np.arange(600) % 3, generator.uniform(0.2, 1, 600)
    angle = 2 * np.pi * labels / 3 + 3 * radius + generator.normal(0, 0.1, 600)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1), names[labels]
