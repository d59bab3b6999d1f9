"""Fields of the Amazon States Language that AWS refuses, with its messages."""

import json
from typing import Any

import pytest
from tests.emulator.statemachines.written import ARN, Definition, chain

from slslab.statemachines.definitions import problems

CALLS = {"Type": "Task", "Resource": ARN + "works"}
INNER = {"StartAt": "P", "States": {"P": {"Type": "Pass", "End": True}}}


def found(definition: Any) -> list[str]:
    """The problems of a definition, without the code that most have."""
    return [
        str(problem).removeprefix("SCHEMA_VALIDATION_FAILED: ") for problem in problems(json.dumps(definition), 4096)
    ]


def choice(*rules: Any, **fields: Any) -> Definition:
    """A machine of a Choice with these rules."""
    return {"StartAt": "C", "States": {"C": {"Type": "Choice", "Choices": [*rules], "Default": "F", **fields}, **ENDS}}


ENDS = {"F": {"Type": "Succeed"}}
TIMES = "[SecondsPath, Seconds, TimestampPath, Timestamp]"
SELECTORS = "The object must have only one of the following fields, [And, Or, Not, Variable, Condition]"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"Type": "Pass", "_comment": ""}, ["Field '_comment' is not supported at /States/S0"]),
        ({"Type": "Wait", "Seconds": "3"}, ["Expected value of type Integer at /States/S0/Seconds"]),
        ({"Type": "Wait", "Seconds": 1.5}, ["Expected value of type Integer at /States/S0/Seconds"]),
        ({"Type": "Wait", "Seconds": True}, ["Expected value of type Integer at /States/S0/Seconds"]),
        ({"Type": "Wait", "Seconds": -1}, ["Minimum value is 0 at /States/S0/Seconds"]),
        ({"Type": "Wait", "Seconds": 10**8}, ["Maximum value is 99999999 at /States/S0/Seconds"]),
        ({"Type": "Wait", "Seconds": 0}, []),
        (
            {"Type": "Wait", "Seconds": 1, "SecondsPath": "$.s"},
            [f"There should only be one of the following fields: {TIMES} at /States/S0"],
        ),
        ({"Type": "Wait"}, [f"This object should have only one of the following fields: {TIMES} at /States/S0"]),
        ({"Type": "Pass", "OutputPath": "x"}, ["Value must be a valid JSONPath. at /States/S0/OutputPath"]),
        ({"Type": "Pass", "ResultPath": None}, []),
        (
            {"Type": "Pass", "Parameters": {"a": {"b.$": "c"}}},
            [
                "The value for the field 'b.$' must be a valid JSONPath or a valid intrinsic function call at "
                "/States/S0/Parameters/a"
            ],
        ),
        ({"Type": "Pass", "Parameters": {"a": [{"b.$": "States.UUID()"}, {"b.$": "$$.x"}]}}, []),
        (
            {"Type": "Pass", "Assign": {"states": 1, "1x": 2, "x.$": "$"}},
            [
                "RESERVED_VARIABLE_NAME: Cannot assign to reserved variable '$states'. at /States/S0/Assign",
                "INVALID_VARIABLE_NAME: Invalid variable name '1x': the variable name contains invalid characters. at "
                "/States/S0/Assign",
            ],
        ),
        (
            CALLS | {"Retry": [{"ErrorEquals": [], "JitterStrategy": "SOME"}, {"MaxAttempts": -1}]},
            [
                "Value cannot be empty at /States/S0/Retry[0]/ErrorEquals",
                "Value should be one of the following: [NONE, FULL] at /States/S0/Retry[0]/JitterStrategy",
                "These fields are required: [ErrorEquals] at /States/S0/Retry[1]",
                "Minimum value is 0 at /States/S0/Retry[1]/MaxAttempts",
            ],
        ),
        (
            CALLS | {"Retry": [{"ErrorEquals": ["States.ALL"]}, {"ErrorEquals": ["A", "States.ALL"]}]},
            [
                "States.ALL must appear alone and at end of list at /States/S0/Retry[0]/ErrorEquals",
                "States.ALL must appear alone and at end of list at /States/S0/Retry[1]/ErrorEquals",
            ],
        ),
        (CALLS | {"Catch": [{}]}, ["These fields are required: [ErrorEquals, Next] at /States/S0/Catch[0]"]),
        (CALLS | {"Retry": {}}, ["Expected value of type Array at /States/S0/Retry"]),
        (
            CALLS | {"TimeoutSeconds": 0, "HeartbeatSeconds": 1, "HeartbeatSecondsPath": "$.h"},
            [
                "Minimum value is 1 at /States/S0/TimeoutSeconds",
                "There should only be one of the following fields: [HeartbeatSeconds, HeartbeatSecondsPath] at "
                "/States/S0",
            ],
        ),
        (
            {"Type": "Map", "ItemProcessor": INNER | {"QueryLanguage": "JSONata"}, "MaxConcurrency": -1},
            [
                "Minimum value is 0 at /States/S0/MaxConcurrency",
                "Field 'QueryLanguage' is not supported at /States/S0/ItemProcessor",
            ],
        ),
        (
            CALLS | {"Retry": [{"ErrorEquals": ["E"], "IntervalSeconds": 0, "BackoffRate": 0.5}]},
            [
                "Minimum value is 1 at /States/S0/Retry[0]/IntervalSeconds",
                "Minimum value is 1 at /States/S0/Retry[0]/BackoffRate",
            ],
        ),
        (CALLS | {"Resource": None}, ["Expected value of type String at /States/S0/Resource"]),
        (CALLS | {"Credentials": {}}, ["These fields are required: [RoleArn] at /States/S0/Credentials"]),
        (
            CALLS | {"Credentials": {"RoleArn": 1}},
            ["Expected value of type String at /States/S0/Credentials/RoleArn"],
        ),
        (
            {"Type": "Map", "ItemProcessor": INNER | {"StartAt": None}},
            [
                "Expected value of type String at /States/S0/ItemProcessor/StartAt",
                'MISSING_TRANSITION_TARGET: State "P" is not reachable. at /States/S0/ItemProcessor/States/P',
            ],
        ),
        (
            {"Type": "Map", "ItemProcessor": INNER, "ToleratedFailureCount": -1, "ToleratedFailurePercentage": 101},
            [
                "Minimum value is 0 at /States/S0/ToleratedFailureCount",
                "Maximum value is 100 at /States/S0/ToleratedFailurePercentage",
            ],
        ),
        (
            {"Type": "Map", "ItemProcessor": INNER, "ItemBatcher": {"MaxItemsPerBatch": 2}},
            ["slslab emulates Map only in inline mode at /States/S0/ItemBatcher"],
        ),
        (
            {"Type": []},
            [
                "The field 'Type' should have one of these values: [Task, Wait, Pass, Succeed, Fail, Choice, Parallel, "
                "Map] at /States/S0/Type"
            ],
        ),
    ],
)
def test_s11_fields_of_states(state: Definition, expected: list[str]) -> None:
    assert found(chain(state)) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"TimeoutSeconds": 0, "Version": "1.0", "Comment": "c"}, []),
        ({"startAt": "S0"}, ["Field 'startAt' is not supported at /"]),
        ({"Version": "1.1"}, ["Value should be one of the following: [1.0] at /Version"]),
        ({"TimeoutSeconds": "1"}, ["Expected value of type Integer at /TimeoutSeconds"]),
    ],
)
def test_s11_fields_of_machines(fields: Definition, expected: list[str]) -> None:
    assert found(chain({"Type": "Pass"}, **fields)) == expected


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ({"Type": "Pass", "Assign": "{% 1 %}"}, "Object"),
        ({"Type": "Map", "ItemProcessor": INNER, "ItemSelector": "{% 1 %}"}, "Object"),
        ({"Type": "Map", "ItemProcessor": INNER, "Items": {}}, "Array"),
        (CALLS | {"Retry": "{% [] %}"}, "Array"),
        (CALLS | {"Catch": [{"ErrorEquals": "{% ['E'] %}", "Next": "S0"}]}, "Array"),
        (CALLS | {"Retry": [{"ErrorEquals": ["E"], "MaxAttempts": "{% 1 %}"}]}, "Integer"),
    ],
)
def test_where_no_expression_may_stand(state: Definition, kind: str) -> None:
    [problem] = found(chain(state, QueryLanguage="JSONata"))
    assert problem.startswith(f"Expected value of type {kind} at /States/S0/")


@pytest.mark.parametrize("text", [" {% 1 %}", "{% 1 %} ", "{% 1", "1 %}"])
def test_an_expression_begins_and_ends_its_text(text: str) -> None:
    assert found(chain({"Type": "Pass", "Output": {"a": [text]}}, QueryLanguage="JSONata")) == [
        "INVALID_JSONATA_EXPRESSION: An expression must begin with '{%' and end with '%}', without spaces around them. "
        "at /States/S0/Output/a[0]"
    ]
    assert not found(chain({"Type": "Pass", "Parameters": {"a": text}}))


def test_a_condition_is_an_expression_or_a_literal() -> None:
    rule = {"Condition": "text", "Next": "F"}
    assert found({**choice(rule), "QueryLanguage": "JSONata"}) == [
        "Value must be a valid JSONata expression at /States/C/Choices[0]/Condition"
    ]


def test_s11_expressions_stand_for_integers_in_jsonata_alone() -> None:
    waits = {"Type": "Wait", "Seconds": "{% 1 %}"}
    assert not found(chain(waits, QueryLanguage="JSONata"))
    assert found(chain(waits)) == ["Expected value of type Integer at /States/S0/Seconds"]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], ["Value cannot be empty at /States/C/Choices"]),
        ([{"Variable": "$.a", "IsPresent": True}], ["These fields are required: [Next] at /States/C/Choices[0]"]),
        (
            [{"Not": {"Variable": "$.a", "StringEquals": "b", "Next": "F"}, "Next": "F"}],
            ["Field 'Next' is not supported at /States/C/Choices[0]/Not"],
        ),
        ([{"Next": "F"}], [f"{SELECTORS} at /States/C/Choices[0]"]),
        (
            [{"Variable": "a", "NumericEquals": "1", "Next": "F"}],
            [
                "Expected value of type Double at /States/C/Choices[0]/NumericEquals",
                "Value is not a Reference Path: Reference path didn't start with '$' at /States/C/Choices[0]/Variable",
            ],
        ),
        (
            [{"Variable": "$.a", "TimestampEquals": "noon", "Next": "F"}],
            ["String does not match RFC3339 timestamp at /States/C/Choices[0]/TimestampEquals"],
        ),
        (
            [{"Variable": "$.a", "IsNull": True, "Next": None}],
            ["Expected value of type String at /States/C/Choices[0]/Next"],
        ),
        ([{"And": [5], "Next": "F"}], ["Expected value of type Object at /States/C/Choices[0]/And[0]"]),
        ([{"Or": [{"Variable": "$.a", "BooleanEqualsPath": "$.b"}], "Next": "F"}], []),
    ],
)
def test_s11_rules_of_a_choice(rules: list[Any], expected: list[str]) -> None:
    assert found(choice(*rules)) == expected


def test_s11_a_comparison_has_one_operator() -> None:
    two = {"Variable": "$.a", "StringEquals": "b", "IsNull": True, "Next": "F"}
    [problem] = found(choice(two))
    assert problem.startswith("There should only be one of the following fields: [StringEquals, StringEqualsPath, ")
    assert problem.endswith(", IsTimestamp] at /States/C/Choices[0]")
    [problem] = found(choice({"Variable": "$.a", "Next": "F"}))
    assert problem.startswith("This object should have only one of the following fields: [StringEquals, ")
