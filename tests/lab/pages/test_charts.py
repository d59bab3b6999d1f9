"""Where a chart's texts stand."""

import pytest

from slslab_lab.pages.charts import NARROW, WIDE, Point, _place_texts

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
        # Side by side on a wide screen; on a phone the second text goes below.
        ([point(4, 5), point(5.6, 5), point(7.2, 5), point(10, 0)], WIDE, [1, 1, 1, -1]),
        ([point(4, 5), point(5.6, 5), point(7.2, 5), point(10, 0)], NARROW, [1, -1, 1, -1]),
    ],
)
def test_a_text_covers_no_other_text_or_point(points: list[Point], width: int, sides: list[int]) -> None:
    placed = _place_texts(points, [(each.text,) for each in points], width)
    assert placed == [("1,024 MB" if side else "", side) for side in sides]


def test_where_a_text_has_no_room_its_beginning_may_have() -> None:
    points = [point(1, 1), point(4, 1.6), point(4, 0.4), point(10, 10)]
    texts = [("MLLess, accuracy 81.0 %", "MLLess"), *[("AllReduce",)] * 3]
    assert _place_texts(points, texts, WIDE)[0] == ("MLLess", -1)
