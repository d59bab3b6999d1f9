"""AWS Lambda's HTTP API; unmodified boto3 and the aws CLI are its clients.

https://docs.aws.amazon.com/lambda/latest/api/API_Operations.html
"""

import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slslab.functions import ACCOUNT, Function, ServiceError, function_arn
from slslab.invocation import InvocationService, encoded_tail

Handler = Callable[[Request], Awaitable[Response]]


class LambdaApi:
    """The operations of the Lambda API over one invocation service."""

    def __init__(self, service: InvocationService) -> None:
        self._service = service
        self._functions = service.functions

    def application(self) -> Starlette:
        """The ASGI application."""
        functions = "/2015-03-31/functions"
        one = functions + "/{name}"
        events = "/2019-09-25/functions/{name}/event-invoke-config"
        table: list[tuple[str, str, Handler]] = [
            ("POST", functions, self._create),
            ("GET", functions, self._list),
            ("GET", one, self._get),
            ("DELETE", one, self._delete),
            ("GET", one + "/configuration", self._get_configuration),
            ("PUT", one + "/configuration", self._update_configuration),
            ("POST", one + "/invocations", self._invoke),
            ("PUT", events, self._put_event_invoke),
            ("POST", events, self._put_event_invoke),
            ("GET", events, self._get_event_invoke),
            ("DELETE", events, self._delete_event_invoke),
        ]
        routes = [Route(path, handler, methods=[method]) for method, path, handler in _with_slash(table)]
        return Starlette(
            routes=routes,
            exception_handlers={ServiceError: _service_error, 404: _no_operation, 405: _no_operation},
        )

    async def _create(self, request: Request) -> Response:
        return _json(self._functions.create(await _body(request)).configuration(), 201)

    async def _list(self, request: Request) -> Response:
        functions = self._functions.list()
        names = [function.name for function in functions]
        first = names.index(request.query_params["Marker"]) if request.query_params.get("Marker") in names else 0
        page = functions[first : first + min(50, int(request.query_params.get("MaxItems", "50")))]
        document: dict[str, Any] = {"Functions": [function.configuration() for function in page]}
        if first + len(page) < len(functions):
            document["NextMarker"] = names[first + len(page)]
        return _json(document)

    async def _get(self, request: Request) -> Response:
        function = self._function(request)
        document: dict[str, Any] = {
            "Configuration": function.configuration(),
            "Code": {"RepositoryType": "Local", "Location": function.code_directory.as_uri()},
        }
        if function.tags:
            document["Tags"] = dict(function.tags)
        return _json(document)

    async def _get_configuration(self, request: Request) -> Response:
        return _json(self._function(request).configuration())

    async def _update_configuration(self, request: Request) -> Response:
        name = request.path_params["name"]
        function = self._functions.update_configuration(name, await _body(request))
        await self._service.retire(function.name)
        return _json(function.configuration())

    async def _delete(self, request: Request) -> Response:
        function = self._functions.delete(request.path_params["name"])
        await self._service.retire(function.name)
        return Response(status_code=204)

    async def _invoke(self, request: Request) -> Response:
        function = self._function(request)
        payload = await request.body()
        kind = request.headers.get("x-amz-invocation-type", "RequestResponse")
        trace_id = request.headers.get("x-amzn-trace-id") or _new_trace_id()
        if kind == "DryRun":
            return Response(status_code=204)
        if kind == "Event":
            request_id = self._service.accept_event(function, payload, trace_id)
            return Response(status_code=202, headers={"x-amzn-RequestId": request_id})
        if kind != "RequestResponse":
            message = (
                f"1 validation error detected: Value '{kind}' at 'invocationType' failed to satisfy constraint: "
                "Member must satisfy enum value set: [Event, RequestResponse, DryRun]"
            )
            raise ServiceError(400, "ValidationException", message)
        result = await self._service.invoke(function, payload, trace_id, kind)
        headers = {"x-amzn-RequestId": result.request_id, "X-Amz-Executed-Version": "$LATEST"}
        if result.function_error is not None:
            headers["X-Amz-Function-Error"] = result.function_error
        if request.headers.get("x-amz-log-type") == "Tail":
            headers["X-Amz-Log-Result"] = encoded_tail(result.log_tail)
        return Response(result.payload, result.status, headers, media_type="application/json")

    async def _put_event_invoke(self, request: Request) -> Response:
        keep = request.method == "POST"
        function = self._functions.put_event_invoke(request.path_params["name"], await _body(request), keep)
        assert function.event_invoke is not None
        return _json(function.event_invoke.as_document(function.name))

    async def _get_event_invoke(self, request: Request) -> Response:
        function = self._function(request)
        if function.event_invoke is None:
            message = f"The function {function_arn(function.name)}:$LATEST doesn't have an EventInvokeConfig"
            raise ServiceError(404, "ResourceNotFoundException", message)
        return _json(function.event_invoke.as_document(function.name))

    async def _delete_event_invoke(self, request: Request) -> Response:
        self._functions.delete_event_invoke(request.path_params["name"])
        return Response(status_code=204)

    def _function(self, request: Request) -> Function:
        return self._functions.get(request.path_params["name"])


def _with_slash(table: list[tuple[str, str, Handler]]) -> list[tuple[str, str, Handler]]:
    # boto3 sends CreateFunction and ListFunctions with a trailing slash in some versions and without in others.
    return table + [(method, path + "/", handler) for method, path, handler in table]


def _new_trace_id() -> str:
    return f"Root=1-{uuid.uuid4().hex[:8]}-{uuid.uuid4().hex[:24]};Parent={uuid.uuid4().hex[:16]};Sampled=0"


async def _body(request: Request) -> dict[str, Any]:
    try:
        document = json.loads(await request.body() or b"{}")
    except ValueError as error:
        raise ServiceError(400, "SerializationException", f"The request body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ServiceError(400, "SerializationException", "The request body must be a JSON object")
    return document


def _json(document: dict[str, Any], status: int = 200) -> Response:
    headers = {"x-amzn-RequestId": str(uuid.uuid4())}
    return Response(json.dumps(document), status, headers, media_type="application/json")


async def _service_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    kind = "User" if error.status < 500 else "Service"
    headers = {"x-amzn-ErrorType": error.error_type, "x-amzn-RequestId": str(uuid.uuid4())}
    body = json.dumps({"Type": kind, "Message": error.message, "message": error.message})
    return Response(body, error.status, headers, media_type="application/json")


async def _no_operation(request: Request, _error: Exception) -> Response:
    message = f"slslab emulates no operation {request.method} {request.url.path} (account {ACCOUNT})"
    return await _service_error(request, ServiceError(404, "UnknownOperationException", message))
