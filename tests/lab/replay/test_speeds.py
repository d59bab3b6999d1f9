"""The speed at which a replay takes as long as was measured."""

from collections.abc import Callable

import pytest

from slslab_lab.replay.speeds import FASTEST, PRECISION, SLOWEST, find_speed


@pytest.mark.parametrize(
    ("seconds", "speed"),
    [
        pytest.param(lambda speed: 2 + 5 / speed - 12, 0.5, id="a line"),
        pytest.param(lambda speed: max(3.0, 5 / speed) - 4, 1.25, id="waiting, and then a line"),
        pytest.param(lambda speed: 1.0 if speed < 3 else -1.0, 3.0, id="a jump"),
        pytest.param(lambda speed: (5 / speed) ** 3 - 125, 1.0, id="a curve"),
        pytest.param(lambda speed: 5 / speed, FASTEST, id="always longer"),
        pytest.param(lambda speed: -speed, SLOWEST, id="always shorter"),
    ],
)
def test_the_speed_is_found_in_few_tries(seconds: Callable[[float], float], speed: float) -> None:
    tries: list[float] = []

    def excess(tried: float) -> float:
        tries.append(tried)
        return seconds(tried)

    assert find_speed(excess) == pytest.approx(speed, rel=PRECISION)
    assert len(tries) <= 25
