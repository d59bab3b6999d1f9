"""Verdicts of orders, and medians."""

import pytest

from slslab_lab.studies.documents import Estimate, middle
from slslab_lab.studies.rankings import judge


@pytest.mark.parametrize(
    ("each", "verdict"),
    [
        ([True, True], "holds"),
        ([True, False, None], "does not hold"),
        ([True, None], "cannot be told"),
        ([], "cannot be told"),
    ],
)
def test_an_order_holds_if_it_holds_each_time(each: list[bool | None], verdict: str) -> None:
    assert judge(each) == verdict


def test_the_median_has_the_least_and_the_greatest_of_several() -> None:
    assert middle([3.0, 1.0, 8.0]) == Estimate(3.0, 1.0, 8.0, 3)
    assert middle([3.0]) == Estimate(3.0, None, None, 1)
