"""Serve AWS Lambda's HTTP API to unmodified boto3 and aws CLI.

Paths, members and statuses of all operations come from AWS's own model in botocore.
https://docs.aws.amazon.com/lambda/latest/api/API_Operations.html
"""

import asyncio
import base64
import json
import re
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from botocore import xform_name
from botocore.model import StructureShape
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from slslab.aws.errors import ServiceError, invalid
from slslab.aws.gate import WholeResponse
from slslab.aws.keys import Principal
from slslab.aws.limits import MB, Limits
from slslab.aws.requests import READ_AT_ONCE, Members, header_members, input_shape, members, service_model
from slslab.aws.signatures import IndexedHeaders
from slslab.lambda_.references import LATEST, Reference, function_arn, parse

PAGE = 50
FUNCTIONS_ONLY = (
    "This operation is permitted on Lambda functions only. Aliases and versions do not support this operation. Please "
    "specify either a function name or an unqualified function ARN."
)


class Call(NamedTuple):
    """One request of an operation, as the gate has read it: `members` comply with AWS's model of the operation."""

    members: Members
    headers: IndexedHeaders
    body: bytes
    caller: Principal
    function: Reference | None

    @property
    def name(self) -> str:
        """The name of the function that the request is about."""
        assert self.function is not None
        return self.function.name

    @property
    def qualifier(self) -> str | None:
        """The version or alias that the request asks for, in the function's ARN or next to it."""
        assert self.function is not None
        return self.function.qualifier

    @property
    def unqualified(self) -> str:
        """The name of the function; an error if the request names a version or an alias."""
        if self.qualifier not in (None, LATEST):
            raise invalid(FUNCTIONS_ONLY)
        return self.name

    def page(self, key: str, documents: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Return one page of a list in the order of its keys.

        The marker names the last key of the page, so that a deletion between two pages hides nothing.
        """
        size, marker = self.members.get("MaxItems", PAGE), self.members.get("Marker") or ""
        try:
            last = base64.urlsafe_b64decode(marker.encode()).decode()
        except ValueError as error:
            raise invalid(f"Invalid marker: {marker}") from error
        left = sorted(name for name in documents if not marker or name > last)
        shown = left[: min(PAGE, size)]
        document: dict[str, Any] = {key: [documents[name] for name in shown]}
        if len(shown) < len(left):
            document["NextMarker"] = base64.urlsafe_b64encode(shown[-1].encode()).decode()
        return document


Answer = Mapping[str, Any]
# The members of an answer, None for an answer without a body (status 204), or a whole response.
Handler = Callable[[Call], Awaitable[Answer | WholeResponse | None]]


class Operations:
    """Operations of Lambda's API: the handler of CreateAlias is a method `_create_alias`, which boto3 has, too."""

    def handlers(self) -> dict[str, Handler]:
        """Return the handler of each operation."""
        methods = {name: f"_{xform_name(name)}" for name in service_model("lambda").operation_names}
        return {name: getattr(self, method) for name, method in methods.items() if hasattr(self, method)}


Answering = Callable[[Scope], Awaitable[WholeResponse]]
# AWS's message names this limit (recorded): an archive of 50 MB in Base64, and a quarter of a megabyte more.
PACKAGE_BODY_BYTES = 70_167_211
# assumed: AWS documents only the limit of an invocation's payload.
OTHER_BODY_BYTES = 6 * MB
# Operations that receive a package, by the end of their paths.
PACKAGES = {
    "functions": "CreateFunction",
    "code": "UpdateFunctionCode",
    "versions": "PublishLayerVersion",
    "instances": "launch",
}
# Operations that have an IAM action with a different name.
ACTIONS = {
    "Invoke": "InvokeFunction",
    "InvokeWithResponseStream": "InvokeFunction",
}
# measured: members of errors that all AWS services send, but that their models don't contain.
UNMODELLED = {
    "ValidationException": ("message",),
    "AccessDeniedException": ("Message",),
    "RequestEntityTooLargeException": ("message",),
}


def application(handlers: Mapping[str, Handler], more: Sequence[BaseRoute]) -> ASGIApp:
    """Return the ASGI application of these operations, with `more` routes next to Lambda's.

    An operation in AWS's model without a handler is refused, and the error names it.
    """
    # Starlette's own routes and their layers would take a tenth of an invocation's CPU time.
    routes = _routes(handlers)
    kinds = (HTTPException, ServiceError, Exception)
    others = Starlette(routes=[*more], exception_handlers=dict.fromkeys(kinds, _answer_error))
    others.router.redirect_slashes = False  # unknown paths get AWS's answer

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        for method, path, by_query in routes:
            if method == scope["method"] and (found := path.fullmatch(scope["path"])):
                answers = by_query
                break
        else:
            await others(scope, receive, send)
            return
        scope["path_params"] = found.groupdict()
        chosen = ""
        if scope["query_string"]:
            given = {f"{name}={value}" for name, value in QueryParams(scope["query_string"]).multi_items()}
            chosen = next((query for query in answers if query in given), "")
        try:
            response = await answers[chosen](scope)
        except Exception as error:
            await (await _answer_error(Request(scope), error))(scope, receive, send)
            if isinstance(error, ServiceError):
                return
            raise
        await response(scope, receive, send)

    return answer


def body_limit(limits: Limits, scope: Scope) -> tuple[int, str]:
    """Return the size limit of a request's body, bytes, and the operation's name in AWS's message."""
    path = scope["path"].rstrip("/")
    last = path.rpartition("/")[2]
    if last in ("invocations", "response-streaming-invocations"):
        return max(limits.request_bytes, limits.event_bytes), "InvokeFunction"
    if last in PACKAGES and (last != "versions" or "/layers/" in path):  # a function's version is published without one
        return PACKAGE_BODY_BYTES, PACKAGES[last]
    return OTHER_BODY_BYTES, last


def _routes(handlers: Mapping[str, Handler]) -> list[tuple[str, re.Pattern[str], dict[str, Answering]]]:
    """Return each method and path in AWS's model, Invoke's first, with what answers by the query that chooses it.

    Clients differ in whether they send a trailing slash.
    """
    model = service_model("lambda")
    answers: dict[tuple[str, str], dict[str, Answering]] = {}
    for name in sorted(model.operation_names, key="Invoke".__ne__):
        http = model.operation_model(name).http
        path, _, query = http["requestUri"].partition("?")
        answers.setdefault((http["method"], path), {})[query] = _answering(name, handlers.get(name))
    return [
        (method, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path).rstrip("/") + "/?"), by_query)
        for (method, path), by_query in answers.items()
    ]


def _answering(operation: str, handler: Handler | None) -> Answering:
    """Return a function that answers an operation's requests. It checks the members, then the caller's permission."""
    status = service_model("lambda").operation_model(operation).http["responseCode"]
    action = ACTIONS.get(operation, operation)

    async def answer(scope: Scope) -> WholeResponse:
        if handler is None:
            raise _not_emulated(operation)
        state = scope["state"]
        caller, headers, body = state["principal"], state["headers"], state["body"]
        found = await _read_members(scope, operation, headers, body)
        name, resource = found.get("FunctionName") or found.get("Resource"), "*"
        function = parse(name) if name is not None and ":layer:" not in name else None
        if function is not None:
            function.check_local(caller, f"lambda:{action}")
            resource = function_arn(function.name)
        caller.require(f"lambda:{action}", resource)
        if function is not None:
            function = function.qualified(found.get("Qualifier"))
        answered = await handler(Call(found, headers, body, caller, function))
        if isinstance(answered, WholeResponse):
            return answered
        return _json(answered, status) if answered is not None else WholeResponse(b"", 204)

    return answer


async def _read_members(scope: Scope, operation: str, headers: IndexedHeaders, body: bytes) -> Members:
    locations = _locations(operation)
    elsewhere: dict[str, Any] = {name: _typed(scope["path_params"][key], kind) for name, key, kind in locations["uri"]}
    elsewhere |= {name: headers[key] for name, key, _ in locations["header"] if key in headers}
    if scope["query_string"]:
        query = QueryParams(scope["query_string"])
        for name, key, kind in locations["querystring"]:
            value = (query.getlist(key) or None) if kind == "list" else _typed(query.get(key), kind)
            if value is not None:
                elsewhere[name] = value
    if "payload" in input_shape("lambda", operation).serialization:
        return header_members("lambda", operation, elsewhere)
    if scope["method"] not in ("POST", "PUT"):
        body = b""
    if len(body) > READ_AT_ONCE:
        return await asyncio.to_thread(members, "lambda", operation, body, elsewhere)
    return members("lambda", operation, body, elsewhere)


def _typed(text: str | None, kind: str) -> Any:
    """Convert text from a path or a query to a member's type; text that can't be converted stays text."""
    if text is not None and kind in ("integer", "long") and re.fullmatch("-?[0-9]{1,9}", text):
        return int(text)
    return {"true": True, "false": False}.get(text, text) if text is not None and kind == "boolean" else text


@cache
def _locations(operation: str) -> dict[str, list[tuple[str, str, str]]]:
    """Return the members that aren't in a request's body by their location: name, key there and type."""
    locations: dict[str, list[tuple[str, str, str]]] = {"uri": [], "header": [], "querystring": []}
    for name, member in input_shape("lambda", operation).members.items():
        location = member.serialization.get("location")
        if location is not None:
            key = member.serialization.get("name", name)
            locations[location].append((name, key.lower() if location == "header" else key, member.type_name))
    return locations


def _json(document: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> WholeResponse:
    headers = {"x-amzn-RequestId": str(uuid.uuid4()), **(headers or {})}
    return WholeResponse(json.dumps(document).encode(), status, headers, "application/json")


async def _answer_error(request: Request, error: Exception) -> WholeResponse:
    """Answer with AWS's error. A defect of the emulator looks like AWS's own; the server's log has the stack trace."""
    if isinstance(error, HTTPException):
        error = _not_emulated(f"the operation {request.method} {request.url.path}")
    elif not isinstance(error, ServiceError):
        error = ServiceError(500, "ServiceException", f"{type(error).__name__}: {error}")
    members, kind = _error_members(error.error_type), "User" if error.status < 500 else "Service"
    document = {"Type": kind} if error.typed and "Type" in members else {}
    document |= {"Message" if "Message" in members else "message": error.message, **error.fields}
    return _json(document, error.status, {"x-amzn-ErrorType": error.error_type, **error.headers})


@cache
def _error_members(error_type: str) -> Collection[str]:
    model = service_model("lambda")
    shape = model.shape_for(error_type) if error_type in model.shape_names else None
    return shape.members if isinstance(shape, StructureShape) else UNMODELLED.get(error_type, ("Type", "message"))


def _not_emulated(operation: str) -> ServiceError:
    return ServiceError(
        404, "UnknownOperationException", f"slslab does not emulate {operation}; docs/services.md lists what it does."
    )
