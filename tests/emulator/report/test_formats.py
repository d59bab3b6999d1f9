"""Numbers as they are written on pages."""

import pytest

from slslab.report import formats


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (0.0, "0"), (3, "3"), (1234, "1,234"),
        (20.7431, "20.74"), (1234.56, "1,235"), (0.00169, "0.001690"),
        (-0.5, "-0.5000"),
    ],
)  # fmt: skip
def test_significant_digits(value: float | None, text: str) -> None:
    assert formats.significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (999, "999 B"), (66_048, "66.0 kB"), (154_000_000, "154 MB"), (2 * 10**15, "2,000 TB")],
)
def test_sizes(value: int | None, text: str) -> None:
    assert formats.size(value) == text


def test_shares_and_differences() -> None:
    assert formats.share(0.2885) == "28.85 %"
    assert formats.difference(-0.0123) == "-1.2 %"
    assert formats.difference(1.0) == "2.0 times"
    assert formats.difference(41.25) == "42 times"
    assert formats.difference(None) == "–"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (14.2, 19.1, "14 to 19"), (0.00412, 0.00551, "0.0041 to 0.0055"), (12.61, 15.4, "12.6 to 15.4"),
        (302, 370, "302 to 370"), (3021, 3702, "3,020 to 3,700"), (9.94, 10.06, "9.94 to 10.06"),
        # Half of the width is 0.099 as 0.10.
        (1.0, 1.1985, "1.00 to 1.20"),
        # The lower end keeps a digit.
        (0.04, 3, "0.04 to 3.00"), (0, 9, "0 to 9"), (3.0, 3.0, "3.000"),
    ],
)  # fmt: skip
def test_a_range_has_as_many_digits_as_its_width_allows(low: float, high: float, text: str) -> None:
    assert formats.span(low, high) == text


def test_names_are_listed_as_in_a_sentence() -> None:
    assert [formats.listed(names) for names in (["A"], ["A", "B"], ["A", "B", "C"])] == ["A", "A and B", "A, B and C"]
