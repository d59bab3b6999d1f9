"""When Assign takes effect, and which Assign and Output a Choice uses."""

from typing import Any

import pytest
from tests.emulator.statemachines.here import failure, output
from tests.emulator.statemachines.test_fields import found
from tests.emulator.statemachines.written import ARN, Definition, chain

pytestmark = pytest.mark.usefixtures("no_process_stays")

FIRST: Definition = {"Type": "Pass", "Assign": {"x": 1}, "Next": "S"}
LAST: Definition = {"Type": "Pass", "QueryLanguage": "JSONata", "Output": "{% [$x, $states.input] %}", "End": True}
INNER: Definition = {"StartAt": "M", "States": {"M": {"Type": "Pass", "End": True}}}
CHANGES: Definition = {"QueryLanguage": "JSONata", "Assign": {"x": 2}, "Output": "{% $x %}"}
CALLS: Definition = {"Type": "Task", "Resource": ARN + "works"}
ALL = ["States.ALL"]


def machine(state: Definition) -> Definition:
    """A machine in which $x is 1 when this state is entered, and which returns what $x and the output are after it."""
    return {"StartAt": "I", "States": {"I": FIRST, "S": state, "L": LAST}}


@pytest.mark.parametrize(
    "state",
    [
        {"Type": "Pass", **CHANGES, "Next": "L"},
        {"Type": "Wait", "Seconds": 0, **CHANGES, "Next": "L"},
        {"Type": "Parallel", "Branches": [INNER], **CHANGES, "Next": "L"},
        {"Type": "Map", "Items": [1], "ItemProcessor": INNER, **CHANGES, "Next": "L"},
        {"Type": "Choice", "QueryLanguage": "JSONata", "Choices": [{"Condition": False, "Next": "L"}], "Default": "L"}
        | CHANGES,
        {
            "Type": "Choice",
            "QueryLanguage": "JSONata",
            "Choices": [{"Condition": True, "Next": "L", "Assign": {"x": 2}, "Output": "{% $x %}"}],
        },
        {
            **CALLS,
            "QueryLanguage": "JSONata",
            "Catch": [{"ErrorEquals": ALL, "Next": "L", "Assign": {"x": 2}, "Output": "{% $x %}"}],
            "Arguments": "{% $error('e') %}",
            "End": True,
        },
    ],
    ids=["Pass", "Wait", "Parallel", "Map", "Default", "Choice", "Catch"],
)
def test_all_fields_of_a_state_see_the_variables_of_its_entry(state: Definition) -> None:
    assert output(machine(state)) == [2, 1]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"Variable": "$.a", "NumericEquals": 5}, 5),
        ({"And": [{"Variable": "$.a", "NumericEquals": 5}]}, 5),
        ({"Not": {"Variable": "$.a", "NumericEquals": 6}}, 5),
        ({"Variable": "$.a", "NumericEquals": 6}, "default"),
    ],
)
def test_a_choice_has_the_assign_of_its_rule_or_of_its_default(rule: Definition, expected: Any) -> None:
    rule = {**rule, "Next": "L", "Assign": {"x.$": "$.a"}}
    choice = {"Type": "Choice", "Choices": [rule], "Default": "L", "Assign": {"x": "default"}}
    assert output({"StartAt": "S", "States": {"S": choice, "L": LAST}}, {"a": 5}) == [expected, {"a": 5}]


def test_an_assign_that_leads_nowhere_names_its_field() -> None:
    rule = {"Variable": "$.a", "IsPresent": True, "Next": "L", "Assign": {"y.$": "$.no"}}
    definition = {"StartAt": "S", "States": {"S": {"Type": "Choice", "Choices": [rule]}, "L": {"Type": "Succeed"}}}
    assert failure(definition, {"a": 1}) == (
        "States.Runtime",
        "The JSONPath '$.no' specified for the field 'y.$' could not be found in the input '{\"a\":1}'",
    )


def test_what_a_failed_attempt_assigned_is_forgotten() -> None:
    state: Definition = {"Type": "Parallel", "Branches": [INNER], "QueryLanguage": "JSONata", "End": True}
    state |= {"Assign": {"x": 3, "y": 4}, "Output": "{% $error('e') %}"}
    state |= {"Catch": [{"ErrorEquals": ALL, "Next": "L", "Assign": {"z": "{% $x %}"}}]}
    last = {**LAST, "Output": "{% {'x': $x, 'y': $exists($y), 'z': $z} %}"}
    definition = {"StartAt": "I", "States": {"I": FIRST, "S": state, "L": last}}
    assert output(definition) == {"x": 1, "y": False, "z": 1}


def test_a_variable_of_an_outer_scope_is_not_assigned() -> None:
    inner = {"StartAt": "M", "States": {"M": {"Type": "Pass", "Assign": {"x": 2}, "End": True}}}
    state = {"Type": "Map", "Items": [1], "QueryLanguage": "JSONata", "ItemProcessor": inner, "Next": "L"}
    assert failure(machine(state)) == ("States.Runtime", "Cannot assign to the variable '$x' of an outer scope.")


def test_an_assign_has_a_bound() -> None:
    large = {f"v{number}.$": "States.ArrayRange(1, 1000, 1)" for number in range(100)}
    error, cause = failure(chain({"Type": "Pass", "Assign": large}))
    assert (error, cause) == (
        "States.DataLimitExceeded",
        "The variables of an Assign exceed the maximum number of bytes service limit.",
    )


def test_names_of_variables_in_jsonata() -> None:
    assert found(chain({"Type": "Pass", "Assign": {"x.$": "$.a"}}, QueryLanguage="JSONata")) == [
        "INVALID_VARIABLE_NAME: Invalid variable name 'x.$': the variable name contains invalid characters. at "
        "/States/S0/Assign"
    ]
