"""Step Functions' HTTP API (AWS JSON 1.0); unmodified boto3 and the aws CLI are its clients.

https://docs.aws.amazon.com/step-functions/latest/apireference/API_Operations.html
"""

import base64
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from slslab.aws import requests
from slslab.aws.errors import ServiceError, constraint
from slslab.aws.gate import principal
from slslab.aws.keys import Principal
from slslab.aws.limits import MB
from slslab.statemachines.executions import Execution, Machine, Machines
from slslab.statemachines.interpreter import failure, success

PAGE = 100
# assumed: a definition of 1 MB, the largest member of all, to whose every character JSON may add a backslash.
LARGEST_BODY = 3 * MB
SETTINGS: Mapping[str, Any] = {
    "loggingConfiguration": {"level": "OFF", "includeExecutionData": False},
    "tracingConfiguration": {"enabled": False},
    "encryptionConfiguration": {"type": "AWS_OWNED_KEY"},
}
Members = Mapping[str, Any]


class StatesApi:
    """The operations of the API over the state machines."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._operations: Mapping[str, Callable[[Members], dict[str, Any]]] = {
            "CreateStateMachine": self._create,
            "DescribeStateMachine": self._describe,
            "DescribeStateMachineForExecution": self._describe_for_execution,
            "UpdateStateMachine": self._update,
            "DeleteStateMachine": self._delete,
            "ListStateMachines": self._list,
            "StartExecution": self._start,
            "DescribeExecution": self._describe_execution,
            "StopExecution": self._stop,
            "ListExecutions": self._list_executions,
            "GetExecutionHistory": self._history,
            "SendTaskSuccess": self._task_success,
            "SendTaskFailure": self._task_failure,
            "SendTaskHeartbeat": self._task_heartbeat,
        }

    def application(self) -> Starlette:
        """Return the ASGI application."""
        return Starlette(routes=[Route("/", self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> Response:
        operation = _operation(request.headers)
        # In a thread: a definition may take tens of milliseconds to parse.
        status, document = await run_in_threadpool(self._call, operation, await request.body(), principal(request))
        headers = {"x-amzn-RequestId": str(uuid.uuid4())}
        return Response(json.dumps(document), status, headers, media_type="application/x-amz-json-1.0")

    def _call(self, operation: str, body: bytes, caller: Principal) -> tuple[int, dict[str, Any]]:
        try:
            if operation not in self._operations:
                raise ServiceError(
                    400,
                    "UnknownOperationException",
                    f"slslab does not emulate Step Functions' operation {operation or 'without X-Amz-Target'}",
                )
            given = requests.members("stepfunctions", operation, body)
            caller.require(f"states:{operation}", given.get("stateMachineArn") or given.get("executionArn") or "*")
            return 200, self._operations[operation](given)
        except ServiceError as error:
            # documented: CommonErrors.html: every error of a client's has status 400.
            return 400 if error.status < 500 else error.status, {"__type": error.error_type, "message": error.message}
        except Exception as error:  # a defect of ours, in the form of AWS's own
            return 500, {"__type": "InternalServerError", "message": f"{type(error).__name__}: {error}"}

    def _create(self, members: Members) -> dict[str, Any]:
        if members.get("type", "STANDARD") != "STANDARD":
            raise ServiceError(
                400, "StateMachineTypeNotSupported", "slslab emulates only state machines of type STANDARD"
            )
        if members.get("publish"):
            raise ServiceError(400, "ValidationException", "slslab does not emulate versions of state machines")
        machine = self._machines.create(
            members["name"], members["definition"], members["roleArn"], {**SETTINGS, **_settings(members)}
        )
        return {"stateMachineArn": machine.arn, "creationDate": machine.created}

    def _describe(self, members: Members) -> dict[str, Any]:
        machine = self._machines.machine(members["stateMachineArn"])
        return {**_described(machine), "status": "ACTIVE", "type": "STANDARD", "creationDate": machine.created}

    def _describe_for_execution(self, members: Members) -> dict[str, Any]:
        machine = self._machines.execution(members["executionArn"]).machine
        return {**_described(machine), "updateDate": machine.updated or machine.created}

    def _update(self, members: Members) -> dict[str, Any]:
        if not {"definition", "roleArn", *SETTINGS} & members.keys():
            raise ServiceError(
                400,
                "MissingRequiredParameter",
                "Either the definition, the role ARN, the LoggingConfiguration, or the TracingConfiguration must be "
                "specified",
            )
        machine = self._machines.update(
            members["stateMachineArn"], members.get("definition"), members.get("roleArn"), _settings(members)
        )
        return {"updateDate": machine.updated, "revisionId": machine.revision}

    def _delete(self, members: Members) -> dict[str, Any]:
        self._machines.delete(members["stateMachineArn"])
        return {}

    def _list(self, members: Members) -> dict[str, Any]:
        shown, following = _page(self._machines.machines(), members)
        listed = [
            {"stateMachineArn": machine.arn, "name": machine.name, "type": "STANDARD", "creationDate": machine.created}
            for machine in shown
        ]
        return {"stateMachines": listed, **following}

    def _start(self, members: Members) -> dict[str, Any]:
        execution = self._machines.start(members["stateMachineArn"], members.get("name"), members.get("input", "{}"))
        return {"executionArn": execution.arn, "startDate": execution.started.timestamp()}

    def _describe_execution(self, members: Members) -> dict[str, Any]:
        execution = self._machines.execution(members["executionArn"])
        return {**_shown(execution), "input": execution.input, "inputDetails": {"included": True}, **_ending(execution)}

    def _stop(self, members: Members) -> dict[str, Any]:
        execution = self._machines.execution(members["executionArn"])
        details = {key: members[key] for key in ("error", "cause") if key in members}
        execution.history.close("ExecutionAborted", {"executionAbortedEventDetails": details})
        return {"stopDate": execution.stopped}

    def _list_executions(self, members: Members) -> dict[str, Any]:
        if "stateMachineArn" not in members:  # the model has another member for the runs of distributed Maps
            raise constraint(None, "stateMachineArn", "Member must not be null")
        machine = self._machines.machine(members["stateMachineArn"])
        shown, following = _page(self._machines.executions(machine.arn, members.get("statusFilter")), members)
        return {"executions": [_shown(execution) for execution in shown], **following}

    def _history(self, members: Members) -> dict[str, Any]:
        history = self._machines.execution(members["executionArn"]).history
        first, size = _bounds(members)
        backwards, data = members.get("reverseOrder", False), members.get("includeExecutionData", True)
        events = history.page(first, size + 1, backwards=backwards, data=data)
        return {"events": events[:size], **_following(first + size, len(events) > size)}

    def _task_success(self, members: Members) -> dict[str, Any]:
        try:
            json.loads(members["output"])
        except (ValueError, RecursionError) as error:
            raise ServiceError(400, "InvalidOutput", f"Invalid Output: '{error}'") from error
        self._machines.answer(lambda run: run.answer(members["taskToken"], success(members["output"])))
        return {}

    def _task_failure(self, members: Members) -> dict[str, Any]:
        error, cause = members.get("error", ""), members.get("cause", "")
        self._machines.answer(lambda run: run.answer(members["taskToken"], failure(error, cause)))
        return {}

    def _task_heartbeat(self, members: Members) -> dict[str, Any]:
        self._machines.answer(lambda run: run.heartbeat(members["taskToken"]))
        return {}


def body_limit(scope: Scope) -> tuple[int, str]:
    """Return how many bytes the body of a request may have, and its operation."""
    return LARGEST_BODY, _operation(Headers(scope=scope))


def _operation(headers: Headers) -> str:
    return headers.get("x-amz-target", "").rpartition(".")[2]


def _settings(members: Members) -> dict[str, Any]:
    return {key: members[key] for key in SETTINGS if key in members}


def _described(machine: Machine) -> dict[str, Any]:
    return {
        "stateMachineArn": machine.arn,
        "name": machine.name,
        "definition": machine.definition,
        "roleArn": machine.role,
        **machine.settings,
        **({"revisionId": machine.revision} if machine.revision else {}),
    }


def _shown(execution: Execution) -> dict[str, Any]:
    """Return the members of an execution in ListExecutions."""
    document: dict[str, Any] = {
        "executionArn": execution.arn,
        "stateMachineArn": execution.machine.arn,
        "name": execution.name,
        "status": execution.status,
        "startDate": execution.started.timestamp(),
    }
    return document if execution.stopped is None else {**document, "stopDate": execution.stopped}


def _ending(execution: Execution) -> dict[str, Any]:
    ending = {key: value for key, value in execution.ending().items() if key in ("output", "error", "cause")}
    return {**ending, "outputDetails": {"included": True}} if "output" in ending else ending


def _page(items: Sequence[Any], members: Members) -> tuple[Sequence[Any], dict[str, Any]]:
    first, size = _bounds(members)
    return items[first : first + size], _following(first + size, len(items) > first + size)


def _bounds(members: Members) -> tuple[int, int]:
    """Return where a page begins, and its size; 0 in the request asks for the default."""
    size = members.get("maxResults") or PAGE
    try:
        return int(base64.b64decode(members.get("nextToken", "MA=="), validate=True)), size
    except ValueError as error:
        raise ServiceError(400, "InvalidToken", f"Invalid Token: '{members['nextToken']}'") from error


def _following(position: int, more: bool) -> dict[str, Any]:
    return {"nextToken": base64.b64encode(str(position).encode()).decode()} if more else {}
