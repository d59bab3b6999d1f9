"""Serve Step Functions' HTTP API (AWS JSON 1.0) to unmodified boto3 and the aws CLI.

https://docs.aws.amazon.com/step-functions/latest/apireference/API_Operations.html
"""

import base64
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from botocore import xform_name
from moto.stepfunctions.parser.asl.eval.callback.callback import CallbackOutcomeFailure, CallbackOutcomeSuccess
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from slslab.aws import requests
from slslab.aws.arns import ACCOUNT
from slslab.aws.errors import ServiceError, constraint
from slslab.aws.gate import principal
from slslab.aws.json_text import parse_json
from slslab.aws.keys import Principal
from slslab.aws.limits import MB
from slslab.statemachines.definitions import SETTINGS, check_settings, problems
from slslab.statemachines.executions import Execution, Machines
from slslab.statemachines.history import without_data
from slslab.statemachines.interpreter import LITTER
from slslab.statemachines.machines import Alias, Machine, check_arn, check_name, check_role, conflict, routed

PAGE = 100
# They parse or copy programs, or end executions. All other operations have the state machines to themselves.
SLOW = frozenset(
    "CreateStateMachine UpdateStateMachine DeleteStateMachine ValidateStateMachineDefinition StartExecution "
    "StopExecution".split()
)
# assumed: the largest member is a definition of 1 MB, in which JSON may put a backslash before every character.
LARGEST_BODY = 3 * MB
# documented: API_DescribeExecution.html, redriveStatusReason; the measured text lacks the full stop, too.
REDRIVABLE = ("FAILED", "ABORTED", "TIMED_OUT")
# The kinds of resources that ARNs in members of these names may have; other names are of state machines.
KINDS = {"executionArn": "execution", "mapRunArn": "mapRun", "resourceArn": r"\w+"}
Members = Mapping[str, Any]


class StatesApi:
    """Operations of the API on the state machines."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._registry = machines.registry

    def application(self) -> Starlette:
        """Return the ASGI application."""
        return Starlette(routes=[Route("/", self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> Response:
        operation = _operation(request.headers)
        # In a thread: parsing a definition may take tens of milliseconds.
        status, document = await run_in_threadpool(self._call, operation, await request.body(), principal(request))
        headers = {"x-amzn-RequestId": str(uuid.uuid4())}
        return Response(json.dumps(document), status, headers, media_type="application/x-amz-json-1.0")

    def _call(self, operation: str, body: bytes, caller: Principal) -> tuple[int, dict[str, Any]]:
        try:
            if operation not in OPERATIONS:
                what = f"slslab does not emulate Step Functions' operation {operation or 'without X-Amz-Target'}"
                raise ServiceError(400, "UnknownOperationException", what)
            given = requests.members("stepfunctions", operation, body)
            arns = {name: value for name, value in given.items() if name.endswith("Arn") and name != "roleArn"}
            caller.require(f"states:{operation}", next(iter(arns.values()), "*"))
            for name, arn in arns.items():
                _check_account(arn, operation, caller)
                check_arn(arn, KINDS.get(name, "stateMachine"))
            with nullcontext() if operation in SLOW else self._machines.lock:
                return 200, OPERATIONS[operation](self, given) or {}
        except ServiceError as error:
            # documented: CommonErrors.html: all client errors have status 400.
            return 400 if error.status < 500 else error.status, {"__type": error.error_type, "message": error.message}
        except Exception as error:  # a defect of ours, reported in AWS's form
            return 500, {"__type": "InternalServerError", "message": f"{type(error).__name__}: {error}"}

    def _create_state_machine(self, members: Members) -> dict[str, Any]:
        if members.get("type", "STANDARD") != "STANDARD":
            raise ServiceError(
                400, "StateMachineTypeNotSupported", "slslab emulates only state machines of type STANDARD"
            )
        settings, description = {**SETTINGS, **check_settings(members)}, _version_description(members)
        name, definition, role = members["name"], members["definition"], members["roleArn"]
        check_name(name)
        check_role(role)
        new = Machine(name, definition, role, self._machines.program(definition), settings)
        with self._machines.lock:
            machine = self._registry.create(new, _tags(members))
            version = self._publish(machine.arn, description)
        return {"stateMachineArn": machine.arn, "creationDate": machine.created, **version}

    def _describe_state_machine(self, members: Members) -> dict[str, Any]:
        machine, version = self._registry.revision(members["stateMachineArn"])
        described = {**_described(machine), "status": "ACTIVE", "type": "STANDARD", "creationDate": machine.created}
        if version is None:
            return described
        own = {"stateMachineArn": version.arn, "creationDate": version.created}
        return {**described, **own, **_present(description=version.description)}

    def _describe_state_machine_for_execution(self, members: Members) -> dict[str, Any]:
        machine = self._machines.execution(members["executionArn"]).machine
        return {**_described(machine), "updateDate": machine.updated or machine.created}

    def _update_state_machine(self, members: Members) -> dict[str, Any]:
        if not {"definition", "roleArn", *SETTINGS} & members.keys() and not members.get("publish"):
            raise ServiceError(
                400,
                "MissingRequiredParameter",
                "Either the definition, the role ARN, the LoggingConfiguration, or the TracingConfiguration must be "
                "specified",
            )
        settings, description = check_settings(members), _version_description(members)
        changes = {}
        if (definition := members.get("definition")) is not None:
            changes = {"definition": definition, "program": self._machines.program(definition)}
        if (role := members.get("roleArn")) is not None:
            check_role(role)
            changes["role"] = role
        with self._machines.lock:
            machine = self._registry.update(members["stateMachineArn"], changes, settings)
            version = self._publish(machine.arn, description)
        return {"updateDate": machine.updated, **_present(revisionId=machine.revision), **version}

    def _publish(self, arn: str, description: str | None) -> dict[str, Any]:
        """Publish a machine if there is a description; return the version as a member of the answer."""
        if description is None:
            return {}
        return {"stateMachineVersionArn": self._registry.publish(arn, description).arn}

    def _delete_state_machine(self, members: Members) -> None:
        self._machines.delete(members["stateMachineArn"])
        LITTER.collect()

    def _list_state_machines(self, members: Members) -> dict[str, Any]:
        return _page(
            "stateMachines",
            self._registry.machines(),
            members,
            lambda machine: {
                "stateMachineArn": machine.arn,
                "name": machine.name,
                "type": "STANDARD",
                "creationDate": machine.created,
            },
        )

    def _validate_state_machine_definition(self, members: Members) -> dict[str, Any]:
        found = problems(members["definition"], self._machines.definition_bytes)
        shown = found[: members.get("maxResults") or PAGE]
        diagnostics = [
            {"severity": "ERROR", "code": problem.code, "message": problem.message}
            | _present(location=problem.location)
            for problem in shown
        ]
        return {
            "result": "FAIL" if found else "OK",
            "diagnostics": diagnostics,
            "truncated": len(shown) < len(found),
        }

    def _publish_state_machine_version(self, members: Members) -> dict[str, Any]:
        version = self._registry.publish(
            members["stateMachineArn"], members.get("description", ""), members.get("revisionId")
        )
        return {"creationDate": version.created, "stateMachineVersionArn": version.arn}

    def _list_state_machine_versions(self, members: Members) -> dict[str, Any]:
        machine = self._registry.machine(members["stateMachineArn"])
        return _page(
            "stateMachineVersions",
            self._registry.versions(machine.arn),
            members,
            lambda version: {"stateMachineVersionArn": version.arn, "creationDate": version.created},
        )

    def _delete_state_machine_version(self, members: Members) -> None:
        arn = members["stateMachineVersionArn"]
        aliases = self._registry.aliases.values()
        if needing := [alias["name"] for alias in aliases if arn in routed(alias["routingConfiguration"])]:
            raise conflict(
                "Version to be deleted must not be referenced by an alias. Current list of aliases referencing this "
                f"version: [{', '.join(needing)}]"
            )
        self._registry.versions_by_arn.pop(arn, None)

    def _create_state_machine_alias(self, members: Members) -> dict[str, Any]:
        name, routing, description = members["name"], members["routingConfiguration"], members.get("description", "")
        self._registry.check_routing(routing)
        arn, now_s = f"{routed(routing)[0].rpartition(':')[0]}:{name}", time.time()
        own = {"name": name, "routingConfiguration": routing, "description": description}
        new = {"stateMachineAliasArn": arn, **own, "creationDate": now_s, "updateDate": now_s}
        alias = self._registry.aliases.setdefault(arn, new)
        if not own.items() <= alias.items():
            raise conflict(
                "Failed to create alias because an alias with the same name and a different routing configuration "
                "already exists."
            )
        return _summary(alias)

    def _update_state_machine_alias(self, members: Members) -> dict[str, Any]:
        changes = {name: members[name] for name in ("description", "routingConfiguration") if name in members}
        if not changes:
            # documented: API_UpdateStateMachineAlias.html; the text is assumed.
            raise ServiceError(
                400, "ValidationException", "Either the description or the routing configuration must be specified"
            )
        arn, now_s = members["stateMachineAliasArn"], time.time()
        alias = self._registry.alias(arn)
        if "routingConfiguration" in changes:
            self._registry.check_routing(changes["routingConfiguration"])
        self._registry.aliases[arn] = {**alias, **changes, "updateDate": now_s}
        return {"updateDate": now_s}

    def _describe_state_machine_alias(self, members: Members) -> dict[str, Any]:
        return _present(**self._registry.alias(members["stateMachineAliasArn"]))

    def _list_state_machine_aliases(self, members: Members) -> dict[str, Any]:
        arn = members["stateMachineArn"]
        _, version = self._registry.revision(arn)
        chosen = [
            alias
            for known, alias in sorted(self._registry.aliases.items())
            if (arn in routed(alias["routingConfiguration"]) if version else known.startswith(f"{arn}:"))
        ]
        return _page("stateMachineAliases", chosen, members, _summary)

    def _delete_state_machine_alias(self, members: Members) -> None:
        self._registry.aliases.pop(members["stateMachineAliasArn"], None)

    def _tag_resource(self, members: Members) -> None:
        self._registry.tag(members["resourceArn"], _tags(members))

    def _untag_resource(self, members: Members) -> None:
        tags = self._registry.tags(members["resourceArn"])
        for key in members["tagKeys"]:
            tags.pop(key, None)

    def _list_tags_for_resource(self, members: Members) -> dict[str, Any]:
        tags = self._registry.tags(members["resourceArn"])
        return {"tags": [{"key": key, "value": value} for key, value in tags.items()]}

    def _start_execution(self, members: Members) -> dict[str, Any]:
        execution = self._machines.start(members["stateMachineArn"], members.get("name"), members.get("input", "{}"))
        return {"executionArn": execution.arn, "startDate": execution.started.timestamp()}

    def _start_sync_execution(self, members: Members) -> dict[str, Any]:
        self._registry.target(members["stateMachineArn"])
        what = "This operation is not supported by this type of state machine"
        raise ServiceError(400, "StateMachineTypeNotSupported", what)

    def _describe_execution(self, members: Members) -> dict[str, Any]:
        execution = self._machines.execution(members["executionArn"])
        shown = {**_shown(execution), "input": execution.input, "inputDetails": {"included": True}}
        return {**shown, **execution.ending(), **_redrive(shown["status"])}

    def _stop_execution(self, members: Members) -> dict[str, Any]:
        execution = self._machines.execution(members["executionArn"])
        details = {key: members[key] for key in ("error", "cause") if key in members}
        execution.abort(details)
        return {"stopDate": execution.stopped}

    def _list_executions(self, members: Members) -> dict[str, Any]:
        if "stateMachineArn" not in members:  # the model has another member for the runs of distributed Maps
            raise constraint(None, "stateMachineArn", "Member must not be null")
        self._registry.target(members["stateMachineArn"])
        chosen = self._machines.executions(members["stateMachineArn"], members.get("statusFilter"))
        if members.get("redriveFilter") == "REDRIVEN":
            chosen = []
        return _page("executions", chosen, members, _shown)

    def _get_execution_history(self, members: Members) -> dict[str, Any]:
        events = self._machines.execution(members["executionArn"]).history.events
        return _page(
            "events",
            events[::-1] if members.get("reverseOrder") else events,
            members,
            lambda event: event if members.get("includeExecutionData", True) else without_data(event),
        )

    def _send_task_success(self, members: Members) -> None:
        try:
            parse_json(members["output"])
        except (ValueError, RecursionError) as error:
            raise ServiceError(400, "InvalidOutput", f"Invalid Output: '{error}'") from error
        token, output = members["taskToken"], members["output"]
        self._machines.answer(token, CallbackOutcomeSuccess(token, output))

    def _send_task_failure(self, members: Members) -> None:
        token, error, cause = members["taskToken"], members.get("error", ""), members.get("cause", "")
        self._machines.answer(token, CallbackOutcomeFailure(token, error, cause))

    def _send_task_heartbeat(self, members: Members) -> None:
        self._machines.answer(members["taskToken"], None)


def body_limit(scope: Scope) -> tuple[int, str]:
    """Return the maximum size of a request's body, bytes, and the request's operation."""
    return LARGEST_BODY, _operation(Headers(scope=scope))


def _check_account(arn: str, operation: str, caller: Principal) -> None:
    """Raise ServiceError (AccessDeniedException) for another account's ARN: AWS lets no other account in.

    assumed: the text, which is IAM's for a resource without a policy.
    """
    parts = arn.split(":")
    if len(parts) > 4 and parts[4].isdigit() and parts[4] != ACCOUNT:
        raise caller.denied(f"states:{operation}", arn, "resource-based")


def _operation(headers: Headers) -> str:
    return headers.get("x-amz-target", "").rpartition(".")[2]


def _tags(members: Members) -> dict[str, str]:
    return {tag.get("key", ""): tag.get("value", "") for tag in members.get("tags", ())}


def _summary(alias: Alias) -> dict[str, Any]:
    return {name: alias[name] for name in ("stateMachineAliasArn", "creationDate")}


def _version_description(members: Members) -> str | None:
    """Return the description of the version that a request publishes, or None if it doesn't publish one."""
    if members.get("publish"):
        return str(members.get("versionDescription", ""))
    if "versionDescription" in members:
        raise ServiceError(400, "ValidationException", "Version description can only be set when publish is true")
    return None


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def _redrive(status: str) -> dict[str, Any]:
    if status in REDRIVABLE:
        return {"redriveStatus": "REDRIVABLE"}
    return {
        "redriveStatus": "NOT_REDRIVABLE",
        "redriveStatusReason": f"Execution is {status} and cannot be redriven",
    }


def _described(machine: Machine) -> dict[str, Any]:
    return {
        "stateMachineArn": machine.arn,
        "name": machine.name,
        "definition": machine.definition,
        "roleArn": machine.role,
        **machine.settings,
        **_present(revisionId=machine.revision),
    }


def _shown(execution: Execution) -> dict[str, Any]:
    """Return an execution as ListExecutions shows it."""
    document: dict[str, Any] = {
        "executionArn": execution.arn,
        "stateMachineArn": execution.machine.arn,
        "name": execution.name,
        "status": execution.status,
        "startDate": execution.started.timestamp(),
        "redriveCount": 0,
        **execution.started_by,
    }
    return document if execution.stopped is None else {**document, "stopDate": execution.stopped}


def _page(
    name: str, items: Sequence[Any], members: Members, shown: Callable[[Any], Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a page of these items, as `shown` shows them; a size of 0 in the request means the default."""
    size = members.get("maxResults") or PAGE
    try:
        first = int(base64.b64decode(members.get("nextToken", "MA=="), validate=True))
    except ValueError as error:
        raise ServiceError(400, "InvalidToken", "Invalid Token: 'Invalid token'") from error
    following = first + size
    token = base64.b64encode(str(following).encode()).decode() if len(items) > following else None
    return {name: [shown(item) for item in items[first:following]], **_present(nextToken=token)}


# The handler of CreateStateMachine is the method `_create_state_machine`, which boto3 has, too.
OPERATIONS: Mapping[str, Callable[[StatesApi, Members], dict[str, Any] | None]] = {
    name: method
    for name in requests.service_model("stepfunctions").operation_names
    if (method := getattr(StatesApi, f"_{xform_name(name)}", None)) is not None
}
