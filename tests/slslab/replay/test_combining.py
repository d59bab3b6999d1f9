"""How far the next recording may be from the mean of several, and how probable an order of two means is."""

import pytest

from slslab.replay.combining import half_width, likelihood


def test_the_next_recording_is_within_students_interval() -> None:
    # t of two degrees of freedom at 90 % is 1.8856; the deviation is 1, and one of three more recordings is looked for.
    assert half_width([9.0, 10.0, 11.0]) == pytest.approx(1.8856 * (4 / 3) ** 0.5, rel=1e-4)


@pytest.mark.parametrize(
    ("first", "second", "probability"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 0.5),
        # Means 3 apart with a standard error of √(2/3): t is 3.674 of four degrees of freedom.
        ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], 0.98934),
        ([4.0, 5.0, 6.0], [1.0, 2.0, 3.0], 0.01066),
        ([1.0, 1.0], [2.0, 2.0], 1.0),
        ([2.0, 2.0], [1.0, 1.0], 0.0),
        ([1.0, 1.0], [1.0, 1.0], 0.5),
    ],
)
def test_the_probability_of_an_order(first: list[float], second: list[float], probability: float) -> None:
    assert likelihood(first, second) == pytest.approx(probability, abs=1e-4)
