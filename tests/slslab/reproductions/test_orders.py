"""Orders of rows by cost, and what is said of those that are the other way round."""

from decimal import Decimal

from tests.slslab.reproductions.papers import PUBLISHED, paper

from slslab.reproductions.bills import BillLine
from slslab.reproductions.calls import Estimate
from slslab.reproductions.documents import Cell, ReproducedRow
from slslab.reproductions.orders import rank_costs

COST = "total_cost"


def row(name: str, cost: float, variant: str = "canonical") -> ReproducedRow:
    return ReproducedRow(name, "LeNet", variant, {COST: Cell(modelled=Estimate(cost, None, None, 1))})


def line(amount: str) -> tuple[BillLine, ...]:
    return (BillLine("Minibatches", Decimal(1), "GB-second", Decimal(amount), in_paper=True),)


def test_orders() -> None:
    """Published is gpu, allreduce, scatterreduce, spirt, mlless; here SPIRT is cheaper than both patterns."""
    costs = {"gpu": 1.0, "allreduce": 3.0, "scatterreduce": 4.0, "spirt": 2.0, "mlless": 5.0}
    rows = [row(name, cost) for name, cost in costs.items()]
    (found,) = rank_costs(paper(), "table2", COST, rows, [line(str(10 - cost)) for cost in costs.values()])
    assert [name for name, _ in found.orders["modelled, canonical"]] == [
        "gpu", "spirt", "allreduce", "scatterreduce", "mlless",
    ]  # fmt: skip
    assert found.orders["whole bill, canonical"][0][0] == "mlless"
    assert found.verdict == "differs"
    assert "modelled, canonical: allreduce costs 1.50 times as much as spirt" in found.reason
    assert "scatterreduce costs 2.00 times as much as spirt" in found.reason


def test_an_order_of_some_rows_is_none() -> None:
    rows = [row(name, 1.0) for name in PUBLISHED]
    (found,) = rank_costs(paper(), "table2", COST, rows, [line("1")] * len(rows))
    assert list(found.orders) == ["published", "recomputed"]
    assert found.verdict == "as published"


def test_an_architecture_with_one_variant_is_in_each_order() -> None:
    rows = [row("gpu", 1.0)]
    for variant in ("canonical", "as released"):
        rows += [row(name, 2.0 + number, variant) for number, name in enumerate(PUBLISHED)]
    (found,) = rank_costs(paper(), "table2", COST, rows, [()] * len(rows))
    assert found.orders["modelled, as released"][0][0] == "gpu"
    assert found.orders.keys() == {"published", "recomputed", "modelled, canonical", "modelled, as released"}
