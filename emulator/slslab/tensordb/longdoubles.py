"""C's long double, with which Redis computes INCRBYFLOAT and timeouts: read as strtold reads, written as Redis writes.

Its precision is the host's, as Redis's is: 64 bits on x86-64.
"""

import re
from decimal import Decimal, InvalidOperation

import numpy as np

from slslab.tensordb.replies import Blob

LONGEST = 5 * 1024 - 1
DECIMAL = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
HEXADECIMAL = re.compile(rb"[-+]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[-+]?\d+)?", re.IGNORECASE)
INFINITY = re.compile(rb"[-+]?inf(?:inity)?", re.IGNORECASE)
LIMITS = np.finfo(np.longdouble)
MOST, LEAST_NORMAL, LEAST = (Decimal(str(number)) for number in (LIMITS.max, LIMITS.tiny, LIMITS.smallest_subnormal))


def parse(word: Blob) -> np.longdouble:
    """Return the number that a word is; ValueError for what is none, is too large, or is not zero and too small.

    What is nearer to zero than a normal number becomes the least of these, which no reply shows.
    """
    text = bytes(word[: LONGEST + 1])
    if len(text) > LONGEST:
        raise ValueError("too long")
    if INFINITY.fullmatch(text):
        return np.longdouble(text.decode())
    try:
        if HEXADECIMAL.fullmatch(text):
            return np.longdouble(float.fromhex(text.decode()))
        exact = Decimal(text.decode()) if DECIMAL.fullmatch(text) else None
    except (InvalidOperation, OverflowError):
        raise ValueError("out of range") from None
    # Of what is out of range numpy would only warn.
    if exact is None or abs(exact) > MOST or 0 < abs(exact) <= LEAST / 2:
        raise ValueError("no number, or out of range")
    if 0 < abs(exact) < LEAST_NORMAL:
        return -LIMITS.tiny if exact < 0 else LIMITS.tiny
    return np.longdouble(text.decode())


def write(number: np.longdouble) -> bytes:
    """Return a finite number with at most 17 decimals, without zeros at their end."""
    text = np.format_float_positional(number, precision=17, unique=False, trim="-").encode()
    return b"0" if text == b"-0" else text
