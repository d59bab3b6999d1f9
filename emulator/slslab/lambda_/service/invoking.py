"""Invoke: payload and log in, payload and log out; at once, or as a stream.

https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html and API_InvokeWithResponseStream.html
"""

import base64
import json

from slslab.aws.errors import ServiceError
from slslab.aws.event_streams import MEDIA_TYPE, event_message
from slslab.aws.gate import principal
from slslab.aws.heads import WholeResponse
from slslab.lambda_.functions import Functions
from slslab.lambda_.invocation import InvocationService, new_trace_id
from slslab.lambda_.service.call import Call, Handler


class Invoking:
    """The operations of one emulator that invoke functions."""

    def __init__(self, functions: Functions, service: InvocationService) -> None:
        self._functions = functions
        self._service = service

    def handlers(self) -> dict[str, Handler]:
        """Return what answers each operation."""
        return {"Invoke": self._invoke, "InvokeWithResponseStream": self._stream}

    async def _invoke(self, call: Call) -> WholeResponse:
        target = self._functions.route(call.name, call.qualifier)
        headers = call.headers
        kind = headers.get("x-amz-invocation-type", "RequestResponse")
        trace_id = headers.get("x-amzn-trace-id") or new_trace_id()
        context = _client_context(headers.get("x-amz-client-context"))
        if kind == "DryRun":
            return WholeResponse(b"", 204)
        if kind == "Event":
            request_id = await self._service.accept_event(target, call.body, trace_id)
            return WholeResponse(b"", 202, {"x-amzn-RequestId": request_id, "X-Amzn-Trace-Id": trace_id})
        caller = principal(call.request).function
        result = await self._service.invoke(target, call.body, trace_id, context, caller)
        answered = {
            "x-amzn-RequestId": result.request_id,
            "X-Amzn-Trace-Id": trace_id,
            "X-Amz-Executed-Version": result.version,
        }
        if result.function_error is not None:
            answered["X-Amz-Function-Error"] = result.function_error
        if headers.get("x-amz-log-type") == "Tail":
            answered["X-Amz-Log-Result"] = base64.b64encode(result.log_tail).decode()
        return WholeResponse(result.payload, 200, answered, "application/json")

    async def _stream(self, call: Call) -> WholeResponse:
        """Answer with a stream of events (recorded).

        A function's answer, which may be its error, comes as one chunk when it is whole, and is limited as Invoke's:
        Python's runtimes do not stream. Whatever the InvocationType, the function runs while the client waits.
        """
        target = self._functions.route(call.name, call.qualifier)
        headers = call.headers
        trace_id = headers.get("x-amzn-trace-id") or new_trace_id()
        context = _client_context(headers.get("x-amz-client-context"))
        caller = principal(call.request).function
        result = await self._service.invoke(target, call.body, trace_id, context, caller)
        complete = {}
        if headers.get("x-amz-log-type") == "Tail":
            complete["LogResult"] = base64.b64encode(result.log_tail).decode()
        chunk = event_message("PayloadChunk", "application/octet-stream", result.payload) if result.payload else b""
        end = event_message("InvokeComplete", "application/json", json.dumps(complete).encode())
        answered = {
            "x-amzn-RequestId": result.request_id,
            "X-Amzn-Trace-Id": trace_id,
            "X-Amz-Executed-Version": result.version,
            "x-amzn-remapped-content-type": "application/json",
        }
        return WholeResponse(chunk + end, 200, answered, MEDIA_TYPE)


def _client_context(header: str | None) -> str | None:
    if header is None:
        return None
    try:
        # Serialised again: it becomes a header of the Runtime API, which must be one line.
        return json.dumps(json.loads(base64.b64decode(header, validate=True)))
    except (ValueError, RecursionError) as error:
        raise ServiceError(
            400, "InvalidRequestContentException", "Client context must be a valid Base64-encoded JSON object."
        ) from error
