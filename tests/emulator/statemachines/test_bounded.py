"""Expressions in processes of their own: their bounds, and that they end with the execution."""

import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from moto.stepfunctions.parser.asl.component.program.program import Program
from tests.emulator.statemachines.here import begin, failure, finish, machines, output
from tests.emulator.statemachines.written import ARN, Definition, chain

from slslab.statemachines import bounded
from slslab.statemachines.executions import Execution
from slslab.statemachines.expressions import QueryError

BACKTRACKING = "$match('" + "a" * 40 + "!', /^(a+)+$/)"
# SystemExit ends the thread of a stopped execution without a word; pytest tells of it.
ends_threads = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
MEMORY = ": Expression evaluation memory limit exceeded: Check for excessive memory usage"


@pytest.fixture(autouse=True)
def no_process_stays() -> Iterator[None]:
    """End the processes after each test."""
    yield
    bounded.POOL.close()


def problem(expression: str) -> str:
    """Why an expression fails."""
    with pytest.raises(QueryError) as raised:
        bounded.evaluate_bounded(expression, {})
    return raised.value.problem


def ends(execution: Execution) -> bool:
    """Whether a stopped execution's threads end before the bound of time."""
    execution.history.close("ExecutionAborted", {"executionAbortedEventDetails": {}})
    deadline = time.monotonic() + bounded.LIMIT_S / 2
    while f"execution-{execution.name}" in {thread.name for thread in threading.enumerate()}:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_values_come_back_as_they_are() -> None:
    value: Any = {"a": [1, 2.5, None, True, "é\ud800"], "b": {}}
    assert bounded.evaluate_bounded("$x", {"x": value}) == value
    assert bounded.evaluate_bounded("$x.a[0] + 1", {"x": value}) == 2
    assert problem("$nowhere") == " returned nothing (undefined)."


@pytest.mark.parametrize(
    "expression",
    [
        "$pad('x', 2000000000)",
        "($f := function($x){ $f($x & $x) }; $f('aaaaaaaa'))",
        "$pad('x', 20000000)",
        "$sum([1..9999999])",
    ],
)
def test_an_expression_has_a_bound_of_memory(expression: str) -> None:
    assert problem(expression).endswith(MEMORY)
    assert bounded.evaluate_bounded("1 + 1", {}) == 2


def test_an_expression_has_a_bound_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "LIMIT_S", 0.2)
    assert problem(BACKTRACKING).endswith(": Expression evaluation timeout: Check for infinite loop")
    assert bounded.matches(re.compile("A+", re.IGNORECASE), "aa")
    assert not bounded.matches(re.compile("a"), "aa")


@ends_threads
def test_others_are_answered_meanwhile() -> None:
    known = machines()
    definition = chain({"Type": "Pass", "Output": f"{{% {BACKTRACKING} %}}"}, QueryLanguage="JSONata")
    slow = [begin(definition, {}, known) for _ in range(3)]
    assert output(chain({"Type": "Pass", "Result": 1})) == 1
    assert {execution.status for execution in known.executions()} == {"RUNNING"}
    for execution in slow:
        assert ends(execution)


@ends_threads
def test_an_expression_ends_with_its_execution() -> None:
    definition = chain({"Type": "Pass", "Output": f"{{% {BACKTRACKING} %}}"}, QueryLanguage="JSONata")
    execution = begin(definition)
    assert f"execution-{execution.name}" in {thread.name for thread in threading.enumerate()}
    assert ends(execution)


def test_an_endless_expression_fails_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "LIMIT_S", 0.2)
    error, cause = failure(chain({"Type": "Pass", "Output": f"{{% {BACKTRACKING} %}}"}, QueryLanguage="JSONata"))
    assert error == "States.QueryEvaluationError"
    assert cause.endswith("Expression evaluation timeout: Check for infinite loop")


def test_many_expressions_at_once_share_the_processes() -> None:
    inner = {"StartAt": "M", "States": {"M": {"Type": "Pass", "Output": "{% $states.input * 2 %}", "End": True}}}
    mapped = {"Type": "Map", "Items": "{% [1..100] %}", "ItemProcessor": inner}
    assert output(chain(mapped, QueryLanguage="JSONata")) == [2 * number for number in range(1, 101)]
    assert len(bounded.POOL._free) <= bounded.PROCESSES


@ends_threads
def test_a_slow_expression_gives_its_place_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "SLOW_S", 0.1)
    monkeypatch.setattr(bounded, "PROCESSES", 1)
    monkeypatch.setattr(bounded, "SLOW_PROCESSES", 2)
    pool = bounded.Pool()
    slow = {"expression": BACKTRACKING, "variables": {}}
    going = threading.Event()
    going.set()
    threads = [threading.Thread(target=pool.ask, args=(slow, going.is_set)) for _ in range(2)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 30
    while pool._slow_turns._value and time.monotonic() < end:
        time.sleep(0.01)
    assert pool.ask({"expression": "1 + 1", "variables": {}}, going.is_set) == 2
    assert all(thread.is_alive() for thread in threads)
    going.clear()
    for thread in threads:
        thread.join(10)
    # All places are free again, and one process is kept.
    assert pool._turns._value == 1
    assert pool._slow_turns._value == 2
    assert len(pool._free) == 1
    pool.close()


def test_literals_among_expressions() -> None:
    inner = {"StartAt": "M", "States": {"M": {"Type": "Pass", "End": True}}}
    mapped = {"Type": "Map", "Items": ["{% 1 %}", "{% 'x' %}", {"k": "{% [1] %}"}, 3], "ItemProcessor": inner}
    assert output(chain(mapped, QueryLanguage="JSONata")) == [1, "x", {"k": [1]}, 3]
    choice = {"Type": "Choice", "Choices": [{"Condition": False, "Next": "S2"}, {"Condition": True, "Next": "S1"}]}
    yes, no = {"Type": "Pass", "Output": 1, "End": True}, {"Type": "Pass", "Output": 2, "End": True}
    definition = {"StartAt": "C", "QueryLanguage": "JSONata", "States": {"C": choice, "S1": yes, "S2": no}}
    assert output(definition) == 1


def test_a_negative_limit_of_a_map_fails() -> None:
    inner = {"StartAt": "M", "States": {"M": {"Type": "Pass", "End": True}}}
    mapped = {"Type": "Map", "Items": [1], "MaxConcurrency": "{% -1 %}", "ItemProcessor": inner}
    expected = "Expected non-negative integer for MaxConcurrency, got '-1' instead."
    assert failure(chain(mapped, QueryLanguage="JSONata")) == ("States.Runtime", expected)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Seconds", "-1"),
        ("Seconds", "1.5"),
        ("TimeoutSeconds", "0"),
        ("HeartbeatSeconds", "-1"),
        ("MaxConcurrency", "1.5"),
    ],
)
def test_a_number_that_a_field_can_t_have(field: str, value: str) -> None:
    inner = {"StartAt": "M", "States": {"M": {"Type": "Pass", "End": True}}}
    states: dict[str, Definition] = {
        "Seconds": {"Type": "Wait"},
        "MaxConcurrency": {"Type": "Map", "Items": [1], "ItemProcessor": inner},
    }
    state = states.get(field, {"Type": "Task", "Resource": ARN + "works"})
    error, cause = failure(chain({**state, field: f"{{% {value} %}}"}, QueryLanguage="JSONata"))
    assert error == "States.QueryEvaluationError"
    assert cause.endswith(f"specified for the field '{field}' returned a number that {field} can't have: {value}")


@pytest.mark.parametrize("fields", [{"ToleratedFailurePercentage": 5}, {"ToleratedFailureCount": 1}])
def test_what_an_inline_map_does_not_use_is_accepted(fields: dict[str, Any]) -> None:
    inner = {"StartAt": "M", "States": {"M": {"Type": "Pass", "End": True}}, "ProcessorConfig": {}}
    assert output(chain({"Type": "Map", "ItemProcessor": inner, **fields}), [1, 2]) == [1, 2]
    expressions = {name: f"{{% {value} %}}" for name, value in fields.items()}
    mapped = {"Type": "Map", "ItemProcessor": inner, **expressions, "ToleratedFailurePercentage": "{% 5 %}"}
    assert output(chain(mapped, QueryLanguage="JSONata"), [1, 2]) == [1, 2]


def test_items_that_are_no_array() -> None:
    inner = {"StartAt": "M", "States": {"M": {"Type": "Pass", "End": True}}}
    execution = finish(begin(chain({"Type": "Map", "ItemProcessor": inner}, QueryLanguage="JSONata"), {"a": 1}))
    failed = next(event for event in execution.history.events if event["type"] == "EvaluationFailed")
    details = failed["evaluationFailedEventDetails"]
    assert failed["previousEventId"] == 2
    assert details["state"] == "S0"
    assert details["cause"].endswith("(entered at the event id #2). Map state input must be an array but was: object")


def test_an_execution_that_gets_no_thread_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Program, "eval", no_thread)
    assert failure(chain({"Type": "Pass"})) == ("States.Runtime", "slslab can't run it: can't start new thread.")
