"""Step Functions as boto3 sees it: what runs, what it costs, what is refused, and that nothing stays behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from botocore.exceptions import ClientError
from tests.emulator.statemachines.conftest import MEETING, Meeting
from tests.emulator.statemachines.written import (
    ARN,
    INVOKE,
    ROLE,
    Definition,
    branches,
    came_true,
    chain,
    create,
    ended,
    history,
    invocation,
    kinds,
    refusal,
    run,
    start,
    task,
)

from slslab.aws.clients import aws_client
from slslab.aws.keys import Keyring
from slslab.errors import HostError
from slslab.lambda_.emulator import Emulator
from slslab.run.log import TraceWriter, load
from slslab.run.metrics import orchestration_seconds, totals
from slslab.stack.state_machines import EmbeddedStateMachines
from slslab.statemachines.history import read_transitions
from slslab.testing import create_function

pytestmark = pytest.mark.server

INNER: Definition = {"StartAt": "M", "States": {"M": {"Type": "Fail"}}}

STARTS_NEXT = """
    import boto3, json

    def handler(event, context):
        states = boto3.client("stepfunctions")
        started = states.start_execution(
            stateMachineArn=event["machine"], name="epoch-2", input=json.dumps({"epoch": event["epoch"] + 1})
        )
        return started["executionArn"]
"""


@pytest.fixture(scope="module")
def events() -> list[dict[str, Any]]:
    """What `small` tells of transitions."""
    return []


@pytest.fixture(scope="module")
def small(emulator: Emulator, events: list[dict[str, Any]]) -> Iterator[EmbeddedStateMachines]:
    """State machines with limits that are soon reached."""
    limits = emulator.limits.changed(
        history_events=30, state_payload_bytes=2000, definition_bytes=5000, map_concurrency=2
    )
    with EmbeddedStateMachines(
        emulator.endpoint, emulator.keys, emulator.mark, limits=limits, on_event=events.append
    ) as states:
        states.ready()
        yield states


@pytest.fixture
def small_client(small: EmbeddedStateMachines, emulator: Emulator) -> Iterator[Any]:
    """A client of these."""
    with closing(aws_client("stepfunctions", small.endpoint, emulator.keys.owner)) as client:
        yield client
        for machine in client.list_state_machines()["stateMachines"]:
            client.delete_state_machine(stateMachineArn=machine["stateMachineArn"])


def test_branches_run_at_once_and_take_their_part_of_the_input(states_client: Any, meeting: Meeting) -> None:
    of_input = {"port.$": "$$.Execution.Input.port"}
    parts = [task("meet", {**of_input, "item.$": f"$$.Execution.Input.batch_rank[{i}]"}) for i in range(4)]
    execution = start(
        states_client, "at-once", chain(branches(*parts)), {"port": meeting.port, "batch_rank": [7, 5, 3, 1]}
    )
    meeting.wait(4)
    assert states_client.describe_execution(executionArn=execution)["status"] == "RUNNING"
    meeting.go_on()
    described = ended(states_client, execution)
    assert described["status"] == "SUCCEEDED"
    assert json.loads(described["output"]) == [7, 5, 3, 1]
    assert described["stopDate"] >= described["startDate"]


def test_an_epoch_of_spirt_has_as_many_transitions_as_its_batches_and_eight(states_client: Any) -> None:
    batches = branches(*[task("fail", {"how": 1})] * 3)
    before, after = [{"Type": "Pass"}], [{"Type": "Pass"}] * 6
    execution = start(states_client, "epoch", chain(*before, batches, *after))
    assert ended(states_client, execution)["status"] == "SUCCEEDED"
    assert len(read_transitions(history(states_client, execution))) == 3 + 8


def test_transitions_of_histories_counted_by_hand() -> None:
    def counted(*events: tuple[str, int]) -> int:
        named = {"stateEnteredEventDetails": {"name": "S"}, "stateExitedEventDetails": {"name": "S"}, "timestamp": 0}
        return len(
            read_transitions({"id": n, "type": t, "previousEventId": p, **named} for n, (t, p) in enumerate(events, 1))
        )

    started, ended = ("ExecutionStarted", 0), ("ExecutionSucceeded", 0)
    attempt, failed = ("LambdaFunctionScheduled", 2), ("LambdaFunctionFailed", 3)
    assert counted(started, ended) == 0
    assert counted(started, ("PassStateEntered", 0), ("PassStateExited", 2), ended) == 1
    assert counted(started, ("TaskStateEntered", 0), attempt, failed, ("LambdaFunctionScheduled", 4)) == 2
    # Entered, and failed before its function was called: an attempt that cannot be seen, and no retry.
    assert counted(started, ("TaskStateEntered", 0), ("TaskFailed", 2), ("ExecutionFailed", 3)) == 1
    parallel = (("ParallelStateEntered", 0), ("ParallelStateStarted", 2))
    inside = (("TaskStateEntered", 3), ("TaskScheduled", 4), ("TaskStateEntered", 3), ("TaskScheduled", 6))
    assert counted(started, *parallel, *inside) == 3
    again = (("TaskFailed", 7), ("ParallelStateStarted", 8), ("TaskStateEntered", 9), ("TaskStateEntered", 9))
    assert counted(started, *parallel, *inside, *again) == 3 + 1 + 2
    mapped = (("MapStateEntered", 0), ("MapStateStarted", 2), ("MapIterationStarted", 3), ("PassStateEntered", 4))
    assert counted(started, *mapped) == 2


@pytest.mark.parametrize("state", [task, invocation])
def test_a_failed_function_fails_the_execution_with_its_error_type_and_its_payload(
    states_client: Any, state: Callable[..., Definition]
) -> None:
    errors = {
        "raise": "ValueError",
        "exit": "Runtime.ExitError",
        "memory": "Runtime.OutOfMemory",
        "wait": "Sandbox.Timedout",
    }
    of = {how: state("slow" if how == "wait" else "fail", {"how": how}) for how in errors}
    executions = {how: start(states_client, f"fails-{how}", chain(of[how])) for how in errors}
    described = {how: ended(states_client, execution) for how, execution in executions.items()}
    assert {how: (d["status"], d["error"]) for how, d in described.items()} == {
        how: ("FAILED", error) for how, error in errors.items()
    }
    causes = {how: json.loads(d["cause"]) for how, d in described.items()}
    assert {how: cause["errorType"] for how, cause in causes.items()} == errors
    assert causes["raise"]["errorMessage"] == "not this one"
    assert "Task timed out after 1.00 seconds" in causes["wait"]["errorMessage"]
    last = history(states_client, executions["raise"])[-2:]
    kind = "LambdaFunctionFailed" if state is task else "TaskFailed"
    assert [event["type"] for event in last] == [kind, "ExecutionFailed"]


@pytest.mark.parametrize("state", [task, invocation])
def test_an_invocation_that_lambda_refuses_fails_with_lambdas_error(
    states_client: Any, functions: Any, state: Callable[..., Definition]
) -> None:
    name = f"throttled-{state.__name__}"
    create_function(functions, name, MEETING)
    functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    throttled = run(states_client, "throttled", chain(state(name, {})))
    assert throttled["error"] == "Lambda.TooManyRequestsException"
    assert throttled["cause"].startswith("Rate Exceeded. (Service: Lambda, Status Code: 429, Request ID: ")
    absent = run(states_client, "absent", chain(state("absent", {})))
    assert absent["error"] == "Lambda.ResourceNotFoundException"


def test_the_integration_returns_the_response_and_a_function_its_payload(states_client: Any) -> None:
    described = run(states_client, "response", chain(invocation("fail", {"how": 2})))
    response = json.loads(described["output"])
    assert (response["Payload"], response["StatusCode"]) == ("xx", 200)
    assert response["ExecutedVersion"] == "$LATEST"
    assert response["SdkResponseMetadata"]["RequestId"]
    assert json.loads(run(states_client, "payload", chain(task("fail", {"how": 2})))["output"]) == "xx"


def test_retries_are_transitions_and_what_is_caught_goes_on(states_client: Any) -> None:
    retry = {"Retry": [{"ErrorEquals": ["ValueError"], "IntervalSeconds": 1, "MaxAttempts": 1}]}
    catch = {"Catch": [{"ErrorEquals": ["States.ALL"], "Next": "S1"}]}
    failing = task("fail", {"how": "raise"})
    alone = start(states_client, "retry", chain({**failing, **retry, **catch}, {"Type": "Pass"}))
    together = start(states_client, "retries", chain(branches(failing, **retry, **catch), {"Type": "Pass"}))
    mapped = {
        "Type": "Map",
        "Iterator": {"StartAt": "M", "States": {"M": {**failing, "End": True}}},
        "Parameters": {"how": "raise"},
        "ItemsPath": "$.items",
        **retry,
        **catch,
    }
    iterated = start(states_client, "iterations", chain(mapped, {"Type": "Pass"}), {"items": [1]})
    for execution, expected in ((alone, 3), (together, 5), (iterated, 5)):
        described = ended(states_client, execution)
        assert described["status"] == "SUCCEEDED", described
        assert json.loads(described["output"])["Error"] == "ValueError"
        assert len(read_transitions(history(states_client, execution))) == expected


def test_a_branch_that_is_stopped_says_no_more(states_client: Any, meeting: Meeting) -> None:
    choice = {"Type": "Task", "Resource": ARN + "meet", "Parameters": {"port": meeting.port}}
    failing = chain(branches(choice, {"Type": "Fail", "Error": "Mine", "Cause": "why"}))
    failure = failing["States"]["S0"]["Branches"][1]
    failure["States"]["B1"].pop("End")
    # It fails only when the other branch is in its function for sure.
    with closing(Meeting()) as first:
        failure["StartAt"] = "Meet"
        failure["States"]["Meet"] = {**choice, "Parameters": {"port": first.port}, "Next": "B1"}
        failure["States"]["Meet"].pop("End", None)
        execution = start(states_client, "stopped-branch", failing)
        first.wait(1)
        meeting.wait(1)
        first.go_on()
        described = ended(states_client, execution)
    assert (described["status"], described["error"], described["cause"]) == ("FAILED", "Mine", "why")
    before = history(states_client, execution)
    meeting.go_on()
    assert run(states_client, "later", chain({"Type": "Pass"}))["status"] == "SUCCEEDED"
    assert history(states_client, execution) == before


def test_time_outs_of_a_task_and_of_a_machine(states_client: Any, meeting: Meeting) -> None:
    waiting = task("meet", {"port": meeting.port})
    of_task = start(states_client, "task-time-out", chain({**waiting, "TimeoutSeconds": 1}))
    of_machine = start(states_client, "time-out", chain({"Type": "Wait", "Seconds": 60}, TimeoutSeconds=1))
    described = ended(states_client, of_task)
    assert (described["status"], described["error"]) == ("FAILED", "States.Timeout")
    assert ended(states_client, of_machine)["status"] == "TIMED_OUT"
    assert history(states_client, of_machine)[-1]["type"] == "ExecutionTimedOut"


def test_s03_a_large_result_is_caught_and_a_large_input_of_an_execution_refused(small_client: Any) -> None:
    echo = create(small_client, "echo", chain({"Type": "Pass"}))
    large = json.dumps("x" * 1999)
    assert refusal(small_client.start_execution, stateMachineArn=echo, input=large) == "ValidationException"
    catch = {"Catch": [{"ErrorEquals": ["States.ALL"], "Next": "S1"}]}
    for state in (task, invocation):
        for how, error in ((1000, None), (2100, "States.DataLimitExceeded")):
            machine = chain({**state("fail", {"how": how}), **catch}, {"Type": "Pass"})
            described = run(small_client, f"{state.__name__}-{how}", machine)
            assert described["status"] == "SUCCEEDED"
            output = json.loads(described["output"])
            assert (output.get("Error") if isinstance(output, dict) else None) == error
    by_name = {"Catch": [{"ErrorEquals": ["States.DataLimitExceeded"], "Next": "S1"}]}
    caught = run(small_client, "by-name", chain({**task("fail", {"how": 2100}), **by_name}, {"Type": "Pass"}))
    assert caught["status"] == "SUCCEEDED"
    grown = chain({"Type": "Pass", "Result": "x" * 1500, "ResultPath": "$.more"})
    assert run(small_client, "grown", grown, {"text": "x" * 1500})["error"] == "States.DataLimitExceeded"


def test_an_execution_whose_history_is_full_fails_whatever_it_catches(small_client: Any) -> None:
    execution = start(small_client, "long", chain(*[{"Type": "Pass"}] * 30))
    described = ended(small_client, execution)
    assert (described["status"], described["error"]) == ("FAILED", "States.Runtime")
    assert described["cause"] == "The execution reached the maximum number of history events (30)."
    found = history(small_client, execution)
    assert (len(found), found[-1]["type"]) == (30, "ExecutionFailed")
    assert len(read_transitions(found)) == 14
    retry = {"Retry": [{"ErrorEquals": ["States.ALL"]}], "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "S1"}]}
    wide = start(small_client, "wide", chain(branches(*[task("fail", {"how": 1})] * 8, **retry), {"Type": "Pass"}))
    assert ended(small_client, wide)["error"] == "States.Runtime"
    assert len(history(small_client, wide)) == 30


def test_a_map_runs_its_items_up_to_the_limit_at_once(small_client: Any, meeting: Meeting) -> None:
    mapped = {
        "Type": "Map",
        "ItemsPath": "$.items",
        "Parameters": {"port.$": "$.port", "item.$": "$$.Map.Item.Value"},
        "ItemProcessor": {"StartAt": "M", "States": {"M": {"Type": "Task", "Resource": ARN + "meet", "End": True}}},
    }
    execution = start(small_client, "map", chain(mapped), {"items": [1, 2, 3], "port": meeting.port})
    meeting.wait(2)
    assert [event["type"] for event in history(small_client, execution)].count("TaskStateEntered") == 2
    meeting.go_on()
    meeting.wait(1)
    meeting.go_on()
    assert json.loads(ended(small_client, execution)["output"]) == [1, 2, 3]
    assert len(read_transitions(history(small_client, execution))) == 1 + 3


def test_pages_of_a_history_its_order_and_its_data(states_client: Any) -> None:
    execution = start(states_client, "pages", chain(*[{"Type": "Pass"}] * 5), {"a": 1})
    ended(states_client, execution)
    whole = history(states_client, execution)
    assert [event["id"] for event in whole] == list(range(1, 13))
    pages = states_client.get_paginator("get_execution_history").paginate(
        executionArn=execution, reverseOrder=True, includeExecutionData=False, PaginationConfig={"PageSize": 5}
    )
    sizes, backwards = zip(*[(len(page["events"]), page["events"]) for page in pages], strict=True)
    assert sizes == (5, 5, 2)
    flat = [event for page in backwards for event in page]
    assert [event["id"] for event in flat] == list(range(12, 0, -1))
    assert json.loads(whole[0]["executionStartedEventDetails"]["input"]) == {"a": 1}
    assert "input" not in flat[-1]["executionStartedEventDetails"]
    call = states_client.get_execution_history
    assert refusal(call, executionArn=execution, nextToken="?") == "InvalidToken"
    assert refusal(call, executionArn=execution, maxResults=1001) == "ValidationException"


def test_names_of_executions(states_client: Any) -> None:
    machine = create(states_client, "names", chain({"Type": "Wait", "SecondsPath": "$.seconds"}))
    begin = states_client.start_execution
    first, second = (begin(stateMachineArn=machine, input='{"seconds": 0}') for _ in range(2))
    assert first["executionArn"] != second["executionArn"]
    named = begin(stateMachineArn=machine, name="mine", input='{"seconds": 3600}')
    assert named["executionArn"] == "arn:aws:states:us-east-1:000000000000:execution:names:mine"
    same = begin(stateMachineArn=machine, name="mine", input='{"seconds": 3600}')
    assert (same["executionArn"], same["startDate"]) == (named["executionArn"], named["startDate"])
    taken = {"stateMachineArn": machine, "name": "mine"}
    assert refusal(begin, **taken, input='{"seconds": 1}') == "ExecutionAlreadyExists"
    states_client.stop_execution(executionArn=named["executionArn"])
    assert refusal(begin, **taken, input='{"seconds": 3600}') == "ExecutionAlreadyExists"
    for name in ("a b", "a/b", "x" * 81, "a\x1fb"):
        assert refusal(begin, stateMachineArn=machine, name=name) == "InvalidName"
    for execution in (first, second):
        ended(states_client, execution["executionArn"])
    listed = states_client.get_paginator("list_executions").paginate(
        stateMachineArn=machine, statusFilter="SUCCEEDED", PaginationConfig={"PageSize": 1}
    )
    found = [execution["executionArn"] for page in listed for execution in page["executions"]]
    assert found == [second["executionArn"], first["executionArn"]]


def test_an_execution_that_is_stopped_ends_at_once(states_client: Any, meeting: Meeting) -> None:
    states = chain(branches({"Type": "Wait", "Seconds": 3600}, task("meet", {"port": meeting.port})))
    execution = start(states_client, "stopped", states)
    meeting.wait(1)
    stopped = states_client.stop_execution(executionArn=execution, error="Enough", cause="of it")
    described = states_client.describe_execution(executionArn=execution)
    assert (described["status"], described["error"], described["cause"]) == ("ABORTED", "Enough", "of it")
    assert described["stopDate"] == stopped["stopDate"]
    assert history(states_client, execution)[-1]["type"] == "ExecutionAborted"
    assert states_client.stop_execution(executionArn=execution)["stopDate"] == stopped["stopDate"]


def test_a_function_starts_the_next_execution(states_client: Any, functions: Any) -> None:
    create_function(functions, "next", STARTS_NEXT, Timeout=60)
    machine = create(states_client, "next-epoch", chain({"Type": "Pass", "Parameters": {"of.$": "$.epoch"}}))
    described = run(states_client, "first-epoch", chain(task("next", {"machine": machine, "epoch": 1})))
    following = json.loads(described["output"])
    assert json.loads(ended(states_client, following)["output"]) == {"of": 2}


def test_a_task_waits_for_its_token(states_client: Any) -> None:
    waiting = invocation("fail", {"how": 1, "token.$": "$$.Task.Token"}) | {"Resource": INVOKE + ".waitForTaskToken"}
    executions = [start(states_client, f"token-{number}", chain(waiting)) for number in range(2)]
    tokens = []
    for execution in executions:
        assert came_true(lambda arn=execution: "TaskSubmitted" in kinds(states_client, arn))  # type: ignore[misc]
        event = next(e for e in history(states_client, execution) if e["type"] == "TaskScheduled")
        tokens.append(json.loads(event["taskScheduledEventDetails"]["parameters"])["Payload"]["token"])
    states_client.send_task_heartbeat(taskToken=tokens[0])
    states_client.send_task_success(taskToken=tokens[0], output='{"done": true}')
    states_client.send_task_failure(taskToken=tokens[1], error="Late", cause="too")
    assert json.loads(ended(states_client, executions[0])["output"]) == {"done": True}
    assert ended(states_client, executions[1])["error"] == "Late"
    assert refusal(states_client.send_task_success, taskToken="none", output="1") == "InvalidToken"
    assert refusal(states_client.send_task_success, taskToken="none", output="?") == "InvalidOutput"


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        ("{", "INVALID_JSON_DESCRIPTION"),
        ("[]", "SCHEMA_VALIDATION_FAILED"),
        (" " * 5001, "INVALID_DEFINITION_LENGTH"),
        ({"StartAt": "A"}, "SCHEMA_VALIDATION_FAILED"),
        ({"StartAt": ["A"], "States": {"A": {"Type": "Succeed"}}}, "Expected value of type String at /StartAt"),
        (
            {"StartAt": "A", "States": {"A": {"Type": "Choice", "Choices": 5, "Default": "B"}, "B": {"Type": "Fail"}}},
            "SCHEMA_VALIDATION_FAILED",
        ),
        ({"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "A"}}}, "MISSING_END_STATE: Workflow has no termi"),
        ({"StartAt": "B", "States": {"A": {"Type": "Succeed"}}}, "MISSING_TRANSITION_TARGET"),
        (
            {"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "B"}}},
            "Missing 'Next' target: B at /States/A/Next",
        ),
        (
            {"StartAt": "A", "States": {"A": {"Type": "Pass"}}},
            "only one of the following fields: [Next, End] at /States/A",
        ),
        (chain({"Type": "Pass"}) | {"StartAt": "S1"}, "MISSING_TRANSITION_TARGET"),
        ({"StartAt": "A", "States": {"A": {"Type": "Fail"}, "B": {"Type": "Fail"}}}, '"B" is not reachable'),
        ({"StartAt": "A", "States": {"A": {"Type": "Work", "End": True}}}, "The field 'Type'"),
        ({"StartAt": "A" * 81, "States": {"A" * 81: {"Type": "Fail"}}}, "longer than 80 characters"),
        (chain(branches({"Type": "Pass"}), branches({"Type": "Pass"})), "DUPLICATE_STATE_NAME"),
        (chain({"Type": "Parallel"}), "These fields are required: [Branches] at /States/S0"),
        (chain({"Type": "Map"}), "[ItemProcessor, Iterator] at /States/S0"),
        (chain({"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage"}), "/States/S0/Resource"),
        (chain({"Type": "Pass", "QueryLanguage": "XPath"}), "[JSONPath, JSONata] at /States/S0/QueryLanguage"),
        (chain({"Type": "Pass", "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "X"}]}), "Catch[0]/Next"),
        (chain({"Type": "Wait", "Seconds": "soon"}), "SCHEMA_VALIDATION_FAILED"),
        (
            chain({"Type": "Map", "ItemProcessor": {**INNER, "ProcessorConfig": {"Mode": "DISTRIBUTED"}}}),
            "Map only in inline mode",
        ),
    ],
)
def test_what_is_no_state_machine_is_refused(small_client: Any, definition: Definition | str, problem: str) -> None:
    text = definition if isinstance(definition, str) else json.dumps(definition)
    with pytest.raises(ClientError) as raised:
        small_client.create_state_machine(name="wrong", definition=text, roleArn=ROLE)
    error = raised.value.response["Error"]
    assert error["Code"] == "InvalidDefinition"
    assert problem in error["Message"]


def test_machines_are_made_changed_listed_and_deleted(states_client: Any) -> None:
    first, second = chain({"Type": "Pass", "Result": 1}), chain({"Type": "Pass", "Result": 2})
    arn = create(states_client, "machine", first)
    assert create(states_client, "machine", first) == arn
    make = states_client.create_state_machine
    made = {"name": "machine", "definition": json.dumps(second), "roleArn": ROLE}
    assert refusal(make, **made) == "StateMachineAlreadyExists"
    assert refusal(make, **made | {"name": "a b"}) == "InvalidName"
    assert refusal(make, **made | {"name": "other", "roleArn": "nobody"}) == "InvalidArn"
    assert refusal(make, **made | {"name": "other", "type": "EXPRESS"}) == "StateMachineTypeNotSupported"
    assert refusal(make, **made | {"name": "other", "versionDescription": "1"}) == "ValidationException"
    described = states_client.describe_state_machine(stateMachineArn=arn)
    assert (json.loads(described["definition"]), described["status"], described["type"]) == (
        first,
        "ACTIVE",
        "STANDARD",
    )
    before = states_client.start_execution(stateMachineArn=arn)["executionArn"]
    states_client.update_state_machine(stateMachineArn=arn, definition=json.dumps(second))
    after = states_client.start_execution(stateMachineArn=arn)["executionArn"]
    assert [ended(states_client, execution)["output"] for execution in (before, after)] == ["1", "2"]
    own = states_client.describe_state_machine_for_execution(executionArn=before)
    assert json.loads(own["definition"]) == first
    assert refusal(states_client.update_state_machine, stateMachineArn=arn) == "MissingRequiredParameter"
    create(states_client, "machine-2", first)
    pages = states_client.get_paginator("list_state_machines").paginate(PaginationConfig={"PageSize": 1})
    assert [m["name"] for page in pages for m in page["stateMachines"]] == ["machine", "machine-2"]
    waiting = start(states_client, "waiting", chain({"Type": "Wait", "Seconds": 3600}))
    for name in ("machine", "waiting"):
        target = f"arn:aws:states:us-east-1:000000000000:stateMachine:{name}"
        states_client.delete_state_machine(stateMachineArn=target)
        assert refusal(states_client.describe_state_machine, stateMachineArn=target) == "StateMachineDoesNotExist"
    for execution in (before, waiting):
        assert refusal(states_client.describe_execution, executionArn=execution) == "ExecutionDoesNotExist"
    assert refusal(states_client.start_execution, stateMachineArn=arn) == "StateMachineDoesNotExist"
    assert refusal(states_client.describe_execution, executionArn="nothing") == "InvalidArn"
    assert refusal(states_client.list_activities) == "UnknownOperationException"


def test_input_that_is_no_json_is_refused(states_client: Any) -> None:
    machine = create(states_client, "input", chain({"Type": "Pass"}))
    assert refusal(states_client.start_execution, stateMachineArn=machine, input="{") == "InvalidExecutionInput"


def test_transitions_stand_in_the_trace_with_their_invocations(
    small_client: Any, events: list[dict[str, Any]], tmp_path: Path
) -> None:
    retry = {"Retry": [{"ErrorEquals": ["ValueError"], "IntervalSeconds": 1, "MaxAttempts": 1}]}
    machine = chain({"Type": "Pass"}, task("fail", {"how": "raise"}, **retry))
    execution = start(small_client, "traced", machine, {"rank": 2, "epoch": 3})
    name = execution.rpartition(":")[2]
    assert ended(small_client, execution)["status"] == "FAILED"
    count = len(read_transitions(history(small_client, execution)))

    def own() -> list[dict[str, Any]]:
        return [event for event in events if event["resource"].startswith(name)]

    assert came_true(lambda: len(own()) == count == 3)
    assert [(event["resource"].partition("/")[2], event["failed"]) for event in own()] == [
        ("S0", False),
        ("S1", True),
        ("S1", True),
    ]
    assert {(event["op"], event["worker"], event["epoch"]) for event in own()} == {("transition", 2, 3)}
    assert [bool(event["invocation"]) for event in own()] == [False, True, True]
    # The input of the state that was entered, of a repeated attempt, too.
    inputs = [
        event["stateEnteredEventDetails"]["input"]
        for event in history(small_client, execution)
        if "stateEnteredEventDetails" in event
    ]
    assert [event["bytes"] for event in own()] == [len(inputs[number].encode()) for number in (0, 1, 1)]
    with TraceWriter(tmp_path / "trace.jsonl", "run") as writer:
        for event in own():
            writer.write(event)
    found = load(tmp_path).events
    assert [event["causes"] for event in found] == [[], [], []]
    figures = totals(found, [])
    assert figures["counts"] == {"transition": 3}
    # The wait between the attempts, and whatever the attempts took: no invocation is in this trace.
    assert figures["orchestration_seconds"] == orchestration_seconds(found)
    assert figures["orchestration_seconds"] >= 1
    assert figures["per_worker"] == []


def test_it_starts_with_the_first_request_if_it_is_told_so(emulator: Emulator) -> None:
    with EmbeddedStateMachines(emulator.endpoint, emulator.keys, emulator.mark, lazy=True) as states:
        states.ready()
        assert states.pid is None
    with EmbeddedStateMachines(emulator.endpoint, emulator.keys, emulator.mark, lazy=True) as states:
        with socket.create_connection(("127.0.0.1", int(states.endpoint.rpartition(":")[2]))):
            assert came_true(lambda: states.pid is not None)
        process = psutil.Process(states.pid)
    assert not process.is_running()


def test_a_process_that_does_not_start() -> None:
    with (
        EmbeddedStateMachines("http://127.0.0.1:1", Keyring(), {"PYTHONHOME": "/nowhere"}) as states,
        pytest.raises(HostError, match="The embedded Step Functions did not start: "),
    ):
        states.ready()


def test_the_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    program = """
        import time
        from slslab.aws.keys import Keyring
        from slslab.stack.state_machines import EmbeddedStateMachines

        with EmbeddedStateMachines("http://127.0.0.1:1", Keyring(), {}) as states:
            states.ready()
            print(states.pid, flush=True)
            time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
    assert came_true(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_the_documentation_runs_as_it_stands(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "services.md").read_text()
    program = text.partition("```python\n")[2].partition("```")[0]
    expected = text.partition("$ python machine.py\n")[2].partition("```")[0]
    (tmp_path / "machine.py").write_text(program)
    told = subprocess.run([sys.executable, "machine.py"], cwd=tmp_path, capture_output=True, text=True)
    assert told.stdout == expected, told.stderr
