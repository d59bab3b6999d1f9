"""Numbers as they are written on pages."""

import pytest

from slslab.reports import formats


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


def test_money_shares_and_differences() -> None:
    assert formats.money("0.0017053") == "0.001705"
    assert formats.share(0.2885) == "28.85 %"
    assert formats.difference(-0.0123) == "-1.2 %"
    assert formats.difference(None) == "–"
