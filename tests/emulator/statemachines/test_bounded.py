"""Expressions in processes of their own: their bounds, and that they end with the execution."""

import re
import threading
import time
from typing import Any

import pytest
from moto.stepfunctions.parser.asl.component.program.program import Program
from tests.emulator.statemachines.here import begin, failure, finish, machines, output
from tests.emulator.statemachines.written import ARN, Definition, chain

from slslab.aws.limits import lambda_limits
from slslab.statemachines import bounded, moto_patches
from slslab.statemachines.executions import Execution
from slslab.statemachines.expressions import QueryError

pytestmark = pytest.mark.usefixtures("no_process_stays")

BACKTRACKING = "$match('" + "a" * 40 + "!', /^(a+)+$/)"
# SystemExit ends the thread of a stopped execution without a word; pytest tells of it.
ends_threads = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
WAITING = {"StartAt": "M", "States": {"M": {"Type": "Wait", "Seconds": 600, "End": True}}}
MEMORY = ": Expression evaluation memory limit exceeded: Check for excessive memory usage"


def problem(expression: str) -> str:
    """Why an expression fails."""
    with pytest.raises(QueryError) as raised:
        bounded.evaluate_bounded(expression, {})
    return str(raised.value)


def ends(execution: Execution) -> bool:
    """Whether a stopped execution's threads end before the bound of time."""
    execution.history.close("ExecutionAborted", {"executionAbortedEventDetails": {}})
    deadline = time.monotonic() + bounded.LIMIT_S / 2
    while f"execution-{execution.name}" in {thread.name for thread in threading.enumerate()}:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def wait_for_the_end_of_all_but(before: set[threading.Thread]) -> None:
    """Wait until only these threads are left."""
    deadline = time.monotonic() + 30
    while left := set(threading.enumerate()) - before:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


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
    deadline = time.monotonic() + 60
    while not bounded.POOL._busy:
        assert time.monotonic() < deadline
        time.sleep(0.01)
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
    looked = []

    def is_going() -> bool:
        looked.append(1)
        return going.is_set()

    pool = bounded.Pool()
    slow = {"expression": BACKTRACKING, "variables": {}}
    going = threading.Event()
    going.set()
    threads = [threading.Thread(target=pool.ask, args=(slow, is_going)) for _ in range(2)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 30
    while (len(pool._busy) < len(threads) or pool._wait_s()) and time.monotonic() < end:
        time.sleep(0.01)
    asked = len(looked)
    assert pool.ask({"expression": "1 + 1", "variables": {}}, going.is_set) == 2
    assert all(thread.is_alive() for thread in threads)
    time.sleep(0.3)
    assert len(looked) == asked, "it waits without looking"
    going.clear()
    pool.wake()
    for thread in threads:
        thread.join(10)
    # All places are free again, and one process is kept.
    assert pool._busy == []
    assert len(pool._free) == 1
    pool._free.pop().close()


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


@ends_threads
@pytest.mark.parametrize(
    "state",
    [
        {"Type": "Map", "Items": [1, 2, 3], "ItemProcessor": WAITING},
        {"Type": "Map", "Items": [1, 2], "MaxConcurrency": 1, "ItemProcessor": WAITING},
        {"Type": "Parallel", "Branches": [WAITING]},
        {"Type": "Map", "Items": f"{{% {BACKTRACKING} %}}", "ItemProcessor": WAITING},
        {"Type": "Map", "Items": [1], "ItemSelector": {"x": f"{{% {BACKTRACKING} %}}"}, "ItemProcessor": WAITING},
        {"Type": "Task", "Resource": ARN + "works", "Arguments": f"{{% {BACKTRACKING} %}}"},
    ],
)
def test_a_stopped_execution_leaves_no_thread(state: Definition) -> None:
    outer = {"StartAt": "O", "States": {"O": {**state, "End": True}}}
    before = set(threading.enumerate())
    execution = begin(chain({"Type": "Map", "Items": [1], "ItemProcessor": outer}, QueryLanguage="JSONata"))
    deadline = time.monotonic() + 30
    while not any(event["type"] == f"{state['Type']}StateEntered" for event in execution.history.events[3:]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)  # until it waits, or evaluates
    assert execution.status == "RUNNING"
    assert ends(execution)
    wait_for_the_end_of_all_but(before)


ENDLESS = f"{{% {BACKTRACKING} %}}"
FAILING: Definition = {
    "StartAt": "Which",
    "States": {
        "Which": {
            "Type": "Choice",
            "Choices": [{"Condition": "{% $states.input = 1 %}", "Next": "Later"}],
            "Default": "Endless",
        },
        "Later": {"Type": "Wait", "Seconds": 1, "Next": "Failed"},
        "Failed": {"Type": "Fail"},
        "Endless": {"Type": "Pass", "Output": ENDLESS, "End": True},
    },
}


@ends_threads
@pytest.mark.parametrize(
    ("state", "machine"),
    [
        ({"Type": "Pass", "Output": ENDLESS}, {"TimeoutSeconds": 1}),
        ({"Type": "Map", "Items": [1, 2], "ItemProcessor": FAILING}, {}),
        ({"Type": "Task", "Resource": ARN + "works", "Arguments": ENDLESS, "TimeoutSeconds": 1}, {}),
    ],
    ids=("an execution that times out", "a Map with a failed iteration", "a Task that times out"),
)
def test_an_execution_that_ends_by_itself_ends_its_expressions(state: Definition, machine: Definition) -> None:
    finish(begin(chain(state, QueryLanguage="JSONata", **machine)))
    deadline = time.monotonic() + bounded.LIMIT_S / 3
    while bounded.POOL._busy:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@ends_threads
def test_a_map_in_a_map_ends_with_a_full_history() -> None:
    inner = {"StartAt": "M", "States": {"M": {"Type": "Pass", "End": True}}}
    outer = {"StartAt": "O", "States": {"O": {"Type": "Map", "ItemProcessor": inner, "End": True}}}
    before = set(threading.enumerate())
    known = machines()
    known._limits = known._limits.changed(history_events=100)
    execution = begin(chain({"Type": "Map", "ItemProcessor": outer}), [[1] * 10] * 10, known)
    assert finish(execution).ending()["cause"].startswith("The execution reached the maximum number of history events")
    wait_for_the_end_of_all_but(before)


def test_a_branch_that_gets_no_thread_fails_its_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = Program.eval

    def no_thread_in_frames(program: Program, env: Any) -> None:
        if env.is_frame():
            raise RuntimeError("can't start new thread")
        evaluate(program, env)

    monkeypatch.setattr(Program, "eval", no_thread_in_frames)
    inner = {"StartAt": "M", "States": {"M": {"Type": "Pass", "End": True}}}
    assert failure(chain({"Type": "Parallel", "Branches": [inner]})) == ("States.Runtime", "can't start new thread")


def test_a_map_leaves_threads_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moto_patches, "MOST_THREADS", threading.active_count() + 8)
    inner = {"StartAt": "M", "States": {"M": {"Type": "Wait", "Seconds": 1, "End": True}}}
    assert output(chain({"Type": "Map", "ItemProcessor": inner}), [1]) == [1]
    many = failure(chain({"Type": "Map", "ItemProcessor": inner}), [1] * 40)
    assert many == ("States.Runtime", "can't start new thread")


def test_the_limit_of_a_state_s_output_counts_a_text_s_quotes() -> None:
    most = lambda_limits().state_payload_bytes - 2
    assert output(chain({"Type": "Pass", "Output": "x" * most}, QueryLanguage="JSONata")) == "x" * most
    error, _ = failure(chain({"Type": "Pass", "Output": "x" * (most + 1)}, QueryLanguage="JSONata"))
    assert error == "States.DataLimitExceeded"
