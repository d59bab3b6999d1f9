"""Tasks of Lambda functions: results, failures and tokens; each test has the number of a row."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.emulator.statemachines.written import (
    ARN,
    INVOKE,
    Definition,
    answer,
    came_true,
    chain,
    ended,
    error,
    history,
    kinds,
    run,
    start,
    told,
)

from slslab.lambda_.emulator import Emulator
from slslab.testing import create_function

pytestmark = pytest.mark.server

UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
WORKS = """
    def handler(event, context):
        if event.get("how") == "raise":
            raise ValueError("not this one")
        if event.get("how") == "large":
            return "x" * 262_143  # with its quotes a byte too many
        return event
"""
ALL = [{"ErrorEquals": ["States.ALL"], "Next": "S1"}]
DETAILS = {"resource": "invoke", "resourceType": "lambda"}
WAITING = {"resource": "invoke.waitForTaskToken", "resourceType": "lambda"}


@pytest.fixture(scope="module", autouse=True)
def works(emulator: Emulator) -> Iterator[None]:
    """The function `works`."""
    with closing(emulator.client("lambda")) as client:
        create_function(client, "works", WORKS)
        yield


def task(payload: Any, **settings: Any) -> Definition:
    """A Task of a function's ARN."""
    return {"Type": "Task", "Resource": ARN + "works", "Parameters": payload, **settings}


def invocation(payload: Any, further: Definition | None = None, **settings: Any) -> Definition:
    """A Task of lambda:invoke."""
    parameters = {"FunctionName": "works", "Payload": payload, **(further or {})}
    return {"Type": "Task", "Resource": INVOKE, "Parameters": parameters, **settings}


@pytest.mark.parametrize(
    ("further", "first", "own"),
    [
        ({}, [], {"ExecutedVersion": r"\$LATEST", "Payload": {"k": 1}, "StatusCode": 200}),
        (
            {"LogType": "Tail"},
            ["X-Amz-Log-Result"],
            {"ExecutedVersion": r"\$LATEST", "LogResult": "[A-Za-z0-9+/=]+", "Payload": {"k": 1}, "StatusCode": 200},
        ),
        ({"InvocationType": "Event"}, [], {"Payload": "", "StatusCode": 202}),
    ],
)
def test_s02_the_result_of_the_integration_has_lambdas_headers(
    states_client: Any, further: Definition, first: list[str], own: dict[str, Any]
) -> None:
    described = run(states_client, "result", chain(invocation({"k": 1}, further)))
    result = json.loads(described["output"])
    metadata = result.pop("SdkHttpMetadata")
    request_id = result.pop("SdkResponseMetadata")
    assert [*result] == [*own]
    for name, expected in own.items():
        assert re.fullmatch(expected, result[name]) if type(expected) is str else result[name] == expected
    assert re.fullmatch(UUID, request_id.pop("RequestId"))
    assert request_id == {}
    version = ["X-Amz-Executed-Version"] if "ExecutedVersion" in own else []
    names = [
        *first,
        *version,
        "x-amzn-Remapped-Content-Length",
        "Connection",
        "x-amzn-RequestId",
        "Content-Length",
        "Date",
        "X-Amzn-Trace-Id",
        "Content-Type",
    ]
    headers = metadata["HttpHeaders"]
    assert [*metadata] == ["AllHttpHeaders", "HttpHeaders", "HttpStatusCode"]
    assert [*metadata["AllHttpHeaders"]] == names
    assert [*headers] == sorted(names, key=str.lower)
    assert metadata["AllHttpHeaders"] == {name: [headers[name]] for name in names}
    assert metadata["HttpStatusCode"] == own["StatusCode"]
    assert (headers["Connection"], headers["Content-Type"]) == ("keep-alive", "application/json")
    assert headers["Content-Length"] == ("8" if own["Payload"] else "0")  # '{"k": 1}'
    assert headers["x-amzn-Remapped-Content-Length"] == "0"
    assert re.fullmatch(UUID, headers["x-amzn-RequestId"])
    assert re.match(r"[Rr]oot=1-[0-9a-f]{8}-[0-9a-f]{24};", headers["X-Amzn-Trace-Id"])
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", headers["Date"])
    assert headers.get("X-Amz-Log-Result") == result.get("LogResult")


@pytest.mark.parametrize("catch", ["States.ALL", "States.DataLimitExceeded"])
@pytest.mark.parametrize(("state", "name"), [(task, ARN + "works"), (invocation, "lambda")])
def test_s03_a_result_over_256_kib_is_caught(states_client: Any, state: Any, name: str, catch: str) -> None:
    caught = [{"ErrorEquals": [catch], "Next": "S1"}]
    execution = start(states_client, "large", chain(state({"how": "large"}, Catch=caught), {"Type": "Pass"}))
    described = ended(states_client, execution)
    what = "returned a result with a size exceeding the maximum number of bytes service limit."
    cause = f"The state/task '{name}' {what}"
    assert described["status"] == "SUCCEEDED"
    assert described["output"] == json.dumps(
        {"Error": "States.DataLimitExceeded", "Cause": cause}, separators=(",", ":")
    )
    details = {"error": "States.DataLimitExceeded", "cause": cause}
    fifth = {"id": 5, "previousEventId": 4}
    assert told(states_client, execution)[4] == (
        {**fifth, "type": "LambdaFunctionFailed", "lambdaFunctionFailedEventDetails": details}
        if state is task
        else {**fifth, "type": "TaskFailed", "taskFailedEventDetails": {**details, **DETAILS}}
    )


@pytest.mark.parametrize(("state", "kind"), [(task, "LambdaFunctionFailed"), (invocation, "TaskFailed")])
def test_s04_the_cause_of_a_function_s_error_is_compact(states_client: Any, state: Any, kind: str) -> None:
    execution = start(states_client, "compact", chain(state({"how": "raise"}, Catch=ALL), {"Type": "Pass"}))
    caught = json.loads(ended(states_client, execution)["output"])
    assert caught["Error"] == "ValueError"
    assert re.fullmatch(
        r'\{"errorMessage":"not this one","errorType":"ValueError","requestId":"' + UUID + r'","stackTrace":\[".+"\]\}',
        caught["Cause"],
    )
    failed = told(states_client, execution)[4]
    key = kind[0].lower() + kind[1:] + "EventDetails"
    further = {} if state is task else DETAILS
    assert failed == {
        "id": 5,
        "previousEventId": 4,
        "type": kind,
        key: {"error": "ValueError", "cause": caught["Cause"], **further},
    }


@pytest.mark.parametrize("qualifier", [None, "7"])
@pytest.mark.parametrize("integrated", [True, False])
def test_s06_a_missing_function_is_told_as_lambda_tells_it(
    states_client: Any, functions: Any, integrated: bool, qualifier: str | None
) -> None:
    name = f"absent:{qualifier}" if qualifier else "absent"
    state = {"Type": "Task", "Resource": INVOKE, "Parameters": {"FunctionName": name}} if integrated else {}
    machine = chain(state or {"Type": "Task", "Resource": ARN + name})
    described = run(states_client, "absent", machine)
    _, message, status = error(functions.invoke, FunctionName=name)
    assert described["error"] == "Lambda.ResourceNotFoundException"
    told_by, _, request_id = described["cause"].partition(f" (Service: Lambda, Status Code: {status}, Request ID: ")
    assert told_by == message == f"Function not found: {ARN}absent:{qualifier or '$LATEST'}"
    assert re.fullmatch(rf"{UUID}\)", request_id)


def token(client: Any, execution: str) -> str:
    """The token of the Task that waits."""
    assert came_true(lambda: any(event["type"] == "TaskSubmitted" for event in history(client, execution)))
    scheduled = next(event for event in history(client, execution) if event["type"] == "TaskScheduled")
    given: str = json.loads(scheduled["taskScheduledEventDetails"]["parameters"])["Payload"]["token"]
    return given


def waiting(**settings: Any) -> Definition:
    """A Task that waits for its token."""
    return invocation({"token.$": "$$.Task.Token"}, **settings) | {"Resource": f"{INVOKE}.waitForTaskToken"}


def test_s16_a_task_that_waits_succeeds_with_what_it_is_sent(states_client: Any) -> None:
    execution = start(states_client, "success", chain(waiting(TimeoutSeconds=60, HeartbeatSeconds=50)))
    given = token(states_client, execution)
    assert answer(states_client.send_task_heartbeat(taskToken=given)) == {}
    assert answer(states_client.send_task_success(taskToken=given, output='{ "k" : 1 }')) == {}
    assert ended(states_client, execution)["output"] == '{"k":1}'
    events = told(states_client, execution)
    assert [event["type"] for event in events] == [
        "ExecutionStarted",
        "TaskStateEntered",
        "TaskScheduled",
        "TaskStarted",
        "TaskSubmitted",
        "TaskSucceeded",
        "TaskStateExited",
        "ExecutionSucceeded",
    ]
    assert events[2]["taskScheduledEventDetails"] == {
        **WAITING,
        "region": "us-east-1",
        "parameters": json.dumps({"FunctionName": "works", "Payload": {"token": given}}, separators=(",", ":")),
        "timeoutInSeconds": 60,
        "heartbeatInSeconds": 50,
    }
    assert events[3]["taskStartedEventDetails"] == WAITING
    submitted = events[4]["taskSubmittedEventDetails"]
    assert json.loads(submitted.pop("output"))["Payload"] == {"token": given}
    assert submitted == {**WAITING, "outputDetails": {"truncated": False}}
    assert events[5]["taskSucceededEventDetails"] == {
        **WAITING,
        "output": '{"k":1}',
        "outputDetails": {"truncated": False},
    }


def test_s16_a_task_that_waits_fails_with_what_it_is_sent(states_client: Any) -> None:
    execution = start(states_client, "failure", chain(waiting(Catch=ALL), {"Type": "Pass"}))
    given = token(states_client, execution)
    assert answer(states_client.send_task_failure(taskToken=given, error="Mine", cause="why")) == {}
    assert json.loads(ended(states_client, execution)["output"]) == {"Error": "Mine", "Cause": "why"}
    assert told(states_client, execution)[5] == {
        "id": 6,
        "previousEventId": 5,
        "type": "TaskFailed",
        "taskFailedEventDetails": {**WAITING, "error": "Mine", "cause": "why"},
    }


def test_s16_a_task_that_waits_in_vain_times_out(states_client: Any) -> None:
    execution = start(states_client, "in-vain", chain(waiting(TimeoutSeconds=1)))
    described = ended(states_client, execution)
    assert (described["status"], described["error"], described.get("cause")) == ("FAILED", "States.Timeout", None)
    assert told(states_client, execution)[5] == {
        "id": 6,
        "previousEventId": 5,
        "type": "TaskTimedOut",
        "taskTimedOutEventDetails": {**WAITING, "error": "States.Timeout"},
    }


@pytest.mark.parametrize("name", ["States.Timeout", "States.HeartbeatTimeout"])
def test_a_missing_heartbeat_is_caught_by_both_of_its_names(states_client: Any, name: str) -> None:
    caught = {"ErrorEquals": [name], "Next": "S1"}
    definition = chain(waiting(HeartbeatSeconds=1, Catch=[caught]), {"Type": "Succeed"})
    described = ended(states_client, start(states_client, name.replace(".", "-"), definition))
    assert json.loads(described["output"]) == {"Error": "States.Timeout", "Cause": ""}


def test_s16_a_function_that_fails_leaves_nobody_waiting(states_client: Any) -> None:
    task = invocation({"how": "raise", "t.$": "$$.Task.Token"}) | {"Resource": f"{INVOKE}.waitForTaskToken"}
    execution = start(states_client, "fails-first", chain(task))
    assert ended(states_client, execution)["error"] == "ValueError"
    details = told(states_client, execution)[4]["taskFailedEventDetails"]
    assert {key: details[key] for key in ("resource", "resourceType", "error")} == {**WAITING, "error": "ValueError"}


def test_s11_tokens_and_outputs_that_are_none(states_client: Any) -> None:
    unknown = ("InvalidToken", "Invalid Token: 'Invalid token'", 400)
    assert error(states_client.send_task_success, taskToken="nobody", output="1") == unknown
    assert error(states_client.send_task_failure, taskToken="nobody") == unknown
    assert error(states_client.send_task_heartbeat, taskToken="nobody") == unknown
    assert error(states_client.send_task_success, taskToken="nobody", output="not json") == (
        "InvalidOutput",
        "Invalid Output: 'Expecting value: line 1 column 1 (char 0)'",
        400,
    )


def test_a_token_is_used_once(states_client: Any) -> None:
    """measured, as users report it: the message for a token after its Task has ended."""
    gone = ("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'", 400)
    execution = start(states_client, "once", chain(waiting(TimeoutSeconds=60)))
    given = token(states_client, execution)
    states_client.send_task_success(taskToken=given, output='"first"')
    assert error(states_client.send_task_success, taskToken=given, output='"second"') == gone
    assert ended(states_client, execution)["output"] == '"first"'
    assert error(states_client.send_task_success, taskToken=given, output='"third"') == gone
    assert error(states_client.send_task_failure, taskToken=given) == gone
    assert error(states_client.send_task_heartbeat, taskToken=given) == gone


def test_a_task_that_is_tried_again_has_a_token_of_its_own(states_client: Any) -> None:
    retry = [{"ErrorEquals": ["Again"], "IntervalSeconds": 1, "MaxAttempts": 1}]
    execution = start(states_client, "again", chain(waiting(TimeoutSeconds=60, Retry=retry)))
    first = token(states_client, execution)
    states_client.send_task_failure(taskToken=first, error="Again", cause="")
    assert came_true(lambda: kinds(states_client, execution).count("TaskSubmitted") == 2)
    scheduled = [event for event in history(states_client, execution) if event["type"] == "TaskScheduled"]
    second = json.loads(scheduled[1]["taskScheduledEventDetails"]["parameters"])["Payload"]["token"]
    assert second != first
    assert error(states_client.send_task_success, taskToken=first, output="1")[0] == "TaskTimedOut"
    states_client.send_task_success(taskToken=second, output="2")
    assert ended(states_client, execution)["output"] == "2"
