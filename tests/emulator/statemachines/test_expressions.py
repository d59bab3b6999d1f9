"""JSONata: values, AWS's own functions, the messages of errors, and what an expression refers to."""

import re
from typing import Any

import pytest

from slslab.statemachines.expressions import QueryError, evaluate, read

INPUT = {"n": None, "items": [1, 2, 3], "amount": 1.0, "body": '{"a": {"b": [1, null]}}'}
RECURSION = "($f := function($x){ $x <= 0 ? 0 : 1 + $f($x-1) }; $f(%s))"
DISTINCT = [1, True, "1", None, {"a": 1}, {"a": True}]
THREW = " threw an error during evaluation"


def value(expression: str) -> Any:
    return evaluate(expression, {"states": {"input": INPUT}, "x": 5, "nothing": None})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 + 2", 3),
        ("$states.input.n", None),
        ("$exists($nothing)", True),
        ("$states.input.amount", 1),
        ("$sum($states.input.items) * $x", 30),
        ("$states.input.items[$ > 1]", [2, 3]),
        ("{'k': $missing, 'l': null}", {"l": None}),
        ("[1..3]", [1, 2, 3]),
        ("[1/0, -1/0, 0/0, 1 % 0]", ["Infinity", "-Infinity", "NaN", "NaN"]),
        ("$partition([1,2,3,4,5], 2.9)", [[1, 2], [3, 4], [5]]),
        ("$partition([1,2,3])", [[1, 2, 3]]),
        ("$range(0, 10, 2)", [0, 2, 4, 6, 8, 10]),
        ("$range(10, 0, -2)", [10, 8, 6, 4, 2, 0]),
        ("$range(-1.7, 2, 1)", [-1, 0, 1, 2]),
        ("$range(3, 3, 1)", 3),
        ("$count($range(1, 360145, 1))", 360145),
        ("$hash('Hello', 'MD5')", "8b1a9953c4611296a827abf8c47804d7"),
        ("$hash('Hello', 'SHA-1')", "f7ff9e8b7bb2e09b70935a5d785e0cc5d9d0abf0"),
        ("$hash('ñ', 'MD5')", "94e9342ecbb1458b6043ecd3bfcbc192"),
        ("$string(1e20)", "100000000000000000000"),
        ("'' & 123456789012345680000", "123456789012346000000"),
        ("$string([1e21, -1e-7, 0.1 + 0.2, 1/3, 100, 1.0])", "[1e+21,-1e-7,0.3,0.333333333333333,100,1]"),
        ("$string({'a': [null, true, 'é\"', $sum, []]})", '{"a":[null,true,"é\\"","",[]]}'),
        ("$string({'a': [1], 'b': {}}, true)", '{\n  "a": [\n    1\n  ],\n  "b": {}\n}'),
        ("$string($sum)", ""),
        ("$count([1..874000])", 874_000),
        ("$random(42)", 0.7275636800328681),
        ("$random(0.9)", 0.730967787376657),
        ("$random() = $random()", False),
        ("$uuid() = $uuid()", False),
        ("$parse($states.input.body).a.b[0]", 1),
        ("$parse('9223372036854775808')", 9.223372036854776e18),
        ("$map(['{\"a\":1}', '{\"a\":2}'], $parse).a", [1, 2]),
        ("$distinct([1, true, '1', 1.0, null, null, {'a': 1}, {'a': true}, {'a': 1}])", DISTINCT),
        ("$distinct([2, 2])", [2]),
        ("[1 in [true], true in [1, 0], 1 in 1.0, null in [null], [1] in [[true]]]", [False, False, True, True, False]),
        (
            "[$number('-1.5e3'), $number('0x1F'), $number('0b101'), $number(true), ['7'].$number()]",
            [-1500, 31, 5, 1, 7],
        ),
        (RECURSION % 31, 31),
        ("1" + "+1" * 99, 100),
    ],
)
def test_s16_values(expression: str, expected: Any) -> None:
    found = value(expression)
    assert found == expected
    assert type(found) is type(expected)


def test_s16_a_uuid_is_one_of_version_4() -> None:
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", value("$uuid()"))


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("$states.input.missing", " returned nothing (undefined)."),
        ("$partition([], 2)", " returned nothing (undefined)."),
        ("$range(5, 1, 1)", " returned nothing (undefined)."),
        ("$hash('a')", " returned nothing (undefined)."),
        ("$parse()", " returned nothing (undefined)."),
        ("$length", " returned an unsupported result type."),
        ("$sum(['a'])", f'{THREW}. T0412: Argument 1 of function "sum" must be an array of "numbers"'),
        ("$sqrt(-1)", f"{THREW}. D3060: The sqrt function cannot be applied to a negative number: -1"),
        ("1 + {}", f'{THREW}. T2002: The right side of the "+" operator must evaluate to a number'),
        ("$number('1_000')", f'{THREW}. D3030: Unable to cast value to a number: "1_000"'),
        ("$number('nan')", f'{THREW}. D3030: Unable to cast value to a number: "nan"'),
        ("$number('1e999')", f'{THREW}. D3030: Unable to cast value to a number: "1e999"'),
        ("$power(10, 400)", f"{THREW}: A function can't be applied to these values"),
        ("$sort([1, 'a'])", f"{THREW}: A function can't be applied to these values"),
        ("$toMillis('nope')", f"{THREW}: A function can't be applied to these values"),
        ("$fromMillis(1e20)", f"{THREW}: A function can't be applied to these values"),
        ("$eval('1')", f"{THREW}. T1006: Attempted to invoke a non-function"),
        ("$nobody(1)", f"{THREW}. T1006: Attempted to invoke a non-function"),
        ("$partition([1], -1)", f"{THREW}. D3137: Second argument must be zero or greater"),
        ("$parse(null)", f'{THREW}. T0410: Argument 1 of function "parse" does not match function signature'),
        ("$uuid('x')", f'{THREW}. T0410: Argument 1 of function "uuid" does not match function signature'),
        (
            "$sum([1..9999999])",
            f"{THREW}: Expression evaluation memory limit exceeded: Check for excessive memory usage",
        ),
        (
            "$range(1, 360146, 1)",
            f"{THREW}: Expression evaluation memory limit exceeded: Check for excessive memory usage",
        ),
        (
            RECURSION % 32,
            f"{THREW}: Stack overflow error: Check for non-terminating recursive function. Consider rewriting as "
            "tail-recursive",
        ),
    ],
)
def test_s16_problems(expression: str, problem: str) -> None:
    with pytest.raises(QueryError) as raised:
        value(expression)
    assert str(raised.value) == problem


def test_s16_an_endless_expression_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slslab.statemachines.expressions.TIMEOUT_MS", 50)
    with pytest.raises(QueryError, match="Expression evaluation timeout: Check for infinite loop"):
        value("($f := function($x){ $f($x+1) }; $f(1))")


def test_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The process tells its parent by standard output where it is."""
    with pytest.raises(QueryError):
        value("$nobody(1)")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("expression", "states", "context"),
    [
        ("$x + $states.input.y.z", {"input"}, []),
        ("($y := 1; $map($list, function($v){ $v.b + $y }))", set(), []),
        ("foo.bar[baz = 1] & $$.a", set(), ["foo", "$$"]),
        ("$states.errorOutput.Error", {"errorOutput"}, []),
        ("$count($states.input.v[x > 1])", {"input"}, []),
    ],
)
def test_what_an_expression_refers_to(expression: str, states: set[str], context: list[str]) -> None:
    assert read(expression) == (states, context)
