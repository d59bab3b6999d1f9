"""State machines for tests: how they are written, started and awaited through boto3."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

ROLE = "arn:aws:iam::000000000000:role/test"
ARN = "arn:aws:lambda:us-east-1:000000000000:function:"
INVOKE = "arn:aws:states:::lambda:invoke"
MACHINE = "arn:aws:states:us-east-1:000000000000:stateMachine:"
LIMIT_S = 60.0
Definition = dict[str, Any]


def chain(*states: Definition, **settings: Any) -> Definition:
    """A machine of these states one after another, named S0, S1 …"""
    named: Definition = {f"S{number}": dict(state) for number, state in enumerate(states)}
    for number in range(len(states)):
        if named[f"S{number}"]["Type"] not in ("Succeed", "Fail", "Choice"):
            last = number == len(states) - 1
            named[f"S{number}"] |= {"End": True} if last else {"Next": f"S{number + 1}"}
    return {"StartAt": "S0", "States": named, **settings}


def task(function: str, payload: Any, **settings: Any) -> Definition:
    """A Task with the function's ARN as its resource."""
    return {"Type": "Task", "Resource": ARN + function, "Parameters": payload, **settings}


def invocation(function: str, payload: Any, **settings: Any) -> Definition:
    """A Task of the integration lambda:invoke."""
    parameters = {"FunctionName": function, "Payload": payload}
    return {"Type": "Task", "Resource": INVOKE, "Parameters": parameters, **settings}


def branches(*states: Definition, **settings: Any) -> Definition:
    """A Parallel state with a branch for each of these."""
    machines = [
        {"StartAt": f"B{number}", "States": {f"B{number}": {**state, "End": True}}}
        for number, state in enumerate(states)
    ]
    return {"Type": "Parallel", "Branches": machines, **settings}


def create(client: Any, name: str, definition: Definition) -> str:
    """The ARN of a new machine."""
    arn: str = client.create_state_machine(name=name, definition=json.dumps(definition), roleArn=ROLE)[
        "stateMachineArn"
    ]
    return arn


def start(client: Any, name: str, definition: Definition, document: Any = None) -> str:
    """The ARN of an execution of a new machine."""
    machine = create(client, name, definition)
    arn: str = client.start_execution(stateMachineArn=machine, input=json.dumps(document or {}))["executionArn"]
    return arn


def ended(client: Any, execution: str) -> dict[str, Any]:
    """DescribeExecution once it has ended; the API has nothing to wait on."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        described: dict[str, Any] = client.describe_execution(executionArn=execution)
        if described["status"] != "RUNNING":
            return described
        time.sleep(0.01)
    raise TimeoutError(execution)


def run(client: Any, name: str, definition: Definition, document: Any = None) -> dict[str, Any]:
    """DescribeExecution of an execution of a new machine, once it has ended."""
    return ended(client, start(client, name, definition, document))


def history(client: Any, execution: str) -> list[dict[str, Any]]:
    """All events of an execution."""
    pages = client.get_paginator("get_execution_history").paginate(executionArn=execution)
    return [event for page in pages for event in page["events"]]


def kinds(client: Any, execution: str) -> list[str]:
    """The types of these events."""
    return [event["type"] for event in history(client, execution)]


def refusal(call: Callable[..., Any], **arguments: Any) -> str:
    """The code of an error that must come."""
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    code: str = raised.value.response["Error"]["Code"]
    return code


def came_true(condition: Callable[[], bool]) -> bool:
    """Whether it did within the limit."""
    deadline = time.monotonic() + LIMIT_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def told(client: Any, execution: str) -> list[dict[str, Any]]:
    """All events of an execution without their times."""
    return [{key: value for key, value in event.items() if key != "timestamp"} for event in history(client, execution)]


def answer(response: dict[str, Any]) -> dict[str, Any]:
    """What a service answered, without the client's metadata."""
    return {key: value for key, value in response.items() if key != "ResponseMetadata"}


def error(call: Callable[..., Any], **arguments: Any) -> tuple[str, str, int]:
    """Code, message and HTTP status of an error that must come."""
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    response: Any = raised.value.response
    return response["Error"]["Code"], response["Error"]["Message"], response["ResponseMetadata"]["HTTPStatusCode"]
