"""Intrinsic functions: each with its bounds, the escapes, and texts that are not calls."""

import json
import re
from typing import Any

import pytest

from slslab.statemachines import intrinsics, paths

INPUT: dict[str, Any] = {
    "l": [1, 2, 2, 1.0, True, {"a": 1}, {"a": 1}, [1], [1], None, None, "1"],
    "n": [1, 2, 3, 4, 5],
    "t": "Hello {} {}",
    "s": "a.b,,c",
    "o": {"a": {"x": 1}, "b": 2},
    "p": {"a": {"y": 1}, "c": 3},
    "json": '{"k": [1, null]}',
    "long": "x" * 10_001,
    "most": "x" * 10_000,
    "null": None,
    "f": 1.5,
}
CONTEXT = {"Execution": {"Name": "run"}}


def value(text: str) -> Any:
    """What a call evaluates to."""

    def read(argument: intrinsics.PathArgument) -> Any:
        root, path = paths.split_root(argument.written)
        return paths.parse(path).read({"$": CONTEXT, "x": [7], "": INPUT}[root])

    return intrinsics.evaluate(intrinsics.parse(text), read)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("Array()", []),
        ("Array(1, null, 2)", [1, None, 2]),
        ("Array( 1.5 , -2e3, 'a' , true,false)", [1.5, -2000.0, "a", True, False]),
        ("Array($.n[0], $$.Execution.Name, $x[0], $x)", [1, "run", 7, [7]]),
        ("Array($.o.['a'], $.n[1:3])", [{"x": 1}, [2, 3]]),
        ("Array('\\'', '\\{\\}', '\\\\', '{}', ',)', 'ü')", ["'", "{}", "\\", "{}", ",)", "ü"]),
        ("ArrayPartition($.n, 2)", [[1, 2], [3, 4], [5]]),
        ("ArrayPartition($.n, 1.5)", [[1, 2], [3, 4], [5]]),
        ("ArrayPartition(States.Array(), 4)", []),
        ("ArrayContains($.n, 3)", True),
        ("ArrayContains($.n, '3')", False),
        ("ArrayContains($.n, true)", False),
        ("ArrayContains($.l, $.l[5])", True),
        ("ArrayContains($.l, null)", True),
        ("ArrayRange(1, 9, 2)", [1, 3, 5, 7, 9]),
        ("ArrayRange(9, 1, -4)", [9, 5, 1]),
        ("ArrayRange(5, 1, 1)", []),
        ("ArrayRange(0.5, 2.4, 1)", [1, 2]),
        ("ArrayLength(States.ArrayRange(1, 1000, 1))", 1000),
        ("ArrayGetItem($.n, 4)", 5),
        ("ArrayGetItem($.l, 7)", [1]),
        ("ArrayLength($.n)", 5),
        ("ArrayLength($.nowhere[*])", 0),
        ("ArrayUnique($.l)", [1, 2, True, {"a": 1}, [1], None, "1"]),
        ("ArrayUnique(States.Array(1, true))", [1, True]),
        ("Base64Encode('Data to encode')", "RGF0YSB0byBlbmNvZGU="),
        ("Base64Encode('ü')", "w7w="),
        ("Base64Encode('')", ""),
        ("Base64Decode('RGF0YSB0byBlbmNvZGU=')", "Data to encode"),
        ("Base64Decode('w7w')", "ü"),
        ("Base64Decode(States.Base64Encode($.most))", "absent"),
        ("Hash('input data', 'MD5')", "812f45842bc6d66ee14572ce20db8e86"),
        ("Hash('input data', 'SHA-1')", "aaff4a450a104cd177d28d18d74485e8cae074b7"),
        ("Hash('input data', 'SHA-256')", "b4a697a057313163aee33cd8d40c66e9f0f177e00cac2de32475ffff6169c3e3"),
        ("ArrayLength(States.StringSplit(States.Hash('a', 'SHA-384'), ''))", 1),
        ("JsonMerge($.o, $.p, false)", {"a": {"y": 1}, "b": 2, "c": 3}),
        ("JsonToString($.o)", '{"a":{"x":1},"b":2}'),
        ("JsonToString('ü\\'')", '"ü\'"'),
        ("StringToJson($.json)", {"k": [1, None]}),
        ("StringToJson('\\{\"a\":1\\}')", {"a": 1}),
        ("StringToJson(' ')", None),
        ("StringToJson($.null)", None),
        ("MathAdd(111, -1)", 110),
        ("MathAdd(1.49, 1.5)", 3),
        ("MathAdd(-1.49, -1.5)", -2),
        ("MathAdd(2147483647, -2147483648)", -1),
        ("StringSplit('1,2,3', ',')", ["1", "2", "3"]),
        ("StringSplit('This.is+a,test=string', '.+,=')", ["This", "is", "a", "test", "string"]),
        ("StringSplit($.s, ',.')", ["a", "b", "c"]),
        ("StringSplit(',,', ',')", []),
        ("StringSplit('a-b^c]d', '-^]')", ["a", "b", "c", "d"]),
        ("StringSplit('Hello\nWorld', '\n')", ["Hello", "World"]),
        ("Format('a={}&b={}', 1, 2)", "a=1&b=2"),
        ("Format($.t, 'a', 2)", "Hello a 2"),
        ("Format('it\\'s \\{{}\\} \\\\', $.f)", "it's {1.5} \\"),
        ("Format('{}{}{}', null, true, 1)", "nulltrue1"),
        ("Format('{}', $.o)", "{a={x=1}, b=2}"),
        ("Format('{}', $.n)", "[1, 2, 3, 4, 5]"),
        ("Format('{}', '{}')", "{}"),
        ("Format('{}', States.Format('{}', 1))", "1"),
        ("Format('nothing')", "nothing"),
        ("Format('{0} %s')", "absent"),
    ],
)
def test_what_a_call_evaluates_to(call: str, expected: Any) -> None:
    if expected == "absent":
        with pytest.raises(intrinsics.IntrinsicError):
            value(f"States.{call}")
        return
    found = value(f"States.{call}")
    assert found == expected
    assert repr(found) == repr(expected)


def test_numbers_and_ids_that_differ() -> None:
    drawn = {value("States.MathRandom(1, 3)") for _ in range(200)}
    assert drawn == {1, 2}  # the end is exclusive
    assert value("States.MathRandom(0, 1000000, 3)") == value("States.MathRandom(0, 1000000, 3)")
    assert value("States.MathRandom(1, 2, null)") == 1
    assert value("States.MathRandom(0, 1000000, 3)") != value("States.MathRandom(0, 1000000, 4)")
    assert value("States.UUID()") != value("States.UUID()")
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", value("States.UUID()"))


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("ArrayPartition('a', 1)", "Argument 1 must be an array"),
        ("ArrayPartition($.n, 0)", "The chunk size must be a positive integer"),
        ("ArrayPartition($.n, -1)", "The chunk size must be a positive integer"),
        ("ArrayPartition($.n, true)", "Argument 2 must be an integer"),
        ("ArrayContains(1, 1)", "Argument 1 must be an array"),
        ("ArrayRange(0, 1000000000, 1)", "The array can't have more than 1,000 items"),
        ("ArrayRange(1, 1001, 1)", "The array can't have more than 1,000 items"),
        ("ArrayRange(1000000000, 0, -1)", "The array can't have more than 1,000 items"),
        ("ArrayRange(0, 1, 0)", "The third argument must not be zero"),
        ("ArrayRange(0, 1, 0.4)", "The third argument must not be zero"),
        ("ArrayRange('0', 1, 1)", "Argument 1 must be an integer"),
        ("ArrayGetItem($.n, 1e400)", "The index must be an integer"),
        ("ArrayGetItem($.n, 5)", "The index 5 is outside of the array of length 5"),
        ("ArrayGetItem($.n, -1)", "The index -1 is outside of the array of length 5"),
        ("ArrayGetItem($.n, 1.5)", "The index must be an integer"),
        ("ArrayGetItem($.t, 0)", "Argument 1 must be an array"),
        ("ArrayLength($.t)", "Argument 1 must be an array"),
        ("ArrayUnique($.o)", "Argument 1 must be an array"),
        ("Base64Encode($.long)", "The input can't have more than 10,000 characters"),
        ("Base64Encode(1)", "Argument 1 must be a string"),
        ("Base64Decode($.long)", "The input can't have more than 10,000 characters"),
        ("Base64Decode('a')", "The argument is not Base64"),
        ("Hash($.long, 'MD5')", "The input can't have more than 10,000 characters"),
        ("Hash('a', 'SHA256')", "The algorithm must be one of MD5, SHA-1, SHA-256, SHA-384, SHA-512"),
        ("Hash('a', $.l)", "The algorithm must be one of MD5, SHA-1, SHA-256, SHA-384, SHA-512"),
        (
            "JsonMerge($.o, $.p, true)",
            "The third argument must be false: Step Functions only supports the shallow merging mode",
        ),
        ("JsonMerge($.o, $.l, false)", "Argument 2 must be a JSON object"),
        ("StringToJson('nojson')", "Invalid JSON: Expecting value: line 1 column 1"),
        ("StringToJson(1)", "Argument 1 must be a string"),
        ("MathRandom(1, 1)", "The start number must be less than the end number"),
        ("MathRandom('a', 1)", "Argument 1 must be an integer"),
        ("MathAdd(1, 'a')", "Argument 2 must be an integer"),
        ("MathAdd(1, 1e999)", "Argument 2 must be an integer"),
        ("MathAdd(2147483648, 0)", "The arguments must be integers in the range of -2147483648 and 2147483647"),
        ("StringSplit(1, ',')", "Argument 1 must be a string"),
        ("StringSplit('a', 1)", "Argument 2 must be a string"),
        ("Format('{} {}', 1)", "The template of States.Format has more places than there are values"),
        ("Format('{}', 1, 2)", "The template of States.Format has fewer places than there are values"),
        ("Format('{', 1)", "The template of States.Format has a '{' without a backslash"),
        ("Format('{x}', 1)", "The template of States.Format has a '{' without a backslash"),
        ("Format('{}\\n', 1)", "The escape '\\n' is open"),
        ("Format(1)", "Argument 1 must be a string"),
        ("Array('\\x')", "The escape '\\x' is open"),
    ],
)
def test_why_a_call_fails(call: str, problem: str) -> None:
    with pytest.raises(intrinsics.IntrinsicError) as raised:
        value(f"States.{call}")
    assert str(raised.value).startswith(problem)


def nested(count: int) -> str:
    """A field with this number of calls."""
    return "States.Array(" * count + ")" * count


@pytest.mark.parametrize(
    "text",
    [
        *("", "States.", "States.Nothing()", "states.UUID()", "States.UUID ()", "States.UUID(", "States.UUID())"),
        *(
            "States.UUID(1)",
            "States.Hash('a')",
            "States.MathAdd(1)",
            "States.MathRandom(1, 2, 3, 4)",
            "States.Format()",
        ),
        *("States.Array(,)", "States.Array(1,)", "States.Array(1 2)", "States.Array('a)", 'States.Array("a")'),
        *("States.Array(01)", "States.Array(1.)", "States.Array(nulls)", "States.Array($.a-b)", "States.Array($.)"),
        *("States.Array(UUID())", "States.Array() ", nested(11), nested(5_000), "States.Array($.a[?(@.b)"),
    ],
)
def test_what_is_no_call(text: str) -> None:
    with pytest.raises((paths.PathError, RecursionError)):
        intrinsics.parse(text)


def test_a_field_has_ten_calls_at_most() -> None:
    """The example of AWS's documentation has nine."""
    item = "States.ArrayGetItem(States.StringSplit({}, '{}'), {})"
    first = item.format("$.arn", "/", 2)
    text = f"States.Format('{{}}.{{}}.{{}}', {item.format(first, '.', 0)}, {item.format(first, '.', 1)})"
    text = text.replace("{}.{}.{}", "{}.{}")
    call = intrinsics.parse(text)
    arn = "arn:aws:imagebuilder/image/first.second.third"
    assert intrinsics.evaluate(call, lambda _: arn) == "first.second"
    intrinsics.parse(nested(10))


def test_the_message_of_a_path_that_finds_nothing() -> None:
    for written, message in (
        ("$.nope", "The JsonPath argument for the field '$.nope' could not be found in the input '{\"k\":1}'"),
        ("$$.Nope", "The JsonPath argument for the field '$.Nope' could not be found in the input '{\"k\":1}'"),
        ("$.k[0]", "Filter: [0] can only be applied to arrays. Current context is: 1"),
    ):
        argument = intrinsics.parse(f"States.Array({written})").arguments[0]
        with pytest.raises(paths.NoSuchPath) as raised:
            paths.of_field(argument.written).read({"k": 1})
        assert intrinsics.missing_argument(argument, raised.value, {"k": 1}) == message


@pytest.mark.parametrize(
    "call",
    [
        "States.Array(" + ", ".join(["$.most"] * 101) + ")",
        "States.Format('" + "{}" * 101 + "'" + ", $.most" * 101 + ")",
        "States.ArrayLength(States.Array(" + ", ".join(["$.most"] * 101) + "))",
    ],
)
def test_arguments_have_a_bound_together(call: str) -> None:
    with pytest.raises(intrinsics.IntrinsicError, match="can't have more than 1,000,000 characters"):
        value(call)


def test_the_length_of_a_value_is_known_without_its_text() -> None:
    held: Any = ["x" * 10]
    for _ in range(60):
        held = [held, held]
    assert intrinsics.is_longer(held, 10**6)
    values: list[Any] = ["x" * 10, [1, [2, None]], {"a": {"b": "c"}}, 5, [], [{}] * 100]
    for known in values:
        assert not intrinsics.is_longer(known, len(json.dumps(known, separators=(",", ":"))))
    assert intrinsics.is_longer({"x" * 11: 1}, 11)
    assert intrinsics.is_longer([1] * 11, 10)
