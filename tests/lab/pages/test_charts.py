"""Where a chart's texts stand."""

import pytest

from slslab_lab.pages.charts import NARROW, WIDE, Point, _sides

RANGES = {name: {"low": 1.0, "high": 2.0} for name in ("seconds", "cost")}


def point(seconds: float, cost: float, *, own: bool = False) -> Point:
    return Point("this run" if own else "others", seconds, cost, "1,024 MB", RANGES if own else None)


@pytest.mark.parametrize(
    ("points", "width", "sides"),
    [
        ([point(5, 5)], WIDE, [1]),
        ([point(5, 5), point(5, 5.2)], WIDE, [-1, 1]),
        ([point(5, 5), point(5, 5), point(5, 5), point(5, 5, own=True)], WIDE, [-1, 0, 0, 1]),
        ([point(1, 9), point(5, 6), point(9, 1)], WIDE, [1, -1, -1]),
        ([point(0, 0)], WIDE, [1]),
        # Side by side on a wide screen; on a phone the second text goes below, and the third has no room.
        ([point(4, 5), point(5.6, 5), point(7.2, 5), point(10, 0)], WIDE, [1, 1, 1, -1]),
        ([point(4, 5), point(5.6, 5), point(7.2, 5), point(10, 0)], NARROW, [1, -1, 1, -1]),
    ],
)
def test_a_text_covers_no_other_text_or_point(points: list[Point], width: int, sides: list[int]) -> None:
    assert _sides(points, [each.text for each in points], width) == sides
