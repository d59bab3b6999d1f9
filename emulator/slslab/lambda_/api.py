"""Serve AWS Lambda's HTTP API to unmodified boto3 and aws CLI.

https://docs.aws.amazon.com/lambda/latest/api/API_Operations.html
"""

import asyncio
import base64
import json
import re
import secrets
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from slslab.aws.arns import ACCOUNT, function_arn
from slslab.aws.errors import ServiceError, constraint, invalid
from slslab.aws.gate import principal
from slslab.aws.limits import MB, Limits
from slslab.aws.requests import Members, header_members, input_shape, members
from slslab.lambda_.functions import Functions, Target, parse
from slslab.lambda_.invocation import InvocationService
from slslab.lambda_.packages import Code, Packages

PAGE = 50
TOTAL_CODE_BYTES = 80_530_636_800
# AWS's message names this limit (recorded): an archive of 50 MB in Base64, and a quarter of a megabyte more.
PACKAGE_BODY_BYTES = 70_167_211
# assumed: AWS documents the limit of an invocation's alone.
OTHER_BODY_BYTES = 6 * MB
Handler = Callable[[Request], Awaitable[Response]]
# IAM's action and the API's operation have the same name but for one.
OPERATIONS = {"InvokeFunction": "Invoke"}
# Members of the model that are parts of our routes' paths.
PATH_MEMBERS = {"FunctionName": "name", "Name": "alias", "Resource": "arn"}
INVOCATIONS = re.compile(r"/2015-03-31/functions/(?P<name>[^/]+)/invocations/?")
# Larger bodies are read on a thread of their own.
READ_AT_ONCE = 256 * 1024


class LambdaApi:
    """The operations of the Lambda API over one invocation service."""

    def __init__(self, functions: Functions, packages: Packages, service: InvocationService, limits: Limits) -> None:
        self._functions = functions
        self._packages = packages
        self._service = service
        self._limits = limits

    def application(self, more: Sequence[BaseRoute]) -> ASGIApp:
        """Return the ASGI application, with `more` routes beside Lambda's."""
        functions = "/2015-03-31/functions"
        function = functions + "/{name}"
        events = "/2019-09-25/functions/{name}/event-invoke-config"
        tags = "/2017-03-31/tags/{arn}"
        table: list[tuple[str, str, str, Handler]] = [
            ("POST", functions, "CreateFunction", self._create),
            ("GET", functions, "ListFunctions", self._list),
            ("GET", function, "GetFunction", self._get),
            ("DELETE", function, "DeleteFunction", self._delete),
            ("PUT", function + "/code", "UpdateFunctionCode", self._update_code),
            ("GET", function + "/configuration", "GetFunctionConfiguration", self._get_configuration),
            ("PUT", function + "/configuration", "UpdateFunctionConfiguration", self._update_configuration),
            ("POST", function + "/versions", "PublishVersion", self._publish),
            ("GET", function + "/versions", "ListVersionsByFunction", self._versions),
            ("POST", function + "/aliases", "CreateAlias", self._put_alias),
            ("GET", function + "/aliases", "ListAliases", self._aliases),
            ("GET", function + "/aliases/{alias}", "GetAlias", self._get_alias),
            ("PUT", function + "/aliases/{alias}", "UpdateAlias", self._put_alias),
            ("DELETE", function + "/aliases/{alias}", "DeleteAlias", self._delete_alias),
            ("PUT", "/2017-10-31/functions/{name}/concurrency", "PutFunctionConcurrency", self._put_concurrency),
            (
                "DELETE",
                "/2017-10-31/functions/{name}/concurrency",
                "DeleteFunctionConcurrency",
                self._delete_concurrency,
            ),
            ("GET", "/2019-09-30/functions/{name}/concurrency", "GetFunctionConcurrency", self._get_concurrency),
            ("PUT", events, "PutFunctionEventInvokeConfig", self._put_events),
            ("POST", events, "UpdateFunctionEventInvokeConfig", self._put_events),
            ("GET", events, "GetFunctionEventInvokeConfig", self._get_events),
            ("DELETE", events, "DeleteFunctionEventInvokeConfig", self._delete_events),
            ("GET", events + "/list", "ListFunctionEventInvokeConfigs", self._list_events),
            ("GET", tags, "ListTags", self._tags),
            ("POST", tags, "TagResource", self._tag),
            ("DELETE", tags, "UntagResource", self._untag),
            ("GET", "/2016-08-19/account-settings", "GetAccountSettings", self._account),
        ]
        # Clients differ in whether they send a trailing slash.
        table += [(method, path + "/", action, handler) for method, path, action, handler in table]
        application = Starlette(
            routes=[
                *(Route(path, _allowed(action, handler), methods=[method]) for method, path, action, handler in table),
                *more,
            ],
            exception_handlers={404: _no_operation, 405: _no_operation, **ERRORS},
        )
        application.router.redirect_slashes = False  # what is not there is told in AWS's form
        invoke = _allowed("InvokeFunction", self._invoke)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            # Starlette's routes and their layers take a tenth of an invocation's CPU time, so Invoke goes past them.
            found = None
            if scope["type"] == "http" and scope["method"] == "POST":
                found = INVOCATIONS.fullmatch(scope["path"])
            if found is None:
                await application(scope, receive, send)
                return
            scope["path_params"] = found.groupdict()
            request = Request(scope, receive)
            try:
                response = await invoke(request)
            except Exception as error:
                handle = next(handle for kind, handle in ERRORS.items() if isinstance(error, kind))
                await (await handle(request, error))(scope, receive, send)
                if handle is _internal_error:
                    raise
                return
            await response(scope, receive, send)

        return answer

    def body_limit(self, scope: Scope) -> tuple[int, str]:
        """Return how many bytes the body of a request may have, and its operation as AWS's message names it."""
        path = scope["path"].rstrip("/")
        if path.endswith("/invocations"):
            return max(self._limits.request_bytes, self._limits.event_bytes), "InvokeFunction"
        if path.endswith("/functions"):
            return PACKAGE_BODY_BYTES, "CreateFunction"
        if path.endswith("/code"):
            return PACKAGE_BODY_BYTES, "UpdateFunctionCode"
        if path.endswith("/instances"):
            return PACKAGE_BODY_BYTES, "launch"
        return OTHER_BODY_BYTES, path.rpartition("/")[2]

    async def _create(self, request: Request) -> Response:
        body = _members(request)
        name, _ = self._functions.check_creation(body)
        async with self._stored(name, body.get("Code") or {}) as code:
            target = self._functions.create(body, code)
            self._service.prepare(target.function)
            return _json(target.document(), 201)

    async def _update_code(self, request: Request) -> Response:
        body = _members(request)
        name = _name(request)
        async with self._stored(self._functions.entry(name).latest.name, body) as code:
            target = self._functions.update_code(name, body, code)
            self._service.pool.retire_outdated()
        return _json(target.document())

    @asynccontextmanager
    async def _stored(self, name: str, code: Mapping[str, Any]) -> AsyncIterator[Code]:
        """Unpack the request's code; the block registers it."""
        stored = await asyncio.wrap_future(self._packages.start_storing(name, code))
        try:
            yield stored
        finally:
            self._packages.release(stored)
            self._service.remove_unused_packages()

    async def _list(self, request: Request) -> Response:
        every = request.query_params.get("FunctionVersion") == "ALL"
        documents: dict[str, dict[str, Any]] = {}
        for entry in self._functions.entries():
            targets = [Target(f, f.version) for f in entry.all_versions()] if every else [Target(entry.latest, None)]
            documents |= {f"{entry.latest.name} {_order(t.function.version)}": t.document() for t in targets}
        return _page(request, "Functions", documents)

    async def _get(self, request: Request) -> Response:
        target = self._target(request)
        entry = self._functions.entry(_name(request))
        document: dict[str, Any] = {"Configuration": target.document(), "Code": _location(target.function.code)}
        if entry.tags:
            document["Tags"] = entry.tags
        if entry.reserved is not None:
            document["Concurrency"] = {"ReservedConcurrentExecutions": entry.reserved}
        return _json(document)

    async def _get_configuration(self, request: Request) -> Response:
        return _json(self._target(request).document())

    async def _update_configuration(self, request: Request) -> Response:
        target = self._functions.update_configuration(_name(request), _members(request))
        self._service.prepare(target.function)
        self._service.pool.retire_outdated()
        return _json(target.document())

    async def _delete(self, request: Request) -> Response:
        self._functions.delete(_name(request), _qualifier(request))
        self._service.retire()
        return Response(status_code=204)

    async def _publish(self, request: Request) -> Response:
        return _json(self._functions.publish(_name(request), _members(request)).document(), 201)

    async def _versions(self, request: Request) -> Response:
        versions = self._functions.entry(_name(request)).all_versions()
        return _page(request, "Versions", {_order(v.version): v.document(v.version) for v in versions})

    async def _put_alias(self, request: Request) -> Response:
        name = request.path_params.get("alias")
        return _json(
            self._functions.put_alias(_name(request), _members(request), name).document(), 200 if name else 201
        )

    async def _get_alias(self, request: Request) -> Response:
        return _json(self._functions.alias(_name(request), request.path_params["alias"]).document())

    async def _aliases(self, request: Request) -> Response:
        version = request.query_params.get("FunctionVersion")
        aliases = self._functions.entry(_name(request)).aliases.values()
        return _page(request, "Aliases", {a.name: a.document() for a in aliases if version in (None, a.version)})

    async def _delete_alias(self, request: Request) -> Response:
        # An alias that does not exist is deleted already.
        self._functions.entry(_name(request)).aliases.pop(request.path_params["alias"], None)
        return Response(status_code=204)

    async def _invoke(self, request: Request) -> Response:
        target = self._target(request)
        payload = await request.body()
        headers: Headers = request.state.headers
        kind = headers.get("x-amz-invocation-type", "RequestResponse")
        trace_id = headers.get("x-amzn-trace-id") or _new_trace_id()
        context = _client_context(headers.get("x-amz-client-context"))
        if kind == "DryRun":
            return Response(status_code=204)
        if kind == "Event":
            request_id = self._service.accept_event(target, payload, trace_id)
            return Response(status_code=202, headers={"x-amzn-RequestId": request_id, "X-Amzn-Trace-Id": trace_id})
        result = await self._service.invoke(target, payload, trace_id, context, principal(request).function)
        answered = {
            "x-amzn-RequestId": result.request_id,
            "X-Amzn-Trace-Id": trace_id,
            "X-Amz-Executed-Version": result.version,
        }
        if result.function_error is not None:
            answered["X-Amz-Function-Error"] = result.function_error
        if headers.get("x-amz-log-type") == "Tail":
            answered["X-Amz-Log-Result"] = base64.b64encode(result.log_tail).decode()
        return Response(result.payload, 200, answered, media_type="application/json")

    async def _put_concurrency(self, request: Request) -> Response:
        self._functions.reserve(_name(request), _members(request))
        return await self._get_concurrency(request)

    async def _get_concurrency(self, request: Request) -> Response:
        reserved = self._functions.entry(_name(request)).reserved
        return _json({} if reserved is None else {"ReservedConcurrentExecutions": reserved})

    async def _delete_concurrency(self, request: Request) -> Response:
        self._functions.entry(_name(request)).reserved = None
        return Response(status_code=204)

    async def _put_events(self, request: Request) -> Response:
        keep = request.method == "POST"
        self._functions.put_events(_name(request), _qualifier(request), _members(request), keep)
        return await self._get_events(request)

    async def _get_events(self, request: Request) -> Response:
        return _json(self._functions.events(_name(request), _qualifier(request)).document())

    async def _list_events(self, request: Request) -> Response:
        configs = self._functions.entry(_name(request)).events
        return _page(request, "FunctionEventInvokeConfigs", {key: configs[key].document() for key in configs})

    async def _delete_events(self, request: Request) -> Response:
        self._functions.delete_events(_name(request), _qualifier(request))
        return Response(status_code=204)

    async def _tags(self, request: Request) -> Response:
        return _json({"Tags": self._functions.entry(request.path_params["arn"]).tags})

    async def _tag(self, request: Request) -> Response:
        self._functions.tag(request.path_params["arn"], _members(request))
        return Response(status_code=204)

    async def _untag(self, request: Request) -> Response:
        for key in request.query_params.getlist("tagKeys"):
            self._functions.entry(request.path_params["arn"]).tags.pop(key, None)
        return Response(status_code=204)

    async def _account(self, _request: Request) -> Response:
        limits = self._limits
        return _json(
            {
                "AccountLimit": {
                    "TotalCodeSize": TOTAL_CODE_BYTES,
                    "CodeSizeUnzipped": limits.unzipped_bytes,
                    "CodeSizeZipped": limits.zipped_bytes,
                    "ConcurrentExecutions": limits.account_concurrency,
                    "UnreservedConcurrentExecutions": limits.account_concurrency - self._functions.reserved_total(),
                },
                "AccountUsage": {
                    "TotalCodeSize": sum(code.size for code in self._functions.codes()),
                    "FunctionCount": len(self._functions.entries()),
                },
            }
        )

    def _target(self, request: Request) -> Target:
        return self._functions.resolve(_name(request), _qualifier(request))


def _allowed(action: str, handler: Handler) -> Handler:
    """Return a handler that first checks whether the request complies with its model, and its caller may do this."""
    operation = OPERATIONS.get(action, action)

    async def checked(request: Request) -> Response:
        request.state.members = await _read_members(request, operation)
        name = request.path_params.get("name")
        resource = "*" if name is None else function_arn(parse(name)[0])
        principal(request).require(f"lambda:{action}", resource)
        return await handler(request)

    return checked


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _qualifier(request: Request) -> str | None:
    return request.query_params.get("Qualifier") or None


def _order(version: str) -> str:
    """Return a text by which versions sort: $LATEST first, then by number."""
    return version.rjust(20) if version.isdigit() else ""


def _page(request: Request, key: str, documents: Mapping[str, dict[str, Any]]) -> Response:
    """Return one page of a list in the order of its keys.

    The marker names the last key of the page, so that a deletion between two pages hides nothing.
    """
    size, marker = request.query_params.get("MaxItems", str(PAGE)), request.query_params.get("Marker") or ""
    if not (size.isascii() and size.isdigit() and len(size) < 10 and int(size)):
        raise constraint(size, "maxItems", "Member must have value greater than or equal to 1")
    try:
        last = base64.urlsafe_b64decode(marker.encode()).decode()
    except ValueError as error:
        raise invalid(f"Invalid marker: {marker}") from error
    left = sorted(name for name in documents if not marker or name > last)
    shown = left[: min(PAGE, int(size))]
    document: dict[str, Any] = {key: [documents[name] for name in shown]}
    if len(shown) < len(left):
        document["NextMarker"] = base64.urlsafe_b64encode(shown[-1].encode()).decode()
    return _json(document)


def _location(code: Code) -> dict[str, str]:
    """Return the API's FunctionCodeLocation."""
    if code.directory is not None:
        return {"RepositoryType": "Local", "Location": code.directory.as_uri()}
    assert code.image is not None
    # The repository without its tag; a colon before the last slash is a registry's port. An image that is only here has
    # no digest of a registry, so the engine's id stands for it.
    head, slash, tail = code.image.uri.partition("@")[0].rpartition("/")
    return {
        "RepositoryType": "ECR",
        "ImageUri": code.image.uri,
        "ResolvedImageUri": f"{head}{slash}{tail.partition(':')[0]}@{code.image.id}",
    }


def _client_context(header: str | None) -> str | None:
    """Decode the client's context, which is JSON, from its Base64 header."""
    if header is None:
        return None
    try:
        # Serialised again: it becomes a header of the Runtime API, which must be one line.
        return json.dumps(json.loads(base64.b64decode(header, validate=True)))
    except (ValueError, RecursionError) as error:
        raise ServiceError(
            400, "InvalidRequestContentException", "Client context must be a valid Base64-encoded JSON object."
        ) from error


def _new_trace_id() -> str:
    digits = secrets.token_hex(24)
    return f"Root=1-{digits[:8]}-{digits[8:32]};Parent={digits[32:]};Sampled=0"


async def _read_members(request: Request, operation: str) -> Members:
    """Return the members of a request, checked by AWS's own model of the operation; numbers of its query are not."""
    elsewhere: dict[str, Any] = {}
    headers: Headers = request.state.headers
    for name, place, key in _places(operation):
        value: Any = None
        if place == "uri":
            value = request.path_params[PATH_MEMBERS[name]]
        elif place == "header":
            value = headers.get(key)
        elif place == "string":
            value = request.query_params.get(key)
        elif place == "list":
            value = request.query_params.getlist(key)
        if value is not None:
            elsewhere[name] = value
    if "payload" in input_shape("lambda", operation).serialization:
        return header_members("lambda", operation, tuple(elsewhere.items()))
    body = await request.body() if request.method in ("POST", "PUT") else b""
    if len(body) > READ_AT_ONCE:
        return await asyncio.to_thread(members, "lambda", operation, body, elsewhere)
    return members("lambda", operation, body, elsewhere)


@cache
def _places(operation: str) -> list[tuple[str, str, str]]:
    """Return name, place and key there of the members that are not in a request's body; a query's place is its type."""
    found = []
    for name, member in input_shape("lambda", operation).members.items():
        place = member.serialization.get("location")
        if place is not None:
            place = member.type_name if place == "querystring" else place
            found.append((name, place, member.serialization.get("name", name)))
    return found


def _members(request: Request) -> Members:
    """Return the members of a request, which were read before its handler was called."""
    found: Members = request.state.members
    return found


def _json(document: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    headers = {"x-amzn-RequestId": str(uuid.uuid4()), **(headers or {})}
    return Response(json.dumps(document), status, headers, media_type="application/json")


async def _service_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    kind = "User" if error.status < 500 else "Service"
    document = {"Type": kind, "Message": error.message, "message": error.message, **error.fields}
    return _json(document, error.status, {"x-amzn-ErrorType": error.error_type, **error.headers})


async def _disconnected(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # the client has closed its connection


async def _internal_error(request: Request, error: Exception) -> Response:
    """Answer a defect of the emulator as AWS answers its own; the server's log has the stack trace."""
    return await _service_error(request, ServiceError(500, "ServiceException", f"{type(error).__name__}: {error}"))


async def _no_operation(request: Request, _error: Exception) -> Response:
    message = f"slslab does not emulate the operation {request.method} {request.url.path} (account {ACCOUNT})"
    return await _service_error(request, ServiceError(404, "UnknownOperationException", message))


ERRORS: Mapping[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
    ServiceError: _service_error,
    ClientDisconnect: _disconnected,
    Exception: _internal_error,
}
