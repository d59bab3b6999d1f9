"""C's long double, with which Redis computes INCRBYFLOAT and timeouts: x86-64's, of 80 bits.

A finite number is a Fraction, which is exact; an infinite one is None.
"""

import re
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction

from slslab.tensordb.replies import Blob

LONGEST = 5 * 1024 - 1
DECIMAL = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
HEXADECIMAL = re.compile(rb"[-+]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[-+]?\d+)?", re.IGNORECASE)
INFINITY = re.compile(rb"[-+]?inf(?:inity)?", re.IGNORECASE)
# Bits of the significand, and the exponents of the least normal number and of the first that is too large.
PRECISION, LEAST, MOST = 64, -16382, 16384
# What is beyond these powers of ten is certainly out of range, and may be too long to be made a Fraction.
POWERS = range(-10_000, 10_000)
DECIMALS = 17
LONG = Context(prec=LONGEST)


def parse(word: Blob) -> Fraction | None:
    """Return the number that a word is; ValueError for what is none, is too large, or is not zero and too small."""
    text = bytes(word[: LONGEST + 1])
    if len(text) > LONGEST:
        raise ValueError("too long")
    if INFINITY.fullmatch(text):
        return None
    try:
        if HEXADECIMAL.fullmatch(text):
            return Fraction(float.fromhex(text.decode()))
        exact = Decimal(text.decode()) if DECIMAL.fullmatch(text) else None
    except (InvalidOperation, OverflowError):
        raise ValueError("out of range") from None
    if exact is None or (exact and exact.adjusted() not in POWERS):
        raise ValueError("no number, or out of range")
    number = rounded(Fraction(exact or 0))
    if number is None or (exact and not number):
        raise ValueError("out of range")
    return number


def rounded(exact: Fraction) -> Fraction | None:
    """Return the nearest long double, of two that are as near the even one; None if it is too large."""
    size = abs(exact)
    # 2 ** exponent <= size, or one more; the check below finds which.
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, LEAST) - PRECISION + 1)
    nearest = round(exact / unit) * unit
    return None if abs(nearest) >= 2**MOST else nearest


def write(number: Fraction) -> bytes:
    """Return a number with at most 17 decimals, without zeros at their end."""
    text = f"{Decimal(round(number * 10**DECIMALS)).scaleb(-DECIMALS, LONG):f}"
    return text.rstrip("0").rstrip(".").encode()
