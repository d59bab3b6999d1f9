"""Function URLs: their operations, and the plain HTTP requests that invoke the function if its policy allows it.

https://docs.aws.amazon.com/lambda/latest/dg/urls-auth.html
"""

import uuid
from dataclasses import replace

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from slslab.aws.errors import ServiceError, conflict, missing
from slslab.aws.gate import authenticate, read_body
from slslab.aws.keys import Keyring, Principal
from slslab.aws.limits import Limits
from slslab.aws.signatures import IndexedHeaders
from slslab.lambda_.api import Answer, Call
from slslab.lambda_.attachments import BUFFERED, HOST, PREFIX, FunctionUrl, called
from slslab.lambda_.functions import Entry, FunctionResource, Functions, Policy, Target
from slslab.lambda_.invocation import InvocationService, new_trace_id
from slslab.lambda_.layers import NO_RESOURCE
from slslab.lambda_.policies import allows
from slslab.lambda_.references import LATEST, function_arn
from slslab.lambda_.url_payloads import UrlAnswer, UrlRequest, answer, preflight, shared

# documented: urls-auth.html: URLs that were made since October 2025 need both, and since November 2026 all do.
# (Recorded in September 2026, in an account that still was an exception: the first was enough.)
ACTIONS = ("lambda:InvokeFunctionUrl", "lambda:InvokeFunction")
FORBIDDEN = (
    "Forbidden. For troubleshooting Function URL authorization issues, see: "
    "https://docs.aws.amazon.com/lambda/latest/dg/urls-auth.html"
)


class UrlServer:
    """The ASGI application of one emulator's function URLs; the gate only checks that a request's host is known."""

    prefix, host = PREFIX, HOST

    def __init__(self, functions: Functions, service: InvocationService, keys: Keyring, limits: Limits) -> None:
        self._functions = functions
        self._service = service
        self._keys = keys
        self._limit = limits.request_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            response = await self._answer(scope, receive, IndexedHeaders(scope["headers"]))
        except ServiceError as error:
            document = {"Message": error.message, **error.fields}
            response = JSONResponse(document, error.status, {"x-amzn-ErrorType": error.error_type, **error.headers})
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, headers: IndexedHeaders) -> Response:
        host = headers["host"]
        url_id, path = called(host.partition(":")[0].lower(), scope["raw_path"].decode("latin-1"))
        entry, qualifier, url = self._find(url_id)
        pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        if (granted := preflight(url.cors, scope["method"], dict(pairs))) is not None:
            return _response(granted)
        policy = entry.policies.get(qualifier, {})
        caller, key_id = None, ""
        if url.auth_type == "AWS_IAM":
            caller, key_id, body = await self._signed(scope, receive, headers)
        _authorize(policy, url, caller)
        if caller is None:
            body = await read_body(receive, headers, self._limit, "InvokeFunction")
        target = self._target(entry, qualifier)
        request = UrlRequest(
            url_id=url.id,
            host=host,
            method=scope["method"],
            path=path,
            query=scope["query_string"].decode("latin-1"),
            headers=pairs,
            body=body,
            source_ip=scope["client"][0],
            caller=caller,
            key_id=key_id,
        )
        request_id, trace_id = str(uuid.uuid4()), headers.get("x-amzn-trace-id") or new_trace_id()
        result = await self._service.invoke(
            target,
            request.event(request_id, trace_id),
            trace_id,
            caller=caller.function if caller is not None else "",
            request_id=request_id,
        )
        streamed = url.invoke_mode not in (None, BUFFERED)
        returned = answer(None if result.function_error else result.payload, streamed=streamed)
        merged = shared(url.cors, headers.get("origin"), returned.headers)
        ids = [("x-amzn-requestid", request_id), ("x-amzn-trace-id", trace_id)]
        return _response(UrlAnswer(returned.status, [*merged, *ids], returned.body))

    def _find(self, url_id: str) -> tuple[Entry, str, FunctionUrl]:
        """Return the function that owns this URL. Unknown and disabled ids look the same."""
        for entry in self._functions.entries():
            for qualifier, url in entry.urls.items():
                if url.id == url_id:
                    return entry, qualifier, url
        raise _forbidden()

    async def _signed(self, scope: Scope, receive: Receive, headers: IndexedHeaders) -> tuple[Principal, str, bytes]:
        try:
            caller, signature, body = await authenticate(
                self._keys, headers, scope, receive, self._limit, "InvokeFunction"
            )
        except ServiceError as error:
            raise _forbidden() if error.error_type == "MissingAuthenticationTokenException" else error from error
        if signature.service != "lambda":
            raise ServiceError(
                403, "InvalidSignatureException", "Credential should be scoped to correct service: 'lambda'. "
            )
        return caller, signature.key_id, body

    def _target(self, entry: Entry, qualifier: str) -> Target:
        try:
            return self._functions.route(entry.latest.name, None if qualifier == LATEST else qualifier)
        except ServiceError as error:
            raise _forbidden() from error  # its alias was deleted


def _authorize(policy: Policy, url: FunctionUrl, caller: Principal | None) -> None:
    values = {"lambda:FunctionUrlAuthType": url.auth_type, "lambda:InvokedViaFunctionUrl": "true"}
    for action in ACTIONS:
        permitted = caller is not None and (caller.actions is None or action in caller.actions)
        if not permitted and not allows(policy, action, caller.arn if caller is not None else None, values):
            raise _forbidden()


def _forbidden() -> ServiceError:
    return ServiceError(403, "AccessDeniedException", FORBIDDEN)


def _response(returned: UrlAnswer) -> Response:
    response = Response(returned.body, returned.status)
    for name, value in returned.headers:
        # A header that a function returned may have any characters.
        response.headers.append(name, value.encode().decode("latin-1"))
    return response


class FunctionUrlOperations(FunctionResource):
    """The operations on function URLs of one emulator."""

    async def _create_function_url_config(self, call: Call) -> Answer:
        entry, qualifier = self._target(call)
        arn = function_arn(entry.latest.name, qualifier)
        if (qualifier or LATEST) in entry.urls:
            raise conflict(
                f"Failed to create function url config for [functionArn = {arn}]. Error message:  FunctionUrlConfig "
                "exists for this Lambda function"
            )
        url = entry.urls[qualifier or LATEST] = FunctionUrl.of(arn, call.members)
        return url.document(call.headers["host"])

    async def _get_function_url_config(self, call: Call) -> Answer:
        entry, qualifier = self._configured(call)
        return entry.urls[qualifier].listed(call.headers["host"])

    async def _update_function_url_config(self, call: Call) -> Answer:
        self._target(call)
        entry, qualifier = self._configured(call)
        old, given = entry.urls[qualifier], call.members
        url = FunctionUrl.of(
            old.arn, {"AuthType": old.auth_type, "Cors": old.cors, "InvokeMode": old.invoke_mode} | given
        )
        url = entry.urls[qualifier] = replace(url, id=old.id, created=old.created)
        return url.document(call.headers["host"]) | {"LastModifiedTime": url.modified}

    async def _delete_function_url_config(self, call: Call) -> None:
        entry, qualifier = self._configured(call)
        del entry.urls[qualifier]

    async def _list_function_url_configs(self, call: Call) -> Answer:
        if not self._functions.exists(call.name):
            raise missing("Function does not exist")
        urls = self._functions.entry(call.name).urls
        return call.page("FunctionUrlConfigs", {key: url.listed(call.headers["host"]) for key, url in urls.items()})

    def _target(self, call: Call) -> tuple[Entry, str | None]:
        try:
            target = self._functions.resolve(call.name, call.qualifier)
        except ServiceError as error:
            raise missing("Function does not exist") if error.status == 404 else error from error
        return self._functions.entry(call.name), target.qualifier

    def _configured(self, call: Call) -> tuple[Entry, str]:
        """Return the function, and the key of its URL; a deleted alias keeps its URL (recorded)."""
        qualifier = call.qualifier or LATEST
        if not self._functions.exists(call.name) or qualifier not in self._functions.entry(call.name).urls:
            raise missing(NO_RESOURCE)
        return self._functions.entry(call.name), qualifier
