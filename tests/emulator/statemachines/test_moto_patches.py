"""How states are evaluated and what their history tells: variables, JSONata, errors; each test has a row's number."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.emulator.statemachines.written import (
    ARN,
    INVOKE,
    ROLE,
    Definition,
    answer,
    chain,
    create,
    ended,
    kinds,
    run,
    start,
    told,
)

from slslab.lambda_.emulator import Emulator
from slslab.testing import create_function

pytestmark = pytest.mark.server

ECHO = """
    def handler(event, context):
        return event
"""
ALL = [{"ErrorEquals": ["States.ALL"], "Next": "S1"}]
SHOWN = {"truncated": False}
ENTRY = "An error occurred while executing the state 'S0' (entered at the event id #2). "
PASS: Definition = {"Type": "Pass"}


@pytest.fixture(scope="module", autouse=True)
def echo(emulator: Emulator) -> Iterator[None]:
    """The function `echo`."""
    with closing(emulator.client("lambda")) as client:
        create_function(client, "echo", ECHO)
        yield


def entered(number: int, previous: int, kind: str, name: str, text: str) -> dict[str, Any]:
    """The event of a state's entry."""
    details = {"name": name, "input": text, "inputDetails": SHOWN}
    return {
        "id": number,
        "previousEventId": previous,
        "type": f"{kind}StateEntered",
        "stateEnteredEventDetails": details,
    }


def exited(number: int, kind: str, name: str, text: str, **assigned: str) -> dict[str, Any]:
    """The event of a state's exit, after the event before it."""
    details: dict[str, Any] = {"name": name, "output": text, "outputDetails": SHOWN}
    if assigned:
        details |= {"assignedVariables": assigned, "assignedVariablesDetails": SHOWN}
    return {
        "id": number,
        "previousEventId": number - 1,
        "type": f"{kind}StateExited",
        "stateExitedEventDetails": details,
    }


def began(text: str) -> dict[str, Any]:
    """The event of an execution's start."""
    details = {"input": text, "inputDetails": SHOWN, "roleArn": ROLE}
    return {"id": 1, "previousEventId": 0, "type": "ExecutionStarted", "executionStartedEventDetails": details}


def succeeded(number: int, text: str) -> dict[str, Any]:
    """The event of an execution's success."""
    details = {"output": text, "outputDetails": SHOWN}
    return {
        "id": number,
        "previousEventId": number - 1,
        "type": "ExecutionSucceeded",
        "executionSucceededEventDetails": details,
    }


def failed(number: int, previous: int, **details: str) -> dict[str, Any]:
    """The event of an execution's failure."""
    return {
        "id": number,
        "previousEventId": previous,
        "type": "ExecutionFailed",
        "executionFailedEventDetails": details,
    }


def finished(client: Any, name: str, definition: Definition, document: Any = None) -> list[dict[str, Any]]:
    """The history of an execution that has ended."""
    execution = start(client, name, definition, document)
    ended(client, execution)
    return told(client, execution)


def test_s01_variables_are_assigned_and_sampled(states_client: Any) -> None:
    machine = chain(
        {"Type": "Pass", "Assign": {"x": 'a "b" é', "o": {"l": [1, {"m": None}]}}},
        {"Type": "Pass", "Parameters": {"v.$": "$x", "f.$": "States.Format('{}:{}', $x, $.k)", "i.$": "$o.l[1]"}},
    )
    output = '{"v":"a \\"b\\" é","f":"a \\"b\\" é:1","i":{"m":null}}'
    assert finished(states_client, "variables", machine, {"k": 1}) == [
        began('{"k": 1}'),
        entered(2, 0, "Pass", "S0", '{"k": 1}'),
        exited(3, "Pass", "S0", '{"k":1}', o='{"l":[1,{"m":null}]}', x='"a \\"b\\" é"'),
        entered(4, 3, "Pass", "S1", '{"k":1}'),
        exited(5, "Pass", "S1", output),
        succeeded(6, output),
    ]


def test_s01_an_iteration_sees_outer_variables_and_keeps_its_own(states_client: Any) -> None:
    adding = {"Type": "Pass", "Assign": {"sum.$": "States.MathAdd($bias, $)"}, "Next": "Told"}
    telling = {"Type": "Pass", "Parameters": {"sum.$": "$sum"}, "End": True}
    mapped = {"Type": "Map", "ItemProcessor": {"StartAt": "Add", "States": {"Add": adding, "Told": telling}}}
    described = run(states_client, "scopes", chain({"Type": "Pass", "Assign": {"bias": 10}}, mapped), [1, 2])
    assert (described["status"], json.loads(described["output"])) == ("SUCCEEDED", [{"sum": 11}, {"sum": 12}])


def test_s01_a_variable_that_nobody_assigned_fails_the_execution(states_client: Any) -> None:
    cause = f"{ENTRY}The variable '$x' does not exist"
    assert finished(states_client, "no-variable", chain({"Type": "Pass", "Parameters": {"v.$": "$x"}})) == [
        began("{}"),
        entered(2, 0, "Pass", "S0", "{}"),
        failed(3, 2, error="States.Runtime", cause=cause),
    ]


def test_s04_the_first_state_has_the_input_as_it_was_given(states_client: Any) -> None:
    machine = create(states_client, "white-space", chain(PASS, PASS))
    text = '{ "a" :  1 ,\n "é": "\\u00e9"}'
    execution = states_client.start_execution(stateMachineArn=machine, input=text)["executionArn"]
    described = ended(states_client, execution)
    compact = '{"a":1,"é":"é"}'
    assert (described["input"], described["output"]) == (text, compact)
    assert told(states_client, execution) == [
        began(text),
        entered(2, 0, "Pass", "S0", text),
        exited(3, "Pass", "S0", compact),
        entered(4, 3, "Pass", "S1", compact),
        exited(5, "Pass", "S1", compact),
        succeeded(6, compact),
    ]


def test_s05_the_context_object_has_aws_fields_in_its_order(states_client: Any) -> None:
    described = run(states_client, "context", chain({"Type": "Pass", "Parameters": {"c.$": "$$"}}), {"k": 1})
    context = json.loads(described["output"])["c"]
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert [*context] == ["Execution", "StateMachine", "State"]
    assert [*context["Execution"]] == ["Id", "Input", "StartTime", "Name", "RoleArn", "RedriveCount"]
    assert context["Execution"]["RedriveCount"] == 0
    assert [*context["State"]] == ["Name", "EnteredTime"]
    assert re.fullmatch(time, context["State"]["EnteredTime"])
    assert re.fullmatch(time, context["Execution"]["StartTime"])


def test_s07_a_fail_without_a_name_inside_a_map_is_caught_by_nothing(states_client: Any) -> None:
    mapped = {"Type": "Map", "ItemProcessor": {"StartAt": "M", "States": {"M": {"Type": "Fail"}}}, "Catch": ALL}
    assert finished(states_client, "nameless", chain(mapped, PASS), [1]) == [
        began("[1]"),
        entered(2, 0, "Map", "S0", "[1]"),
        {"id": 3, "previousEventId": 2, "type": "MapStateStarted", "mapStateStartedEventDetails": {"length": 1}},
        {
            "id": 4,
            "previousEventId": 3,
            "type": "MapIterationStarted",
            "mapIterationStartedEventDetails": {"name": "S0", "index": 0},
        },
        entered(5, 4, "Fail", "M", "1"),
        {
            "id": 6,
            "previousEventId": 5,
            "type": "MapIterationFailed",
            "mapIterationFailedEventDetails": {"name": "S0", "index": 0},
        },
        {"id": 7, "previousEventId": 5, "type": "MapStateFailed"},
        failed(8, 7),
    ]


@pytest.mark.parametrize(("fail", "caught"), [({"Error": "Mine"}, True), ({"Cause": "why"}, False)])
def test_s07_a_fail_is_caught_by_its_name(states_client: Any, fail: Definition, caught: bool) -> None:
    branch = {"StartAt": "M", "States": {"M": {"Type": "Fail", **fail}}}
    parallel = {"Type": "Parallel", "Branches": [branch], "Catch": ALL}
    described = run(states_client, f"named-{caught}", chain(parallel, PASS))
    if caught:
        assert json.loads(described["output"]) == {"Error": "Mine", "Cause": ""}
    else:
        assert (described["status"], described.get("error"), described["cause"]) == ("FAILED", None, "why")


def test_s13_a_negative_limit_of_a_map_ends_the_history_at_once(states_client: Any) -> None:
    inner = {"StartAt": "M", "States": {"M": {**PASS, "End": True}}}
    mapped = {"Type": "Map", "MaxConcurrencyPath": "$.m", "ItemsPath": "$.i", "ItemProcessor": inner}
    execution = start(states_client, "negative", chain(mapped), {"m": -1, "i": [1]})
    described = ended(states_client, execution)
    assert (described["status"], described["error"]) == ("FAILED", "States.Runtime")
    assert described["cause"] == "Expected non-negative integer for MaxConcurrency, got '-1' instead."
    assert told(states_client, execution) == [began('{"m": -1, "i": [1]}')]
    # A text is another case, and a positive one of course is none.
    assert [event["type"] for event in finished(states_client, "text", chain(mapped), {"m": "x", "i": [1]})] == [
        "ExecutionStarted",
        "MapStateEntered",
        "ExecutionFailed",
    ]
    assert run(states_client, "positive", chain(mapped), {"m": 1, "i": [1]})["output"] == "[1]"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("$.no.such.path", "Missing property in path $['no']"),
        ("$.no", "No results for path: $['no']"),
        ("$.a.b", "No results for path: $['a']['b']"),
    ],
)
def test_s14_a_path_that_leads_nowhere_names_the_state_s_entry(states_client: Any, path: str, reason: str) -> None:
    catch = [{"ErrorEquals": ["States.Runtime"], "Next": "S1"}]
    task = {"Type": "Task", "Resource": ARN + "echo", "Parameters": {"a": {}}, "OutputPath": path, "Catch": catch}
    assert finished(states_client, "nowhere", chain(task, PASS))[-1] == failed(
        6, 5, error="States.Runtime", cause=f"{ENTRY}Invalid path '{path}' : {reason}"
    )


def test_s14_a_parameter_that_leads_nowhere_ends_the_execution(states_client: Any) -> None:
    task = {"Type": "Task", "Resource": ARN + "echo", "Parameters": {"a": {"b.$": "$.no"}}, "Catch": ALL}
    cause = f"{ENTRY}The JSONPath '$.no' specified for the field 'b.$' could not be found in the input '{{\"k\":1}}'"
    assert finished(states_client, "no-parameter", chain(task, PASS), {"k": 1}) == [
        began('{"k": 1}'),
        entered(2, 0, "Task", "S0", '{"k": 1}'),
        failed(3, 2, error="States.Runtime", cause=cause),
    ]


def test_s16_a_machine_in_jsonata(states_client: Any) -> None:
    inner = {"StartAt": "Times", "States": {"Times": {**PASS, "Output": "{% $states.input.v * $f %}", "End": True}}}
    machine = chain(
        {"Type": "Pass", "Assign": {"f": "{% $states.input.k * 10 %}"}, "Output": {"l": "{% [1..3] %}"}},
        {
            "Type": "Map",
            "Items": "{% $states.input.l %}",
            "ItemSelector": {"v": "{% $states.context.Map.Item.Value %}"},
            "MaxConcurrency": "{% 3 - 2 %}",
            "ItemProcessor": inner,
            "Output": {"sum": "{% $sum($states.result) %}", "from": "{% $states.input %}"},
        },
        {
            "Type": "Choice",
            "Choices": [{"Condition": "{% $states.input.sum > 100 %}", "Next": "S3", "Assign": {"big": True}}],
            "Default": "S4",
        },
        {
            "Type": "Task",
            "Resource": INVOKE,
            "Arguments": {"FunctionName": "echo", "Payload": "{% $merge([$states.input, {'big': $big}]) %}"},
            "Output": "{% $states.result.Payload %}",
        },
        {"Type": "Wait", "Seconds": "{% 0 %}"},
        {"Type": "Succeed", "Output": {"done": "{% $states.input %}", "name": "{% $states.context.State.Name %}"}},
        QueryLanguage="JSONata",
    )
    described = run(states_client, "jsonata", machine, {"k": 2})
    assert (described["status"], json.loads(described["output"])) == (
        "SUCCEEDED",
        {"done": {"sum": 120, "from": {"l": [1, 2, 3]}, "big": True}, "name": "S5"},
    )


def test_s16_one_state_in_jsonata_among_others(states_client: Any) -> None:
    machine = chain(
        {"Type": "Pass", "Assign": {"x": 2}},
        {"Type": "Pass", "QueryLanguage": "JSONata", "Output": "{% $x * $states.input.k %}"},
        {"Type": "Pass", "Parameters": {"k.$": "$"}},
    )
    assert run(states_client, "mixed", machine, {"k": 4})["output"] == '{"k":8}'


UNDEFINED = "specified for the field '{}' returned nothing (undefined)."
PLACE = f"{ENTRY}The JSONata expression "


@pytest.mark.parametrize(
    ("state", "field"),
    [
        ({"Type": "Pass", "Output": {"a": [1, "{% $states.input.no %}"]}}, "Output/a[1]"),
        ({"Type": "Pass", "Assign": {"x": {"y": "{% $states.input.no %}"}}}, "Assign/x/y"),
        ({"Type": "Wait", "Seconds": "{% $states.input.no %}"}, "Seconds"),
        (
            {"Type": "Choice", "Choices": [{"Condition": "{% $states.input.no %}", "Next": "S1"}], "Default": "S1"},
            "Choices[0]/Condition",
        ),
        ({"Type": "Fail", "Error": "{% $states.input.no %}"}, "Error"),
    ],
)
def test_s16_an_undefined_value_fails_the_state(states_client: Any, state: Definition, field: str) -> None:
    cause = f"{PLACE}'$states.input.no' {UNDEFINED.format(field)}"
    machine = chain(state, PASS, QueryLanguage="JSONata")
    if state["Type"] == "Fail":
        del machine["States"]["S1"]
    error = {"error": "States.QueryEvaluationError", "cause": cause}
    assert finished(states_client, "undefined", machine) == [
        began("{}"),
        entered(2, 0, state["Type"], "S0", "{}"),
        {
            "id": 3,
            "previousEventId": 2,
            "type": "EvaluationFailed",
            "evaluationFailedEventDetails": {**error, "location": field, "state": "S0"},
        },
        failed(4, 3, **error),
    ]


@pytest.mark.parametrize(
    ("settings", "before", "expression", "field"),
    [
        ({"Arguments": {"k": "{% $states.input.no %}"}}, [], "$states.input.no", "Arguments/k"),
        (
            {"Arguments": {"k": 1}, "Output": "{% $states.result.no %}"},
            ["LambdaFunctionScheduled", "LambdaFunctionStarted", "LambdaFunctionSucceeded"],
            "$states.result.no",
            "Output",
        ),
    ],
)
def test_s16_a_failed_expression_of_a_task_is_caught(
    states_client: Any, settings: Definition, before: list[str], expression: str, field: str
) -> None:
    catch = [
        {
            "ErrorEquals": ["States.QueryEvaluationError"],
            "Next": "S1",
            "Assign": {"name": "{% $states.errorOutput.Error %}"},
            "Output": {"told": "{% $states.errorOutput %}", "of": "{% $states.input %}"},
        }
    ]
    task = {"Type": "Task", "Resource": ARN + "echo", "Catch": catch, **settings}
    telling = {"Type": "Pass", "Output": "{% $merge([$states.input, {'n': $name}]) %}"}
    machine = chain(task, telling, QueryLanguage="JSONata")
    execution = start(states_client, "caught", machine, {"k": 1})
    described = ended(states_client, execution)
    assert json.loads(described["output"]) == {
        "told": {
            "Error": "States.QueryEvaluationError",
            "Cause": f"{PLACE}'{expression}' {UNDEFINED.format(field)}",
        },
        "of": {"k": 1},
        "n": "States.QueryEvaluationError",
    }
    assert kinds(states_client, execution) == [
        "ExecutionStarted",
        "TaskStateEntered",
        *before,
        "EvaluationFailed",
        "TaskStateExited",
        "PassStateEntered",
        "PassStateExited",
        "ExecutionSucceeded",
    ]


@pytest.mark.parametrize(
    ("state", "field", "expected", "kind", "value"),
    [
        ({"Type": "Map", "Items": "{% 'a' %}"}, "Items", "array", "string", '"a"'),
        ({"Type": "Wait", "Seconds": "{% 'a' %}"}, "Seconds", "number", "string", '"a"'),
        ({"Type": "Fail", "Cause": "{% 'a' = 1 %}"}, "Cause", "string", "boolean", "false"),
    ],
)
def test_s16_a_value_of_another_type_fails_the_state(
    states_client: Any, state: Definition, field: str, expected: str, kind: str, value: str
) -> None:
    if state["Type"] == "Map":
        state["ItemProcessor"] = {"StartAt": "M", "States": {"M": {**PASS, "End": True}}}
    described = run(states_client, "other-type", chain(state, QueryLanguage="JSONata"))
    expression = "'a' = 1" if state["Type"] == "Fail" else "'a'"
    assert described["cause"] == (
        f"{PLACE}'{expression}' specified for the field '{field}' returned an unexpected result type. Expected "
        f"'{expected}', but was '{kind}' for value: {value}"
    )


def test_a_choice_that_matches_nothing_fails_by_its_name(states_client: Any) -> None:
    choice = {"Type": "Choice", "Choices": [{"Variable": "$.k", "NumericEquals": 1, "Next": "S1"}]}
    described = answer(run(states_client, "no-choice", chain(choice, PASS), {"k": 2}))
    assert (described["status"], described["error"]) == ("FAILED", "States.NoChoiceMatched")


def test_a_refused_definition_leaves_nothing_to_the_next(states_client: Any) -> None:
    """moto keeps the query language of the machine that it reads with a class."""
    wrong = chain({"Type": "Wait", "Seconds": "{% 0 %}", "SecondsPath": "$.s"}, QueryLanguage="JSONata")
    with pytest.raises(states_client.exceptions.InvalidDefinition):
        create(states_client, "wrong", wrong)
    assert (
        run(states_client, "right", chain({"Type": "Pass", "Parameters": {"k.$": "$.k"}}), {"k": 1})["output"]
        == '{"k":1}'
    )
