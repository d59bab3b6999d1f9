"""Compare values for a Choice in JSONPath.

documented: https://docs.aws.amazon.com/step-functions/latest/dg/state-choice.html and https://states-language.net
(Choice Rules): a value of a type other than the operator's never matches; in StringMatches only `*` and the backslash
before `*` and a backslash are special; times conform to RFC 3339, with an uppercase T and Z.
"""

import operator
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from slslab.statemachines.filters import is_number

TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII)
RELATIONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "Equals": operator.eq,
    "LessThan": operator.lt,
    "GreaterThan": operator.gt,
    "LessThanEquals": operator.le,
    "GreaterThanEquals": operator.ge,
}
PATTERN = re.compile(r"(?:[^\\]|\\[\\*])*+", re.DOTALL)
# The parts of a pattern, each before a star.
PARTS = re.compile(r"((?:[^\\*]|\\.)*+)\*", re.DOTALL)
RELATION = re.compile(rf"(String|Numeric|Boolean|Timestamp)({'|'.join(RELATIONS)})(?:Path)?")


class OpenEscape(ValueError):
    """A pattern has a backslash that escapes nothing."""


def matches(name: str, value: Any, operand: Any) -> bool:
    """Return whether a value satisfies the operator of this name; OpenEscape for an invalid StringMatches pattern."""
    if name == "StringMatches":
        return isinstance(value, str) and _matches(operand, value)
    if name in TYPES:
        return TYPES[name](value) is operand
    kind, relation = RELATION.fullmatch(name).groups()  # type: ignore[union-attr]
    left, right = COMPARABLE[kind](value), COMPARABLE[kind](operand)
    return left is not None and right is not None and RELATIONS[relation](left, right)


def _matches(pattern: str, text: str) -> bool:
    """Match a pattern part by part: find each part between stars as early as possible, and never try it twice."""
    if PATTERN.fullmatch(pattern) is None:
        raise OpenEscape(f"The pattern {pattern} has an open escape")
    first, *others = (re.sub(r"\\(.)", r"\1", part) for part in PARTS.findall(f"{pattern}*"))
    if not others:
        return text == first
    *middle, last = others
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    position, end = len(first), len(text) - len(last)
    for part in middle:
        position = text.find(part, position, end)
        if position < 0:
            return False
        position += len(part)
    return True


def _string(value: Any) -> bytes | None:
    """Return a text's sort key in Java's order, by UTF-16 units."""
    return value.encode("utf-16-be", "surrogatepass") if isinstance(value, str) else None


def timestamp(value: Any) -> tuple[float, int] | None:
    """Return a time as seconds since the epoch and nanoseconds, or None if it isn't an RFC 3339 timestamp."""
    if not isinstance(value, str) or not (match := TIMESTAMP.fullmatch(value)):
        return None
    try:
        seconds = datetime.fromisoformat(f"{match[1]}T{match[2]}{match[4].replace('Z', '+00:00')}").timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds, int((match[3] or "0").ljust(9, "0"))


COMPARABLE: Mapping[str, Callable[[Any], Any]] = {
    "String": _string,
    "Numeric": lambda value: value if is_number(value) else None,
    "Boolean": lambda value: value if isinstance(value, bool) else None,
    "Timestamp": timestamp,
}
TYPES: Mapping[str, Callable[[Any], bool]] = {
    "IsNull": lambda value: value is None,
    "IsString": lambda value: isinstance(value, str),
    "IsNumeric": is_number,
    "IsBoolean": lambda value: isinstance(value, bool),
    "IsTimestamp": lambda value: timestamp(value) is not None,
}
