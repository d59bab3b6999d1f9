"""Uneven partitions: every sample has one owner, shares are as asked, and epochs draw from what a worker owns."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slslab_lab.pages.run_charts import shares_card
from slslab_lab.runs.planning import architectures, make_plan
from slslab_workers.plan import PlanError
from slslab_workers.training import partitions
from slslab_workers.training.samples import Samples

LABELS = np.random.default_rng(0).integers(0, 10, 2000)


@given(st.sampled_from(["dirichlet:0.3", "dirichlet:100", "labels:5", "sizes:4,2,1"]), st.integers(0, 5))
def test_every_sample_has_one_owner(text: str, seed: int) -> None:
    owned = partitions.shards(text, LABELS, 3, seed)
    assert sorted(np.concatenate(owned).tolist()) == list(range(len(LABELS)))
    again = partitions.shards(text, LABELS, 3, seed)
    assert all(np.array_equal(one, other) for one, other in zip(owned, again, strict=True))
    other = partitions.shards(text, LABELS, 3, seed + 1)
    assert any(not np.array_equal(one, another) for one, another in zip(owned, other, strict=True))
    assert np.array(partitions.shares(owned, LABELS)).sum(0).tolist() == np.bincount(LABELS).tolist()


def test_shares_are_as_asked() -> None:
    even = np.array(partitions.shares(partitions.shards("dirichlet:1000", LABELS, 4, 1), LABELS))
    assert even.max() / even.min() < 1.6
    skewed = np.array(partitions.shares(partitions.shards("dirichlet:0.1", LABELS, 4, 1), LABELS))
    # Most of a class is one worker's: of Dir(0.1) over four, the largest part is 0.8 on average.
    assert 0.6 < float((skewed.max(0) / skewed.sum(0)).mean()) < 0.95
    few = np.array(partitions.shares(partitions.shards("labels:2", LABELS, 5, 1), LABELS))
    assert [(row > 0).sum() for row in few] == [2] * 5
    assert ((few > 0).sum(0) == 1).all(), "five workers with two classes each have all ten"
    shared = np.array(partitions.shares(partitions.shards("labels:2", LABELS, 10, 1), LABELS))
    assert ((shared > 0).sum(0) == 2).all(), "two workers share each class"
    sizes = [len(indices) for indices in partitions.shards("sizes:4,2,1,1", LABELS, 4, 1)]
    assert sizes == [1000, 500, 250, 250]


def samples(partition: str, **values: Any) -> Samples:
    given = {"dataset": "digits", "workers": 2, "batches": 4, "batch_size": 16, **values}
    return Samples(make_plan(architectures()["allreduce"], given, {"partition": partition}))


def test_epochs_draw_from_a_workers_own_samples() -> None:
    """Of ten to one, the second worker has some 130 samples, and sees each of them in two epochs or more."""
    found = samples("sizes:10,1", batches=12)
    assert found._shards is not None
    first, second = (set(found._shards[rank].tolist()) for rank in (0, 1))
    epochs = [found.indices(epoch) for epoch in range(2)]
    assert epochs[0].shape == (2, 12, 16)
    for indices in epochs:
        assert set(indices[0].ravel().tolist()) <= first
        assert set(indices[1].ravel().tolist()) == second, "192 draws of fewer samples: each at least once"
        assert len(set(indices[0].ravel().tolist())) == 192, "no sample twice where there are enough"
    assert not np.array_equal(epochs[0], epochs[1])


def test_k_means_has_the_same_samples_in_all_epochs() -> None:
    values = {"dataset": "breast-cancer", "model": "kmeans", "workers": 2, "batches": 4, "batch_size": 16}
    plan = make_plan(architectures()["allreduce"], values, {"partition": "dirichlet:5", "algorithm": "em"})
    found = Samples(plan)
    assert np.array_equal(found.indices(0), found.indices(3))


@pytest.mark.parametrize(
    ("partition", "values", "said"),
    [
        ("dirichlet", {}, "no partition 'dirichlet'"),
        ("dirichlet:0", {}, "no partition 'dirichlet:0'"),
        ("dirichlet:nan", {}, "no partition"),
        ("dirichlet:1,2", {}, "no partition"),
        ("labels:1.5", {}, "no partition"),
        ("shards:2", {}, "no partition"),
        ("sizes:1,x", {}, "no partition"),
        ("sizes:1,2,3", {}, "3 sizes for 2 workers"),
        ("labels:11", {}, "needs more classes than the 10"),
        ("labels:1", {"dataset": "breast-cancer", "workers": 4, "batches": 1}, ""),
    ],
)
def test_partitions_that_cannot_be(partition: str, values: dict[str, Any], said: str) -> None:
    if not said:
        assert samples(partition, **values).shares() is not None
        return
    with pytest.raises(PlanError, match=said):
        samples(partition, **values)


def test_a_regression_has_no_classes_and_mlless_takes_minibatches_over(tmp_path: Any) -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    np.savez(tmp_path / "number.npz", x=x, y=x @ [1.0, 2.0])
    values = {"dataset": str(tmp_path / "number.npz"), "batch_size": 4, "batches": 4}
    with pytest.raises(PlanError, match="a regression doesn't have classes"):
        samples("dirichlet:1", **values)
    assert samples("sizes:3,1", **values).shares() == [[30], [10]]
    plan = make_plan(
        architectures()["mlless"],
        {"dataset": "digits"},
        {"partition": "labels:2", "remove-threshold": 15.0, "remove-interval": 20.0},
    )
    with pytest.raises(PlanError, match="no worker keeps its samples"):
        architectures()["mlless"].requirements(plan)


def test_a_worker_without_a_sample_is_refused() -> None:
    with pytest.raises(PlanError, match="leaves a worker without a sample"):
        partitions.shards("labels:1", np.array([0, 0, 1]), 5, 0)


def test_a_solo_profile_has_all_samples() -> None:
    plan = samples("sizes:3,1").plan
    alone = architectures()["allreduce"].solo(plan)
    assert (alone.workers, alone.options["partition"]) == (1, "disjoint")
    assert {**alone.options, "partition": "sizes:3,1"} == plan.options


def test_a_page_shows_who_has_what() -> None:
    assert shares_card({"details": {}}) is None
    card = shares_card({"details": {"shares": [[5, 0, 3], [0, 7, 1]]}})
    assert card is not None
    (chart,) = card.charts
    (data,) = chart.data.values()
    assert {tuple(row[:3]) for row in data.rows} == {
        ("worker 0", "class 0", 5), ("worker 0", "class 1", 0), ("worker 0", "class 2", 3),
        ("worker 1", "class 0", 0), ("worker 1", "class 1", 7), ("worker 1", "class 2", 1),
    }  # fmt: skip
    many = shares_card({"details": {"shares": [list(range(12))]}})
    assert many is not None
    (data,) = many.charts[0].data.values()
    assert [row[1] for row in data.rows][-1] == "other classes"
    assert sum(int(str(row[2])) for row in data.rows) == sum(range(12))


def test_unequal_data_give_other_bits_and_are_recorded_in_the_plan() -> None:
    plan = samples("labels:3").plan
    assert plan.to_document()["options"]["partition"] == "labels:3"
    assert not np.array_equal(Samples(plan).indices(0), Samples(replace(plan, seed=1)).indices(0))
