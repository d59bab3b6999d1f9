"""K-AVG's mean of models, in the order of ranks, and their aggregate by a rule that withstands Byzantine functions."""

import numpy as np
import pytest
import torch

from slslab_workers.architecture import architectures
from slslab_workers.kubeml.merging import Mean, Robust, flat, merger, parted
from slslab_workers.kubeml.settings import Tensors
from slslab_workers.plan import Plan
from slslab_workers.training import robust


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


RULES = tuple(name for name in robust.RULES if name != robust.ZENO)
# The last one is far away in its bias alone, and the fourth in its weights alone.
MODELS = (
    model(1.0, 2.0, bias=3.0),
    model(1.1, 2.1, bias=3.1),
    model(0.9, 2.2, bias=2.9),
    model(9.0, 9.0, bias=3.0),
    model(1.0, 2.0, bias=-99.0),
)


def merged(rule: str, models: tuple[Tensors, ...], byzantine: int) -> Tensors:
    merging = Robust(rule, byzantine)
    for rank, tensors in enumerate(models):
        merging.add(rank, tensors)
    return merging.take()


@pytest.mark.parametrize("rule", RULES)
def test_a_robust_rule_judges_models_as_one_vector(rule: str) -> None:
    byzantine = 1 if robust.KNOWN[rule].informed else 0
    vectors = [torch.tensor([*tensors["weight"], *tensors["bias"]]) for tensors in MODELS]
    expected = robust.aggregate(rule, vectors, byzantine).tolist()
    taken = merged(rule, MODELS, byzantine)
    assert list(taken) == ["weight", "bias"]
    assert [*taken["weight"].tolist(), *taken["bias"].tolist()] == expected
    assert {vector.dtype for vector in taken.values()} == {np.dtype(np.float32)}


def test_a_model_that_is_far_away_in_one_tensor_is_left_out_of_all() -> None:
    """By its weights alone the last model would be Krum's."""
    assert {layer: vector.tolist() for layer, vector in merged("krum", MODELS, 1).items()} == {
        layer: vector.tolist() for layer, vector in MODELS[0].items()
    }
    assert merged("median", MODELS, 0)["bias"].tolist() == [3.0]


def test_after_each_aggregate_it_starts_anew() -> None:
    merging = Robust("median", 0)
    for first in (0.0, 10.0):
        for rank in (0, 2, 3):
            merging.add(rank, model(first + rank))
        assert merging.ranks == [0, 2, 3]
        assert merging.take()["weight"].tolist() == [first + 2]
        assert merging.ranks == []


def test_too_few_models_for_a_rule_are_not_merged() -> None:
    merged("krum", MODELS, 1)
    with pytest.raises(ValueError, match="krum needs 5 workers to withstand 1, and 4 are left"):
        merged("krum", MODELS[:4], 1)


def test_the_plan_says_what_merges() -> None:
    def made(**options: str | int) -> Mean | Robust:
        complete = architectures()["kubeml"].complete(options)
        return merger(Plan("run", "kubeml", "lenet", "digits", 64, 4, 1024, workers=3, options=complete))

    assert isinstance(made(), Mean)
    trimmed = made(combine="trimmed-mean", byzantine=1)
    for rank, weight in enumerate((1.0, 2.0, 900.0)):
        trimmed.add(rank, model(weight))
    assert trimmed.take()["weight"].tolist() == [2.0]
    assert (made().rule, trimmed.rule) == ("", "trimmed-mean")


def test_tensors_are_one_vector_and_parts_again() -> None:
    tensors = {**model(1.0, 2.0, bias=3.0), "scale": np.array([4.0, 5.0, 6.0], np.float32)}
    vector = flat(tensors)
    assert vector.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    vector[:] *= 2
    parts = {layer: part.tolist() for layer, part in parted(vector, tensors).items()}
    assert parts == {"weight": [2.0, 4.0], "bias": [6.0], "scale": [8.0, 10.0, 12.0]}
    assert tensors["weight"].tolist() == [1.0, 2.0]
