"""Comparisons of a Choice: every operator, values of another type, and patterns."""

import time
from typing import Any

import pytest

from slslab.statemachines.comparisons import OpenEscape, matches
from slslab.statemachines.fields import OPERATORS

NOON = "2016-08-18T12:00:00Z"
LATER = "2016-08-18T12:00:00.001Z"


@pytest.mark.parametrize(
    ("kind", "less", "more"),
    [
        ("String", "a", "b"),
        ("String", "\U0001f600", "\uffee"),  # by UTF-16 units, as Java orders them
        ("Numeric", 1, 1.5),
        ("Numeric", -(10**30), 10**30),
        ("Timestamp", NOON, LATER),
        ("Timestamp", "2016-08-18T12:00:00+01:00", NOON),
    ],
)
def test_relations(kind: str, less: Any, more: Any) -> None:
    for path in ("", "Path"):
        for relation, results in (
            ("Equals", (False, True, False)),
            ("LessThan", (True, False, False)),
            ("LessThanEquals", (True, True, False)),
            ("GreaterThan", (False, False, True)),
            ("GreaterThanEquals", (False, True, True)),
        ):
            name = f"{kind}{relation}{path}"
            assert name in OPERATORS
            assert (matches(name, less, more), matches(name, less, less), matches(name, more, less)) == results


@pytest.mark.parametrize(
    ("name", "value", "operand", "expected"),
    [
        ("NumericEquals", 1, 1.0, True),
        ("NumericEquals", True, 1, False),
        ("NumericEquals", "1", 1, False),
        ("NumericEquals", [1], 1, False),
        ("NumericEqualsPath", 1, "1", False),
        ("NumericLessThanPath", 1, None, False),
        ("StringEquals", 1, "1", False),
        ("StringEqualsPath", "a", 1, False),
        ("BooleanEquals", True, True, True),
        ("BooleanEquals", False, True, False),
        ("BooleanEquals", 1, True, False),
        ("BooleanEqualsPath", True, "true", False),
        ("TimestampEquals", NOON, "2016-08-18T13:00:00+01:00", True),
        ("TimestampEquals", "2016-08-18", NOON, False),
        ("IsNull", None, True, True),
        ("IsNull", 0, True, False),
        ("IsNull", 0, False, True),
        ("IsString", "", True, True),
        ("IsString", 1, True, False),
        ("IsNumeric", 1.5, True, True),
        ("IsNumeric", True, True, False),
        ("IsBoolean", False, True, True),
        ("IsBoolean", None, False, True),
        ("IsTimestamp", NOON, True, True),
        ("IsTimestamp", LATER, True, True),
        ("IsTimestamp", "2016-08-18T12:00:00+01:00", True, True),
        ("IsTimestamp", "2016-08-18t12:00:00Z", True, False),
        ("IsTimestamp", "2016-08-18T12:00:00z", True, False),
        ("IsTimestamp", "2016-08-18T12:00:00", True, False),
        ("IsTimestamp", "2016-08-18T12:00Z", True, False),
        ("IsTimestamp", "2016-13-18T12:00:00Z", True, False),
        ("IsTimestamp", "2016-08-18T12:00:00+0100", True, False),
        ("IsTimestamp", 1, True, False),
    ],
)
def test_operators(name: str, value: Any, operand: Any, expected: bool) -> None:
    assert name in OPERATORS
    assert matches(name, value, operand) is expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("*", "", True),
        ("log-*.txt", "log-1.txt", True),
        ("log-*.txt", "log-.txt", True),
        ("log-*.txt", "log-1.txt\n", False),
        (r"log-\*.txt", "log-*.txt", True),
        (r"log-\*.txt", "log-1.txt", False),
        (r"a\\b", "a\\b", True),
        (r"a\\*", "a\\bc", True),
        ("?", "a", False),
        ("?", "?", True),
        ("[ab]", "a", False),
        ("[ab]*", "[ab]c", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("*b*c*", "abc", True),
        ("*b*c*", "acb", False),
        ("a*b", "a\nb", True),
        ("", "", True),
        ("", "a", False),
        ("*" * 1000 + "b", "a" * 10_000, False),
        ("*", 1, False),
        ("*", None, False),
    ],
)
def test_only_a_star_is_special_in_a_pattern(pattern: str, text: Any, expected: bool) -> None:
    assert matches("StringMatches", text, pattern) is expected


def test_a_pattern_as_long_as_a_definition_takes_little_time() -> None:
    began = time.process_time()
    assert matches("StringMatches", "a" * 500_000, "*a" * 500_000)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("pattern", ["a\\", r"\a", r"*\?"])
def test_an_open_escape_fails(pattern: str) -> None:
    with pytest.raises(OpenEscape):
        matches("StringMatches", "a", pattern)
