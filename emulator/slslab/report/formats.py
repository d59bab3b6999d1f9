"""Format numbers for people, with units."""

import math
from collections.abc import Sequence
from decimal import Decimal

from rich.filesize import pick_unit_and_suffix

# Decimal prefixes, as in AWS's price lists and our tables.
BYTES = ["B", "kB", "MB", "GB", "TB"]
MISSING = "–"


def significant(value: float | None, digits: int = 4) -> str:
    """Return a number with at least `digits` significant digits, all integral digits, and no exponent."""
    if value is None:
        return MISSING
    if isinstance(value, int) or value == 0:
        return f"{value:,.0f}"
    decimals = max(0, digits - 1 - Decimal(value).adjusted())
    return f"{value:,.{decimals}f}"


def span(low: float, high: float) -> str:
    """Return a range with the digits that its width justifies, and equally many decimals at both ends.

    That is one significant digit of half the width, or two if it begins with a 1. The lower end keeps at least one.
    """
    half = (high - low) / 2
    if half <= 0:
        return significant(low)
    exponent = _exponent(half)
    decimals = (half < 1.95 * 10.0**exponent) - exponent
    # Tens and hundreds are written out, so they show two digits of the half-width.
    decimals = decimals if decimals >= 0 else 1 - exponent
    if low > 0:
        decimals = max(decimals, -_exponent(low))
    return " to ".join(f"{round(end, decimals):,.{max(0, decimals)}f}" for end in (low, high))


def _exponent(value: float) -> int:
    return math.floor(math.log10(float(f"{value:.1e}")))


def listed(names: Sequence[str], last: str = "and") -> str:
    """Return names joined for a sentence: A, B and C."""
    return f"{', '.join(names[:-1])} {last} {names[-1]}" if len(names) > 1 else names[0]


def capitalised(sentence: str) -> str:
    """Return a sentence with its first letter in upper case."""
    return sentence[:1].upper() + sentence[1:]


def seconds(value: float | None) -> str:
    """Return seconds with four significant digits."""
    return MISSING if value is None else f"{significant(value)} s"


def megabytes(value: float | None) -> str:
    """Return a memory size in MB."""
    return MISSING if value is None else f"{value:,.0f} MB"


def size(value: int | None) -> str:
    """Return bytes with the prefix that leaves one to three integral digits."""
    if value is None:
        return MISSING
    unit, prefixed = pick_unit_and_suffix(value, BYTES, 1000)
    return f"{value:,} B" if unit == 1 else f"{significant(value / unit, 3)} {prefixed}"


def share(value: float | None) -> str:
    """Return a part of one as a percentage."""
    return MISSING if value is None else percent(value, ".2")


def percent(value: float, form: str = ".0") -> str:
    """Return a part of one as a percentage; `form` is the format without its %, such as +.1 for a signed one."""
    return f"{value:{form}%}".replace("%", " %")


def difference(value: float | None) -> str:
    """Return a relative difference as a signed percentage, or as a multiple from 2 times on."""
    if value is None:
        return MISSING
    return f"{significant(1.0 + value, 2)} times" if value >= 1 else percent(value, "+.1")
