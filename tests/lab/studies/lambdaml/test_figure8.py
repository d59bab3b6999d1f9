"""Figure 8 of LambdaML: whether S-ASP is less steady than BSP, of losses made by hand."""

from typing import cast

import pytest
from tests.lab.studies.lambdaml import made
from tests.lab.studies.setups import Watching, setup

from slslab_lab.studies.lambdaml import figure8
from slslab_lab.studies.lambdaml.figure8 import build, measure, order, spread
from slslab_lab.studies.lambdaml.losses import Series

STEADY, RESTLESS = [9.0, 5.0, 4.0, 3.0, 2.0, 1.0], [9.0, 5.0, 4.0, 3.0, 4.0, 3.0]


def members(bsp: dict[int, list[float]], free: dict[int, list[float]]) -> list[Series]:
    return [made.series("ga", bsp), made.series("ga", free, synchronisation="s-asp")]


def test_a_steady_fall_has_no_spread() -> None:
    assert spread(STEADY) == 0
    # 4 is 1 above the mean of its neighbours; the first half does not count.
    assert spread(RESTLESS) == 1


@pytest.mark.parametrize(
    ("free", "verdict"),
    [({0: RESTLESS, 1: RESTLESS}, "holds"), ({0: RESTLESS, 1: STEADY}, "does not hold")],
)
def test_the_order_must_hold_from_every_seed(free: dict[int, list[float]], verdict: str) -> None:
    found = order(members({0: STEADY, 1: STEADY}, free))
    assert (found.verdict, found.of) == (verdict, "LR on breast-cancer at rate 0.01")
    assert found.figures.startswith("BSP 0.00000 (0.00000 to 0.00000); S-ASP ")


def test_an_order_has_the_ratio_from_each_seed() -> None:
    double = [2 * loss for loss in RESTLESS]
    found = order(members({0: RESTLESS, 1: RESTLESS}, {0: double, 1: RESTLESS}))
    assert found.verdict == "does not hold"
    assert found.figures.endswith("S-ASP 1.50000 (1.00000 to 2.00000), 1.00 to 2.00 times BSP's of the same seed")


def test_the_document_has_order_rows_and_curves() -> None:
    found = made.losses(*members({0: STEADY}, {0: RESTLESS}))
    document = build(setup("lambdaml-fig8"), found)
    assert [each["verdict"] for each in document["orders"]] == ["holds"]
    assert [(row["name"], row["variant"]) for row in document["rows"]] == [("BSP", "one process"), ("S-ASP", "runs")]
    assert [row["cells"]["loss"]["measured"]["value"] for row in document["rows"]] == [1.0, 3.0]
    (curve,) = document["curves"]
    assert [line["x"][-1] for line in curve["lines"]] == [6, 6]


def test_only_s_asp_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure8, "by_epoch", lambda training: (0.0, float(training.seed)))
    monkeypatch.setattr(figure8, "run", lambda training, *_: (1.0, float(training.seed)))
    given = setup("lambdaml-fig8")
    found = measure(given).series
    assert [(each.dataset, each.plan["lr"], each.synchronisation, each.losses[1]) for each in found] == [
        (dataset, rate, name, (first, 1.0))
        for dataset in figure8.DATASETS
        for rate in (0.01, 1.0)
        for name, first in (("bsp", 0.0), ("s-asp", 1.0))
    ]
    assert {each.plan["workers"] for each in found} == {4}
    assert cast(Watching, given.watcher).reported[-1] == ("training small models", 24, 24)
