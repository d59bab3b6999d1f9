"""Rankings by hand: swapped, equal, rows with only a lower bound, and rows by cost."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.lab.studies.papers import PUBLISHED as PRINTED
from tests.lab.studies.papers import paper

from slslab_lab.studies.documents import Cell, Estimate, ReproducedRow
from slslab_lab.studies.epoch_bill import BillLine
from slslab_lab.studies.rankings import Standing, rank_rows
from slslab_lab.studies.table2 import rank_costs

COST = "total_cost"
PUBLISHED = {"b": 20.0, "a": 10.0, "c": 30.0}


def ranked(found: Mapping[str, Standing], **more: Any) -> dict[str, Any]:
    return rank_rows("time", "min", PUBLISHED, {"ours": found}, "{first} takes {ratio} times {second}", **more)


def test_as_published() -> None:
    found = ranked({"a": Standing(1), "c": Standing(3), "b": Standing(2)}, reasons=("so",))
    assert found["published"] == [["a", 10.0], ["b", 20.0], ["c", 30.0]]
    assert found["ours"] == [["a", 1], ["b", 2], ["c", 3]]
    assert (found["verdict"], found["reason"]) == ("as published", "so")


def test_swapped() -> None:
    found = ranked({"a": Standing(4), "b": Standing(2), "c": Standing(5)})
    assert (found["verdict"], found["reason"]) == ("differs", "ours: a takes 2.00 times b")


def test_equal_ones_keep_the_published_order_and_differ_from_it() -> None:
    found = ranked({"c": Standing(2), "a": Standing(2), "b": Standing(2)})
    assert [name for name, _ in found["ours"]] == ["a", "b", "c"]
    assert (found["verdict"], found["reason"]) == ("differs", "ours: a, b, c are equal")


def test_highest_first() -> None:
    found = ranked({"a": Standing(4), "b": Standing(6), "c": Standing(5)}, highest_first=True)
    assert [name for name, _ in found["published"]] == ["c", "b", "a"]
    assert [name for name, _ in found["ours"]] == ["b", "c", "a"]
    assert found["reason"] == "ours: c takes 0.83 times b"


@pytest.mark.parametrize(
    ("a", "c", "verdict"),
    [
        # c comes last whenever it comes.
        (Standing(1), Standing(None, 2.5, "not in 5 epochs"), "as published"),
        # c may come before b.
        (Standing(1), Standing(None, 1.5, "not in 5 epochs"), "cannot be told"),
        # a does not come before b, whenever it comes.
        (Standing(None, 2.5, "not in 5 epochs"), Standing(3), "differs"),
        (Standing(1), Standing(None, missing="no curve"), "cannot be told"),
        (Standing(None, 9.0, "not in 5 epochs"), Standing(None, 1.0, "not in 5 epochs"), "differs"),
    ],
)
def test_what_never_came_is_later_than_its_end(a: Standing, c: Standing, verdict: str) -> None:
    found = ranked({"a": a, "b": Standing(2), "c": c})
    assert found["verdict"] == verdict
    assert all(name in ("a", "b", "c") and value is not None for name, value in found["ours"])
    assert all(one.missing in found["reason"] for one in (a, c))


def test_a_row_that_is_missing_leaves_the_order_open() -> None:
    assert ranked({"a": Standing(1), "b": Standing(2)})["verdict"] == "cannot be told"


def bases(ranking: Mapping[str, Any]) -> list[str]:
    return [name for name, value in ranking.items() if isinstance(value, list)]


def row(name: str, cost: float, variant: str = "canonical") -> ReproducedRow:
    return ReproducedRow(name, "LeNet", variant, {COST: Cell(modelled=Estimate(cost, None, None, 1))})


def line(amount: str) -> tuple[BillLine, ...]:
    return ({"item": "Minibatches", "quantity": "1", "unit": "GB-second", "amount": amount, "in_paper": True},)


def test_rows_by_cost() -> None:
    """Published is gpu, allreduce, scatterreduce, spirt, mlless; here SPIRT is cheaper than both patterns."""
    costs = {"gpu": 1.0, "allreduce": 3.0, "scatterreduce": 4.0, "spirt": 2.0, "mlless": 5.0}
    rows = [row(name, cost) for name, cost in costs.items()]
    (found,) = rank_costs(paper(), rows, [line(str(10 - cost)) for cost in costs.values()])
    assert [name for name, _ in found["modelled, canonical"]] == [
        "gpu", "spirt", "allreduce", "scatterreduce", "mlless",
    ]  # fmt: skip
    assert found["whole bill, canonical"][0][0] == "mlless"
    assert found["verdict"] == "differs"
    assert "modelled, canonical: allreduce costs 1.50 times as much as spirt" in found["reason"]
    assert "scatterreduce costs 2.00 times as much as spirt" in found["reason"]


def test_an_order_of_some_rows_is_none() -> None:
    rows = [row(name, 1.0) for name in PRINTED]
    (found,) = rank_costs(paper(), rows, [line("1")] * len(rows))
    assert bases(found) == ["published", "recomputed"]
    assert found["verdict"] == "as published"


def test_an_architecture_with_one_variant_is_in_each_order() -> None:
    rows = [row("gpu", 1.0)]
    for variant in ("canonical", "as released"):
        rows += [row(name, 2.0 + number, variant) for number, name in enumerate(PRINTED)]
    (found,) = rank_costs(paper(), rows, [()] * len(rows))
    assert found["modelled, as released"][0][0] == "gpu"
    assert bases(found) == ["published", "recomputed", "modelled, canonical", "modelled, as released"]
