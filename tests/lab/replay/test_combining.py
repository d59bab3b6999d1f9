"""How far the next recording may be from the mean of several, and how probable an order of two means is."""

import math
from decimal import Decimal

import pytest

from slslab.predict.anchors import Z80
from slslab.predict.uncertainty import Uncertainty
from slslab_lab.replay.combining import combine, half_width, likelihood
from slslab_lab.replay.whatif import Basis, Row, Valued


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
        # The standard error is √(1/3): t is 3.464 of two degrees of freedom.
        ([1.0, 1.0, 1.0], [2.0, 3.0, 4.0], 0.96291),
        ([1.0, 1.0], [2.0, 2.0], 1.0),
        ([2.0, 2.0], [1.0, 1.0], 0.0),
        ([1.0, 1.0], [1.0, 1.0], 0.5),
    ],
)
def test_the_probability_of_an_order(first: list[float], second: list[float], probability: float) -> None:
    assert likelihood(first, second) == pytest.approx(probability, abs=1e-4)


def row(seconds: float, own: float, basis: Basis = "modelled") -> Row:
    uncertainty = Uncertainty({"dense work on Lambda": 0.2}, {"the replay": own})
    figures = {
        "seconds": Valued(seconds, basis, *uncertainty.around(seconds)),
        "cost": Valued(Decimal("0.01"), basis, *uncertainty.around(0.01)),
        "waiting_share": Valued(seconds / 100, basis),
    }
    modelled = dict.fromkeys(("seconds", "cost"), uncertainty)
    return Row("one", figures, uncertainties=modelled if basis == "modelled" else {})


def test_the_recordings_spread_takes_the_place_of_their_own_errors_if_it_is_wider() -> None:
    spread = math.log1p(half_width([10.0, 12.0]) / 11) / Z80
    for own, expected in ((0.01, {"the recordings' spread": pytest.approx(spread)}), (0.9, {"the replay": 0.9})):
        found = combine([row(10.0, own), row(12.0, own)])
        assert found.figures["seconds"].value == 11
        assert found.uncertainties["seconds"].shared == {"dense work on Lambda": pytest.approx(0.2)}
        assert found.uncertainties["seconds"].own == expected
        ends = found.figures["seconds"].low, found.figures["seconds"].high
        assert ends == pytest.approx(found.uncertainties["seconds"].around(11))
        # What is the same in all recordings is still uncertain on Lambda.
        assert found.uncertainties["cost"].own == {"the replay": own}
        assert (found.figures["cost"].low or 0) < 0.01
        assert found.figures["waiting_share"].low is None, "nothing says how uncertain it is on Lambda"


def test_measured_figures_have_the_spread_alone() -> None:
    found = combine([row(10.0, 0, "measured"), row(12.0, 0, "measured")]).figures["seconds"]
    assert (found.low, found.high) == pytest.approx((11 - half_width([10.0, 12.0]), 11 + half_width([10.0, 12.0])))
