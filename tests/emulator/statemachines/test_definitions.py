"""Definitions that AWS refuses, with its messages, and the variables that states refer to."""

import json
from typing import Any

import pytest
from tests.emulator.statemachines.written import INVOKE, chain

from slslab.statemachines.definitions import problems

LIMIT = 1_000_000
PASS = {"Type": "Pass"}
SCHEMA = "SCHEMA_VALIDATION_FAILED"
TARGET = "MISSING_TRANSITION_TARGET"


def found(definition: Any) -> list[str]:
    text = definition if isinstance(definition, str) else json.dumps(definition)
    return [str(problem) for problem in problems(text, LIMIT)]


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ({}, [f"{SCHEMA}: These fields are required: [States, StartAt] at /"]),
        ({"StartAt": "A"}, [f"{SCHEMA}: These fields are required: [States] at /"]),
        ({"States": {"A": PASS}}, [f"{SCHEMA}: These fields are required: [StartAt] at /"]),
        ("[]", [f"{SCHEMA}: Definition must be a valid JSON object at null"]),
        (" ", [f"{SCHEMA}: Definition must be a valid JSON object at null"]),
        (
            chain({"Type": "Wait", "Timestamp": "2016-12-05 21:29:29Z"}),
            [f"{SCHEMA}: String does not match RFC3339 timestamp at /States/S0/Timestamp"],
        ),
        (
            chain({"Type": "Wait", "Timestamp": "2016-13-05T21:29:29Z"}),
            [f"{SCHEMA}: String does not match RFC3339 timestamp at /States/S0/Timestamp"],
        ),
        (chain({"Type": "Wait", "Timestamp": "2016-12-05T21:29:29.123Z"}), []),
        (chain({"Type": "Wait", "Timestamp": "2016-12-05T21:29:29+02:00"}), []),
        (
            {"StartAt": "X", "States": {"A": {"Type": "Pass", "Next": "B"}}},
            [
                f"{TARGET}: Missing 'Next' target: X at /StartAt",
                f"{TARGET}: Missing 'Next' target: B at /States/A/Next",
                f'{TARGET}: State "A" is not reachable. at /States/A',
            ],
        ),
        (
            {"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "A"}}},
            ["MISSING_END_STATE: Workflow has no terminal state at null"],
        ),
        (
            chain({"Type": "Pass", "TimeoutSeconds": 1, "Catch": []}),
            [
                f"{SCHEMA}: Field 'TimeoutSeconds' is not supported at /States/S0",
                f"{SCHEMA}: Field 'Catch' is not supported at /States/S0",
            ],
        ),
    ],
)
def test_s11_what_is_refused(definition: Any, expected: list[str]) -> None:
    assert found(definition) == expected


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (
            chain({"Type": "Pass", "QueryLanguage": "JSONPath"}, QueryLanguage="JSONata"),
            [
                f"{SCHEMA}: 'QueryLanguage' can not be 'JSONPath' if set to 'JSONata' for whole state machine "
                "at /States/S0"
            ],
        ),
        (
            chain({"Type": "Pass", "Parameters": {}}, QueryLanguage="JSONata"),
            [
                f"{SCHEMA}: The QueryLanguage is set to 'JSONata', but field 'Parameters' is only supported for the "
                "'JSONPath' QueryLanguage at /States/S0"
            ],
        ),
        (
            chain({"Type": "Pass", "Output": 1}),
            [
                f"{SCHEMA}: The QueryLanguage is set to 'JSONPath', but field 'Output' is only supported for the "
                "'JSONata' QueryLanguage at /States/S0"
            ],
        ),
        (
            chain(PASS, QueryLanguage="jsonata"),
            [f"{SCHEMA}: Value should be one of the following: [JSONPath, JSONata] at /QueryLanguage"],
        ),
        (
            chain({"Type": "Pass", "Output": {"a": ["{% ( %}"]}}, QueryLanguage="JSONata"),
            ['INVALID_JSONATA_EXPRESSION: Expected ")" before end of expression at /States/S0/Output/a[0]'],
        ),
        (
            chain({"Type": "Pass", "Output": "{% phone & $$.x %}", "Comment": "{% ( %}"}, QueryLanguage="JSONata"),
            [
                "UNSUPPORTED_JSONATA_EXPRESSION: Reference to 'phone' at the top level is not supported. at "
                "/States/S0/Output",
                "UNSUPPORTED_JSONATA_EXPRESSION: Reference to '$$' is not supported. at /States/S0/Output",
            ],
        ),
        (
            chain(
                {
                    "Type": "Task",
                    "Resource": INVOKE,
                    "QueryLanguage": "JSONata",
                    "Output": "{% $states.errorOutput %}",
                    "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "S1", "Output": "{% $states.errorOutput %}"}],
                },
                PASS,
            ),
            ["UNSUPPORTED_JSONATA_EXPRESSION: Field '$states.errorOutput' does not exist. at /States/S0/Output"],
        ),
        (chain({"Type": "Wait", "Timestamp": "{% $states.input.until %}"}, QueryLanguage="JSONata"), []),
    ],
)
def test_s16_what_a_query_language_forbids(definition: Any, expected: list[str]) -> None:
    assert found(definition) == expected
