"""AWS Lambda's HTTP API; unmodified boto3 and the aws CLI are its clients.

https://docs.aws.amazon.com/lambda/latest/api/API_Operations.html
"""

import asyncio
import base64
import json
import secrets
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import botocore.session
from botocore.validate import ParamValidator
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from slslab.configuration import ACCOUNT
from slslab.functions import Functions, Target
from slslab.invocation import InvocationService
from slslab.limits import Limits
from slslab.packages import Code, Packages
from slslab.service_errors import ServiceError, constraint, invalid

Handler = Callable[[Request], Awaitable[Response]]
PAGE = 50
TOTAL_CODE_BYTES = 80_530_636_800
KINDS = ("Event", "RequestResponse", "DryRun")


class LambdaApi:
    """The operations of the Lambda API over one invocation service."""

    def __init__(
        self,
        functions: Functions,
        packages: Packages,
        service: InvocationService,
        limits: Limits,
        sweep: Callable[[], Awaitable[None]],
    ) -> None:
        self._sweep = sweep
        self._functions = functions
        self._packages = packages
        self._service = service
        self._limits = limits

    def application(self, more: Iterable[BaseRoute] = ()) -> Starlette:
        """The ASGI application, with `more` routes beside Lambda's."""
        functions = "/2015-03-31/functions"
        one = functions + "/{name}"
        events = "/2019-09-25/functions/{name}/event-invoke-config"
        tags = "/2017-03-31/tags/{arn}"
        table: list[tuple[str, str, Handler]] = [
            ("POST", functions, self._create),
            ("GET", functions, self._list),
            ("GET", one, self._get),
            ("DELETE", one, self._delete),
            ("PUT", one + "/code", self._update_code),
            ("GET", one + "/configuration", self._get_configuration),
            ("PUT", one + "/configuration", self._update_configuration),
            ("POST", one + "/versions", self._publish),
            ("GET", one + "/versions", self._versions),
            ("POST", one + "/aliases", self._create_alias),
            ("GET", one + "/aliases", self._aliases),
            ("GET", one + "/aliases/{alias}", self._get_alias),
            ("PUT", one + "/aliases/{alias}", self._update_alias),
            ("DELETE", one + "/aliases/{alias}", self._delete_alias),
            ("POST", one + "/invocations", self._invoke),
            ("PUT", "/2017-10-31/functions/{name}/concurrency", self._put_concurrency),
            ("DELETE", "/2017-10-31/functions/{name}/concurrency", self._delete_concurrency),
            ("GET", "/2019-09-30/functions/{name}/concurrency", self._get_concurrency),
            ("PUT", events, self._put_events),
            ("POST", events, self._put_events),
            ("GET", events, self._get_events),
            ("DELETE", events, self._delete_events),
            ("GET", events + "/list", self._list_events),
            ("GET", tags, self._tags),
            ("POST", tags, self._tag),
            ("DELETE", tags, self._untag),
            ("GET", "/2016-08-19/account-settings", self._account),
        ]
        # Clients differ in whether they send a trailing slash.
        table += [(method, path + "/", handler) for method, path, handler in table]
        routes = [*more, *(Route(path, handler, methods=[method]) for method, path, handler in table)]
        return Starlette(
            routes=routes,
            exception_handlers={
                ServiceError: _service_error,
                404: _no_operation,
                405: _no_operation,
                ClientDisconnect: _disconnected,
                Exception: _internal_error,
            },
        )

    async def _create(self, request: Request) -> Response:
        body = await self._package_body(request, "CreateFunction")
        name, _ = self._functions.check_creation(body)
        async with self._stored(name, body.get("Code") or {}) as code:
            return _json(self._functions.create(body, code).document(), 201)

    async def _update_code(self, request: Request) -> Response:
        body = await self._package_body(request, "UpdateFunctionCode")
        name = _name(request)
        async with self._stored(self._functions.entry(name).latest.name, body) as code:
            target = self._functions.update_code(name, body, code)
            await self._service.retire_outdated()
        return _json(target.document())

    async def _package_body(self, request: Request, operation: str) -> dict[str, Any]:
        """The request's members; one whose archive is larger than 50 MB is refused as AWS's front does it."""
        limit = -(-self._limits.zipped_bytes * 4 // 3)
        if int(request.headers.get("content-length", 0)) > limit:
            message = f"Request must be smaller than {limit} bytes for the {operation} operation"
            raise ServiceError(413, "RequestEntityTooLargeException", message)
        return await _body(request, operation)

    @asynccontextmanager
    async def _stored(self, name: str, code: Mapping[str, Any]) -> AsyncIterator[Code]:
        """The request's code, unpacked; the block registers it."""
        stored = await asyncio.to_thread(self._packages.store, name, code)
        try:
            yield stored
        finally:
            self._packages.release(stored)
            await self._sweep()

    async def _list(self, request: Request) -> Response:
        every = request.query_params.get("FunctionVersion") == "ALL"
        found: dict[str, dict[str, Any]] = {}
        for name in self._functions.names():
            entry = self._functions.entry(name)
            targets = [Target(f, f.version) for f in entry.all_versions()] if every else [Target(entry.latest, None)]
            found |= {f"{name} {_order(target.function.version)}": target.document() for target in targets}
        return _page(request, "Functions", found)

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
        target = self._functions.update_configuration(
            _name(request), await _body(request, "UpdateFunctionConfiguration")
        )
        await self._service.retire_outdated()
        return _json(target.document())

    async def _delete(self, request: Request) -> Response:
        self._functions.delete(_name(request), _qualifier(request))
        await self._service.retire_outdated()
        await self._sweep()
        return Response(status_code=204)

    async def _publish(self, request: Request) -> Response:
        return _json(self._functions.publish(_name(request), await _body(request, "PublishVersion")).document(), 201)

    async def _versions(self, request: Request) -> Response:
        versions = self._functions.entry(_name(request)).all_versions()
        return _page(request, "Versions", {_order(v.version): v.document(v.version) for v in versions})

    async def _create_alias(self, request: Request) -> Response:
        alias = self._functions.put_alias(_name(request), await _body(request, "CreateAlias"), None)
        return _json(alias.document(self._functions.entry(_name(request)).latest.name), 201)

    async def _update_alias(self, request: Request) -> Response:
        alias = self._functions.put_alias(
            _name(request), await _body(request, "UpdateAlias"), request.path_params["alias"]
        )
        return _json(alias.document(self._functions.entry(_name(request)).latest.name))

    async def _get_alias(self, request: Request) -> Response:
        alias = self._functions.alias(_name(request), request.path_params["alias"])
        return _json(alias.document(self._functions.entry(_name(request)).latest.name))

    async def _aliases(self, request: Request) -> Response:
        entry = self._functions.entry(_name(request))
        version = request.query_params.get("FunctionVersion")
        chosen = {name: alias for name, alias in entry.aliases.items() if version in (None, alias.version)}
        return _page(request, "Aliases", {name: alias.document(entry.latest.name) for name, alias in chosen.items()})

    async def _delete_alias(self, request: Request) -> Response:
        self._functions.delete_alias(_name(request), request.path_params["alias"])
        return Response(status_code=204)

    async def _invoke(self, request: Request) -> Response:
        target = self._target(request)
        payload = await request.body()
        kind = request.headers.get("x-amz-invocation-type", "RequestResponse")
        trace_id = request.headers.get("x-amzn-trace-id") or _new_trace_id()
        context = _client_context(request.headers.get("x-amz-client-context"))
        if kind == "DryRun":
            return Response(status_code=204)
        if kind == "Event":
            request_id = self._service.accept_event(target, payload, trace_id)
            return Response(status_code=202, headers={"x-amzn-RequestId": request_id, "X-Amzn-Trace-Id": trace_id})
        if kind not in KINDS:
            rule = f"Member must satisfy enum value set: [{', '.join(KINDS)}]"
            raise constraint(kind, "invocationType", rule)
        result = await self._service.invoke(target, payload, trace_id, context)
        headers = {
            "x-amzn-RequestId": result.request_id,
            "X-Amzn-Trace-Id": trace_id,
            "X-Amz-Executed-Version": target.function.version,
        }
        if result.function_error is not None:
            headers["X-Amz-Function-Error"] = result.function_error
        if request.headers.get("x-amz-log-type") == "Tail":
            headers["X-Amz-Log-Result"] = base64.b64encode(result.log_tail).decode()
        return Response(result.payload, result.status, headers, media_type="application/json")

    async def _put_concurrency(self, request: Request) -> Response:
        reserved = self._functions.reserve(_name(request), await _body(request, "PutFunctionConcurrency"))
        return _json({"ReservedConcurrentExecutions": reserved})

    async def _get_concurrency(self, request: Request) -> Response:
        reserved = self._functions.entry(_name(request)).reserved
        return _json({} if reserved is None else {"ReservedConcurrentExecutions": reserved})

    async def _delete_concurrency(self, request: Request) -> Response:
        self._functions.entry(_name(request)).reserved = None
        return Response(status_code=204)

    async def _put_events(self, request: Request) -> Response:
        keep = request.method == "POST"
        body = await _body(request, "UpdateFunctionEventInvokeConfig" if keep else "PutFunctionEventInvokeConfig")
        self._functions.put_events(_name(request), _qualifier(request), body, keep)
        return await self._get_events(request)

    async def _get_events(self, request: Request) -> Response:
        qualifier, config = self._functions.events(_name(request), _qualifier(request))
        return _json(config.document(self._functions.entry(_name(request)).latest.name, qualifier))

    async def _list_events(self, request: Request) -> Response:
        entry = self._functions.entry(_name(request))
        documents = {
            qualifier: config.document(entry.latest.name, qualifier) for qualifier, config in entry.events.items()
        }
        return _page(request, "FunctionEventInvokeConfigs", documents)

    async def _delete_events(self, request: Request) -> Response:
        self._functions.delete_events(_name(request), _qualifier(request))
        return Response(status_code=204)

    async def _tags(self, request: Request) -> Response:
        return _json({"Tags": self._functions.entry(request.path_params["arn"]).tags})

    async def _tag(self, request: Request) -> Response:
        self._functions.tag(request.path_params["arn"], await _body(request, "TagResource"))
        return Response(status_code=204)

    async def _untag(self, request: Request) -> Response:
        self._functions.untag(request.path_params["arn"], request.query_params.getlist("tagKeys"))
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
                    "TotalCodeSize": self._functions.code_size(),
                    "FunctionCount": len(self._functions.names()),
                },
            }
        )

    def _target(self, request: Request) -> Target:
        return self._functions.resolve(_name(request), _qualifier(request))


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _qualifier(request: Request) -> str | None:
    return request.query_params.get("Qualifier") or None


def _order(version: str) -> str:
    """A text by which versions sort: $LATEST, then by number."""
    return version.rjust(20) if version.isdigit() else ""


def _page(request: Request, key: str, documents: Mapping[str, dict[str, Any]]) -> Response:
    """One page of a list in the order of its keys.

    The marker names the last key of the page, so that what is deleted between two pages hides nothing.
    """
    asked, marker = request.query_params.get("MaxItems", str(PAGE)), request.query_params.get("Marker") or ""
    if not (asked.isascii() and asked.isdigit() and len(asked) < 10 and int(asked)):
        raise constraint(asked, "maxItems", "Member must have value greater than or equal to 1")
    try:
        last = base64.urlsafe_b64decode(marker.encode()).decode()
    except ValueError as error:
        raise invalid(f"Invalid marker: {marker}") from error
    left = sorted(name for name in documents if not marker or name > last)
    shown = left[: min(PAGE, int(asked))]
    document: dict[str, Any] = {key: [documents[name] for name in shown]}
    if len(shown) < len(left):
        document["NextMarker"] = base64.urlsafe_b64encode(shown[-1].encode()).decode()
    return _json(document)


def _location(code: Code) -> dict[str, str]:
    """FunctionCodeLocation of the API."""
    if code.directory is not None:
        return {"RepositoryType": "Local", "Location": code.directory.as_uri()}
    assert code.image is not None
    # The repository without its tag; a colon before the last slash is a registry's port. An image that is only here has
    # no digest of a registry, so the engine's id stands for it.
    head, slash, tail = code.image.uri.partition("@")[0].rpartition("/")
    resolved = f"{head}{slash}{tail.partition(':')[0]}@{code.image.id}"
    return {"RepositoryType": "ECR", "ImageUri": code.image.uri, "ResolvedImageUri": resolved}


def _client_context(header: str | None) -> str | None:
    """The client's context as JSON, out of its Base64 header."""
    if header is None:
        return None
    try:
        # Written anew: it becomes a header of the Runtime API, which is one line.
        return json.dumps(json.loads(base64.b64decode(header, validate=True)))
    except (ValueError, RecursionError) as error:
        message = "Client context must be a valid Base64-encoded JSON object."
        raise ServiceError(400, "InvalidRequestContentException", message) from error


def _new_trace_id() -> str:
    digits = secrets.token_hex(24)
    return f"Root=1-{digits[:8]}-{digits[8:32]};Parent={digits[32:]};Sampled=0"


async def _body(request: Request, operation: str) -> dict[str, Any]:
    """The members of a request's body, of the types that AWS's own model of the operation gives them."""
    try:
        document = json.loads(await request.body() or b"{}")
    except (ValueError, RecursionError) as error:
        raise ServiceError(400, "SerializationException", f"The request body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ServiceError(400, "SerializationException", "The request body must be a JSON object")
    members = {key: value for key, value in document.items() if value is not None}
    found = ParamValidator().validate(members, _input_shape(operation)).generate_report()
    # Ranges and patterns are checked with AWS's messages later; members of the path are not in the body.
    wrong = [line for line in found.splitlines() if line.startswith("Invalid type")]
    if wrong:
        raise ServiceError(400, "SerializationException", wrong[0])
    return members


@cache
def _input_shape(operation: str) -> Any:
    """The input of an operation in botocore's model of Lambda."""
    return botocore.session.Session().get_service_model("lambda").operation_model(operation).input_shape


def _json(document: Mapping[str, Any], status: int = 200) -> Response:
    headers = {"x-amzn-RequestId": str(uuid.uuid4())}
    return Response(json.dumps(document), status, headers, media_type="application/json")


async def _service_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    kind = "User" if error.status < 500 else "Service"
    headers = {"x-amzn-ErrorType": error.error_type, "x-amzn-RequestId": str(uuid.uuid4()), **error.headers}
    body = json.dumps({"Type": kind, "Message": error.message, "message": error.message, **error.fields})
    return Response(body, error.status, headers, media_type="application/json")


async def _disconnected(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it


async def _internal_error(request: Request, error: Exception) -> Response:
    """A defect of ours, in the shape of AWS's own; the server's log has the stack trace."""
    return await _service_error(request, ServiceError(500, "ServiceException", f"{type(error).__name__}: {error}"))


async def _no_operation(request: Request, _error: Exception) -> Response:
    message = f"slslab emulates no operation {request.method} {request.url.path} (account {ACCOUNT})"
    return await _service_error(request, ServiceError(404, "UnknownOperationException", message))
