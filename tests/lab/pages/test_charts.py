"""Where a chart's texts stand."""

import pytest

from slslab_lab.pages.charts import Point, _sides

RANGES = {name: {"low": 1.0, "high": 2.0} for name in ("seconds", "cost")}


def point(seconds: float, cost: float, *, own: bool = False) -> Point:
    return Point("this run" if own else "others", seconds, cost, "1,024 MB", RANGES if own else None)


@pytest.mark.parametrize(
    ("points", "sides"),
    [
        ([point(5, 5)], [1]),
        ([point(5, 5), point(5, 5.2)], [-1, 1]),
        ([point(5, 5), point(5, 5), point(5, 5), point(5, 5, own=True)], [-1, 0, 0, 1]),
        ([point(1, 9), point(5, 5), point(9, 1)], [1, -1, -1]),
        ([point(0, 0)], [1]),
    ],
)
def test_a_text_covers_no_other_text_or_point(points: list[Point], sides: list[int]) -> None:
    assert _sides(points) == sides
