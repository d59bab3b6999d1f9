"""K-AVG's mean of models, in the order of ranks, and the weights of validation."""

import numpy as np
import pytest

from slslab_workers.kubeml.merging import Mean, weighted
from slslab_workers.kubeml.settings import Tensors


def model(*weights: float, bias: float = 0.0) -> Tensors:
    return {"weight": np.array(weights, np.float32), "bias": np.array([bias], np.float32)}


def test_the_mean_is_of_those_that_were_added_layer_by_layer() -> None:
    mean = Mean()
    for rank, tensors in ((0, model(1, 2, bias=3)), (2, model(3, 6, bias=6)), (5, model(5, 1, bias=9))):
        mean.add(rank, tensors)
    assert mean.ranks == [0, 2, 5]
    taken = mean.take()
    assert {layer: vector.tolist() for layer, vector in taken.items()} == {"weight": [3, 3], "bias": [6]}
    assert {vector.dtype for vector in taken.values()} == {np.dtype(np.float32)}


def test_after_each_mean_it_starts_anew() -> None:
    mean = Mean()
    assert mean.ranks == []
    mean.add(0, model(8, 8))
    mean.add(1, model(4, 4))
    assert mean.take()["weight"].tolist() == [6, 6]
    assert mean.ranks == []
    mean.add(1, model(2, 4))
    assert mean.ranks == [1]
    assert mean.take()["weight"].tolist() == [2, 4], "of one function the mean is its own model"
    assert mean.take() == {}


def test_tensors_are_added_in_their_order() -> None:
    """In float32 (1e8 + 1) - 1e8 is 0 and (1e8 - 1e8) + 1 is 1: the order is in the bits."""
    for values, expected in (((1e8, 1.0, -1e8), 0.0), ((1e8, -1e8, 3.0), 1.0)):
        mean = Mean()
        for rank, value in enumerate(values):
            mean.add(rank, model(value))
        assert mean.take()["weight"].tolist() == [expected]


def test_validation_is_weighted_by_samples() -> None:
    judged = [{"accuracy": 0.5, "loss": 1.0, "length": 100}, {"accuracy": 1.0, "loss": 4.0, "length": 50}]
    assert weighted([*judged, {"accuracy": 0.0, "loss": 0.0, "length": 0}]) == pytest.approx((2 / 3, 2.0))
