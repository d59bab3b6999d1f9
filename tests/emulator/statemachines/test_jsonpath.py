"""Whole states in JSONPath: where paths, intrinsic functions and comparisons stand, and AWS's causes."""

import json
import threading
import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from tests.emulator.statemachines.here import create, failure, finish, machines, output
from tests.emulator.statemachines.test_fields import found
from tests.emulator.statemachines.written import ARN, ROLE, Definition, chain

from slslab.aws.errors import ServiceError
from slslab.statemachines import executions
from slslab.statemachines.api import OPERATIONS, StatesApi
from slslab.statemachines.interpreter import parse

DOCUMENT: dict[str, Any] = {"l": [{"a": 1, "d": [1, 2]}], "t": "x", "n": None, "path": "$.t"}
PASS: Definition = {"Type": "Pass"}
NO_VALUE = "The value for the field 'v.$' must be a valid JSONPath or a valid intrinsic function call"
INNER = {"StartAt": "M", "States": {"M": {**PASS, "End": True}}}


def sampled(expression: str) -> Definition:
    """A machine that returns an expression's value as `v`."""
    return chain({**PASS, "Parameters": {"v.$": expression}})


def chosen(rule: Definition, document: Any = DOCUMENT) -> bool:
    """Whether a Choice takes this rule."""
    choice = {"Type": "Choice", "Choices": [{**rule, "Next": "Yes"}], "Default": "No"}
    ends = {name: {**PASS, "Result": name, "End": True} for name in ("Yes", "No")}
    return bool(output({"StartAt": "C", "States": {"C": choice, **ends}}, document) == "Yes")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("$.l[0].a", 1),
        ("$.l[*].a", [1]),
        ("$.l[1]", None),  # measured, in others' recordings
        ("$$.Execution.Input.l[0].a", 1),
        ("$$['Execution']['Input'].l[-1].a", 1),
        ("States.Format('{} {}', $.l[0].a, $$.Execution.Input.t)", "1 x"),
        ("States.ArrayLength($.l[?(@.a == 1)])", 1),
        ("States.StringToJson(States.JsonToString($.l[0]))", DOCUMENT["l"][0]),
    ],
)
def test_paths_and_calls_in_parameters(expression: str, expected: Any) -> None:
    assert output(sampled(expression), DOCUMENT) == {"v": expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"States.Format('a={}\u0026b={}', 1, 2)", "a=1&b=2"),
        (r"States.Format('\u003c{}\u003e \u00fc\ud83d\ude00', $.t)", "<x> ü😀"),
        (r"States.Format('\"{}\"\n\t\/', 1)", '"1"\n\t/'),
        (r"States.Format('it\\'s \\{{}\\} \\\\', 1)", "it's {1} \\"),
        (r"States.StringSplit('a\nb', '\n')", ["a", "b"]),
        (r"$.l[?(@.a \u003e 0)].a", [1]),
    ],
)
def test_the_escapes_of_json_come_first(text: str, expected: Any) -> None:
    written = json.dumps(sampled("$.l")).replace('"$.l"', f'"{text}"')
    known = machines()
    machine = create(known, "escaped", written)
    execution = finish(known.start(machine.arn, None, json.dumps(DOCUMENT)))
    assert json.loads(execution.ending()["output"]) == {"v": expected}


@pytest.mark.parametrize("field", ["ErrorPath", "CausePath"])
@pytest.mark.parametrize("value", [1, None, ["x"]])
def test_a_fail_needs_texts(field: str, value: Any) -> None:
    told = json.dumps(value)
    expected = ("States.Runtime", f"Expected string for {field}, got {told} instead.")
    assert failure(chain({"Type": "Fail", field: "$.v"}), {"v": value}) == expected


@pytest.mark.parametrize("zone", ["UTC", "UTC+9", "UTC-9"])
@pytest.mark.parametrize("field", ["Timestamp", "TimestampPath"])
def test_a_wait_ends_at_its_time_in_any_time_zone(monkeypatch: pytest.MonkeyPatch, zone: str, field: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    end = datetime.now(timezone(timedelta(hours=2))) + timedelta(seconds=0.3)
    text = end.isoformat(timespec="milliseconds")
    wait = {"Type": "Wait", field: text if field == "Timestamp" else "$.l[0]"}
    begun = time.monotonic()
    assert output(chain(wait), {"l": [text]}) == {"l": [text]}
    assert datetime.now(end.tzinfo) >= end - timedelta(milliseconds=1)
    assert time.monotonic() - begun < 10
    monkeypatch.undo()
    time.tzset()


def test_paths_in_all_other_fields() -> None:
    assert output(chain({**PASS, "InputPath": "$.l[0].d"}), DOCUMENT) == [1, 2]
    assert output(chain({**PASS, "OutputPath": "$.l[*].a"}), DOCUMENT) == [1]
    assert output(chain({**PASS, "InputPath": "$$.Execution.Input.t"}), DOCUMENT) == "x"
    assert output(chain({"Type": "Map", "ItemsPath": "$.l[0].d", "ItemProcessor": INNER}), DOCUMENT) == [1, 2]
    assert output(chain({"Type": "Wait", "SecondsPath": "$.l[0].s"}), {"l": [{"s": 0}]}) == {"l": [{"s": 0}]}
    written = chain({**PASS, "Result": 9, "ResultPath": "$.l[0]['b'].c"})
    assert output(written, DOCUMENT)["l"][0] == {**DOCUMENT["l"][0], "b": {"c": 9}}
    assigned = chain({**PASS, "Assign": {"x.$": "$.l"}}, {**PASS, "Parameters": {"v.$": "States.Array($x[0].a, $x)"}})
    assert output(assigned, DOCUMENT) == {"v": [1, DOCUMENT["l"]]}
    selected = {"Type": "Map", "ItemsPath": "$.l[0].d", "ItemProcessor": INNER}
    selected["ItemSelector"] = {"i.$": "$$.Map.Item.Index", "v.$": "States.MathAdd($$.Map.Item.Value, $.l[0].a)"}
    assert output(chain(selected), DOCUMENT) == [{"i": 0, "v": 2}, {"i": 1, "v": 3}]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"Variable": "$.l[0].a", "NumericEquals": 1}, True),
        ({"Variable": "$.l[0].a", "NumericGreaterThan": 1}, False),
        ({"Variable": "$.l[1]", "IsPresent": True}, False),
        ({"Variable": "$.l[0].a.b", "IsPresent": False}, True),
        ({"Variable": "$.n", "IsPresent": True}, True),
        ({"Variable": "$.n", "IsNull": True}, True),
        ({"Variable": "$nowhere", "IsPresent": True}, False),
        ({"Variable": "$$.Execution.Input.t", "StringEquals": "x"}, True),
        ({"Variable": "$.t", "StringEqualsPath": "$$.Execution.Input.t"}, True),
        ({"Variable": "$.path", "StringEquals": "$.t"}, True),
        ({"Variable": "$.path", "StringEquals": "$x"}, False),
        ({"Variable": "$.l[0].a", "NumericLessThanPath": "$.l[0].d[1]"}, True),
        ({"Variable": "$.t", "StringMatches": "[x]"}, False),
        ({"Not": {"Variable": "$.t", "StringEquals": "y", "Comment": "why"}}, True),
        ({"And": [{"Variable": "$.t", "IsString": True}, {"Not": {"Variable": "$.n", "IsString": True}}]}, True),
        ({"Or": [{"Variable": "$.t", "IsNull": True}, {"Variable": "$.t", "IsString": True, "Comment": "c"}]}, True),
    ],
)
def test_rules_of_a_choice(rule: Definition, expected: bool) -> None:
    assert chosen(rule) is expected


@pytest.mark.parametrize(("value", "expected"), [(4, "Yes"), (6, "No")])
def test_a_variable_on_the_right_side_of_a_comparison(value: int, expected: str) -> None:
    choice = {"Type": "Choice", "Choices": [{"Variable": "$.a", "NumericLessThanPath": "$x", "Next": "Yes"}]}
    ends = {name: {**PASS, "Result": name, "End": True} for name in ("Yes", "No")}
    first = {**PASS, "Assign": {"x": 5}, "Next": "C"}
    machine = {"StartAt": "P", "States": {"P": first, "C": {**choice, "Default": "No"}, **ends}}
    assert output(machine, {"a": value}) == expected


@pytest.mark.parametrize(
    ("state", "error", "cause"),
    [
        (
            {**PASS, "Parameters": {"v.$": "$.l[1].a"}},
            "States.Runtime",
            "The JSONPath '$.l[1].a' specified for the field 'v.$' could not be found in the input '{\"l\":[1]}'",
        ),
        ({**PASS, "InputPath": "$.a.b"}, "States.Runtime", "Invalid path '$.a.b' : Missing property in path $['a']"),
        ({**PASS, "InputPath": "$.l[1]"}, "States.Runtime", "Invalid path '$.l[1]' : No results for path: $['l'][1]"),
        ({**PASS, "OutputPath": "$.a"}, "States.Runtime", "Invalid path '$.a' : No results for path: $['a']"),
        (
            {**PASS, "Result": 1, "ResultPath": "$.l.a"},
            "States.ResultPathMatchFailure",
            'Unable to apply ReferencePath $.l.a to input {"l":[1]}',
        ),
        (
            {**PASS, "Parameters": {"v.$": "States.Format('{}', States.Array($.nope))"}},
            "States.Runtime",
            "The function 'States.Format('{}', States.Array($.nope))' had the following error: The JsonPath argument "
            "for the field '$.nope' could not be found in the input '{\"l\":[1]}'",
        ),
        (
            {**PASS, "Parameters": {"v.$": "States.ArrayRange(0, 1000000000, 1)"}},
            "States.IntrinsicFailure",
            "The function 'States.ArrayRange(0, 1000000000, 1)' had the following error: The array can't have more "
            "than 1,000 items",
        ),
        ({"Type": "Map", "ItemProcessor": INNER}, "States.Runtime", 'Reference path "$" must point to array.'),
        (
            {"Type": "Map", "ItemsPath": "$.l[0]", "ItemProcessor": INNER},
            "States.Runtime",
            'Reference path "$.l[0]" must point to array.',
        ),
        (
            {"Type": "Task", "Resource": ARN + "x", "TimeoutSecondsPath": "$.t.u"},
            "States.Runtime",
            "Invalid path '$.t.u' : Missing property in path $['t']",
        ),
        (
            {"Type": "Task", "Resource": ARN + "x", "TimeoutSecondsPath": "$.l"},
            "States.Runtime",
            "Expected positive integer for TimeoutSecondsPath, got '[1]' instead.",
        ),
        (
            {"Type": "Map", "ItemsPath": "$.l", "MaxConcurrencyPath": "$.l", "ItemProcessor": INNER},
            "States.Runtime",
            'The MaxConcurrencyPath field refers to value "[1]" which is not a valid integer: $.l',
        ),
    ],
)
def test_causes(state: Definition, error: str, cause: str) -> None:
    assert failure(chain(state), {"l": [1]}) == (error, cause)


def test_an_index_beyond_the_end_is_null_in_the_input_and_fails_in_a_variable() -> None:
    first = {**PASS, "Assign": {"x.$": "$"}}
    assert output(chain(first, {**PASS, "Parameters": {"v.$": "$.l[9]"}}), {"l": [1]}) == {"v": None}
    assert failure(chain(first, {**PASS, "Parameters": {"v.$": "$x.l[9]"}}), {"l": [1]}) == (
        "States.Runtime",
        "The JSONPath '$.l[9]' specified for the field 'v.$' could not be found in the input '{\"l\":[1]}'",
    )


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        ({"Variable": "$.no", "NumericEquals": 1}, "Invalid path '$.no'"),
        ({"Variable": "$.no", "IsNull": True}, "Invalid path '$.no'"),
        ({"Variable": "$.t", "StringEqualsPath": "$.no"}, "Invalid path '$.no'"),
        ({"Variable": "$$.No", "StringEquals": "a"}, "Invalid path '$$.No'"),
    ],
)
def test_a_comparison_of_nothing_fails(rule: Definition, cause: str) -> None:
    choice = {"Type": "Choice", "Choices": [{**rule, "Next": "S1"}], "Default": "S1"}
    expected = f"{cause}: The choice state's condition path references an invalid value."
    assert failure(chain(choice, PASS), DOCUMENT) == ("States.Runtime", expected)


def test_an_open_escape_of_a_pattern_fails() -> None:
    choice = {"Type": "Choice", "Choices": [{"Variable": "$.t", "StringMatches": r"\x", "Next": "S1"}], "Default": "S1"}
    assert failure(chain(choice, PASS), DOCUMENT) == ("States.Runtime", r"The pattern \x has an open escape")


def test_a_fail_state_calls_functions() -> None:
    fail = {"Type": "Fail", "CausePath": "States.Format('{}!', $.l[0])", "ErrorPath": "$.e"}
    assert failure(chain(fail), {"l": ["why"], "e": "Mine"}) == ("Mine", "why!")
    [problem] = found(chain({"Type": "Fail", "CausePath": "States.ArrayLength($.l)"}))
    assert problem == "Value must be a valid JSONPath. at /States/S0/CausePath"


def test_failures_of_a_function_are_caught_by_their_name() -> None:
    catch = [{"ErrorEquals": ["States.IntrinsicFailure"], "Next": "S1", "ResultPath": "$.told"}]
    task = {"Type": "Task", "Resource": ARN + "x", "Parameters": {"v.$": "States.ArrayGetItem($.l, 5)"}, "Catch": catch}
    assert output(chain(task, PASS), {"l": [1]})["told"]["Error"] == "States.IntrinsicFailure"


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({**PASS, "InputPath": "$.a["}, "Value must be a valid JSONPath. at /States/S0/InputPath"),
        ({**PASS, "ResultPath": "$.a[*]"}, "Value is not a Reference Path: $.a[*] can lead to more than one node"),
        ({**PASS, "ResultPath": "$$.a"}, "Value is not a Reference Path: ResultPath must lead into the state's input"),
        ({**PASS, "ResultPath": "$x"}, "Value is not a Reference Path: ResultPath must lead into the state's input"),
        ({"Type": "Map", "ItemsPath": "$..a", "ItemProcessor": INNER}, "Value is not a Reference Path: $..a can lead"),
        ({**PASS, "Parameters": {"v.$": "$.a[1:2:3]"}}, NO_VALUE),
        ({**PASS, "Parameters": {"v.$": "States.No()"}}, NO_VALUE),
        ({**PASS, "Parameters": {"v.$": "States.UUID() "}}, NO_VALUE),
        ({**PASS, "Assign": {"v.$": "States.Hash('a')"}}, NO_VALUE),
    ],
)
def test_what_is_refused(state: Definition, problem: str) -> None:
    [told] = found(chain(state))
    assert told.startswith(problem)


def test_what_is_refused_in_a_choice() -> None:
    for rule in ({"Variable": "$.a[", "IsNull": True}, {"Variable": "$.a", "StringEqualsPath": "$["}):
        choice = {"Type": "Choice", "Choices": [{**rule, "Next": "S1"}]}
        [told] = found(chain(choice, PASS))
        assert told.startswith("Value is not a Reference Path: could not be parsed at /States/S0/Choices[0]/")


def deep(depth: int) -> str:
    """A definition with a Result of this depth."""
    return json.dumps(chain({**PASS, "Result": "deep"})).replace('"deep"', "[" * depth + "]" * depth)


def test_a_deep_definition_runs() -> None:
    known = machines()
    machine = create(known, "deep", deep(400))
    assert finish(known.start(machine.arn, None, "{}")).status == "SUCCEEDED"


def test_a_definition_that_is_too_deep_is_refused() -> None:
    """Python recurses less deeply than AWS's parser."""
    with pytest.raises(ServiceError) as raised:
        create(machines(), "deep", deep(9_000))
    assert raised.value.message.endswith("The definition is nested too deeply for slslab'")


def test_a_deep_input_is_evaluated() -> None:
    document: Any = 1
    for _ in range(900):
        document = [document]
    assert output(sampled("States.ArrayContains($, $[0])"), document) == {"v": True}
    assert output(sampled("States.JsonToString($)"), document)["v"].startswith("[[[")


def test_a_scan_that_repeats_its_input_too_often_fails() -> None:
    document: Any = {}
    for _ in range(900):
        document = {"d": document}
    error, cause = failure(sampled("$..d"), document)
    assert error == "States.DataLimitExceeded"
    assert cause.endswith("returned a result with a size exceeding the maximum number of bytes service limit.")


def test_the_limit_of_a_result_counts_a_texts_quotes_and_escapes() -> None:
    assert output(chain({"Type": "Pass", "Result": '"' * 131_071})) == '"' * 131_071
    error, _ = failure(chain({"Type": "Pass", "Result": '"' * 131_072}))
    assert error == "States.DataLimitExceeded"


def test_a_function_that_repeats_its_input_too_often_fails() -> None:
    error, _ = failure(sampled("States.Array(" + ", ".join(["$.d"] * 9) + ")"), {"d": "x" * 50_000})
    assert error == "States.DataLimitExceeded"


def test_others_go_on_while_a_definition_is_parsed_and_a_program_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    known, reached, go_on = machines(), threading.Barrier(2), threading.Event()

    def slowly(function: Any) -> Any:
        def called(*arguments: Any) -> Any:
            reached.wait(30)
            assert go_on.wait(30)
            return function(*arguments)

        return called

    monkeypatch.setattr(executions, "parse", slowly(parse))
    members = {"name": "slow", "definition": json.dumps(chain(PASS)), "roleArn": ROLE}
    creating = threading.Thread(target=OPERATIONS["CreateStateMachine"], args=(StatesApi(known), members))
    creating.start()
    reached.wait(30)
    assert known.executions() == []
    go_on.set()
    creating.join(30)
    go_on.clear()
    monkeypatch.setattr(executions, "Execution", slowly(executions.Execution))
    [machine] = known.registry.machines()
    starting = threading.Thread(target=known.start, args=(machine.arn, "e", "{}"))
    starting.start()
    reached.wait(30)
    assert known.executions() == []
    go_on.set()
    starting.join(30)
    [execution] = known.executions()
    assert finish(execution).status == "SUCCEEDED"
