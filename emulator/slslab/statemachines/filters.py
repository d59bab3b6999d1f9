"""Compare values in a JSONPath filter like Jayway's library."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from slslab.statemachines.bounded import matches

SEPARATORS = (",", ":")


def compact(value: Any) -> str:
    """Return JSON like AWS's: without white space, and without escaping non-ASCII characters."""
    return json.dumps(value, ensure_ascii=False, separators=SEPARATORS)


def is_number(value: Any) -> bool:
    """Return whether a value is a JSON number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(left: Any, right: Any) -> bool:
    """Return whether two values are the same JSON: true isn't 1."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[name]) for name, value in left.items())
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _equal(left: Any, right: Any) -> bool:
    """Compare like `==`: a text equals the number that it spells."""
    if isinstance(left, str) and is_number(right):
        return left == json.dumps(right)
    if isinstance(right, str) and is_number(left):
        return right == json.dumps(left)
    return same(left, right)


def _ordered(left: Any, right: Any, compare: Callable[[Any, Any], bool]) -> bool:
    comparable = (is_number(left) and is_number(right)) or (isinstance(left, str) and isinstance(right, str))
    return comparable and compare(left, right)


def _holds(values: Any, value: Any) -> bool:
    return isinstance(values, list) and any(_equal(value, entry) for entry in values)


def _contains(left: Any, right: Any) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return right in left
    return _holds(left, right)


def _lists(left: Any, right: Any) -> bool:
    return isinstance(left, list) and isinstance(right, list)


def _matches(left: Any, right: Any) -> bool:
    return isinstance(left, str) and isinstance(right, re.Pattern) and matches(right, left)


OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "===": same,
    "!==": lambda left, right: not same(left, right),
    "<": lambda left, right: _ordered(left, right, lambda a, b: a < b),
    "<=": lambda left, right: _ordered(left, right, lambda a, b: a <= b),
    ">": lambda left, right: _ordered(left, right, lambda a, b: a > b),
    ">=": lambda left, right: _ordered(left, right, lambda a, b: a >= b),
    "=~": _matches,
    "in": lambda left, right: _holds(right, left),
    "nin": lambda left, right: not _holds(right, left),
    "contains": _contains,
    "subsetof": lambda left, right: _lists(left, right) and all(_holds(right, entry) for entry in left),
    "all": lambda left, right: _lists(left, right) and all(_holds(left, entry) for entry in right),
    "anyof": lambda left, right: _lists(left, right) and any(_holds(right, entry) for entry in left),
    "noneof": lambda left, right: _lists(left, right) and not any(_holds(right, entry) for entry in left),
    "size": lambda left, right: isinstance(left, str | list) and is_number(right) and len(left) == right,
    "empty": lambda left, right: isinstance(left, str | list) and isinstance(right, bool) and (not left) == right,
}
