"""Function URLs: their operations, and the plain HTTP requests that invoke the function if its policy allows it.

Requests become events, and a function's answers responses, by payload format 2.0 and CORS; formats are as recorded from
AWS, unless a comment says otherwise. https://docs.aws.amazon.com/lambda/latest/dg/urls-auth.html,
https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html and
https://docs.aws.amazon.com/lambda/latest/dg/urls-configuration.html#urls-cors
"""

import base64
import json
import re
import secrets
import string
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from slslab.aws.arns import ACCOUNT
from slslab.aws.errors import ServiceError, conflict, missing
from slslab.aws.gate import authenticate, read_body
from slslab.aws.json_text import parse_json
from slslab.aws.keys import Keyring, Principal
from slslab.aws.signatures import IndexedHeaders
from slslab.lambda_.api import Answer, Call
from slslab.lambda_.functions import Entry, FunctionResource, Functions, Policy, Target
from slslab.lambda_.invocation import InvocationService, new_trace_id
from slslab.lambda_.layers import NO_RESOURCE
from slslab.lambda_.policies import allows
from slslab.lambda_.references import LATEST, URL_HOST, URL_PREFIX, function_arn

# documented: urls-auth.html: URLs that were made since October 2025 need both, and since November 2026 all do.
# (Recorded in September 2026, in an account that still was an exception: the first was enough.)
ACTIONS = ("lambda:InvokeFunctionUrl", "lambda:InvokeFunction")
ALPHABET, BUFFERED = string.ascii_lowercase + string.digits, "BUFFERED"
FORBIDDEN = (
    "Forbidden. For troubleshooting Function URL authorization issues, see: "
    "https://docs.aws.amazon.com/lambda/latest/dg/urls-auth.html"
)
NO_FUNCTION = "Function does not exist"
TEXT = re.compile(r"(text/.*|application/(json|xml|javascript))(;.*)?", re.IGNORECASE)
# Headers of a connection, and headers that the server writes itself.
CONNECTION = frozenset({"connection", "content-length", "date", "keep-alive", "transfer-encoding", "upgrade"})
# assumed: a signature stays with Lambda.
SIGNATURE = frozenset({"authorization", "x-amz-security-token"})
TOKEN, CONTROL = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"), re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
NO_CONTENT = (204, 304)
# A streaming runtime writes this between its description of a response and the body.
DESCRIPTION_END = bytes(8)
Headers = Sequence[tuple[str, str]]


def make_event(
    scope: Scope,
    url_id: str,
    path: str,
    body: bytes,
    request_id: str,
    trace_id: str,
    signer: tuple[Principal, str] | None = None,
) -> bytes:
    """Return the event that the function gets for an HTTP request.

    `path` is the URL's part of the request's path; `signer` is who signed it, with the key's id, if its AuthType is
    AWS_IAM.
    """
    now = time.time()
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    query = scope["query_string"].decode("latin-1")
    source_ip = scope["client"][0]
    host = dict(pairs)["host"]
    # The client's headers and Lambda's. The protocol is http, because there isn't TLS here.
    headers = _joined((name, value) for name, value in pairs if name not in CONNECTION | SIGNATURE)
    if scope["method"] != "HEAD":
        headers["content-length"] = str(len(body))
    headers |= {
        "x-amzn-trace-id": trace_id,
        "x-forwarded-proto": "http",
        "x-forwarded-port": host.rpartition(":")[2] if ":" in host else "80",
        "x-forwarded-for": source_ip,
    }
    document: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
    }
    if cookies := [each for name, value in pairs if name == "cookie" for each in value.split("; ")]:
        document["cookies"] = cookies
    document["headers"] = headers
    if parameters := _joined(parse_qsl(query, keep_blank_values=True)):
        document["queryStringParameters"] = parameters
    document["requestContext"] = {
        "accountId": "anonymous" if signer is None else ACCOUNT,
        "apiId": url_id,
        **({} if signer is None else {"authorizer": {"iam": _identity(*signer)}}),
        "domainName": host,
        "domainPrefix": url_id,
        "http": {
            "method": scope["method"],
            "path": re.sub("/+", "/", unquote(path)),
            "protocol": "HTTP/1.1",
            "sourceIp": source_ip,
            "userAgent": headers.get("user-agent", ""),
        },
        "requestId": request_id,
        "routeKey": "$default",
        "stage": "$default",
        "time": f"{datetime.fromtimestamp(now, UTC):%d/%b/%Y:%H:%M:%S +0000}",
        "timeEpoch": int(now * 1000),
    }
    text = _text_of(body, headers.get("content-type", ""))
    if body:
        document["body"] = base64.b64encode(body).decode() if text is None else text
    document["isBase64Encoded"] = text is None
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True)
class UrlAnswer:
    """The HTTP response to a request; names of headers are in lower case."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes = b""


FAILED = UrlAnswer(502, (("content-type", "application/json"),), b"Internal Server Error")


def answer(payload: bytes | None, *, streamed: bool = False) -> UrlAnswer:
    """Return the response for a function's payload, which is None if the function failed.

    JSON becomes the body, without spaces, except an object with a `statusCode`. A streaming URL always has the payload
    as its body, because a runtime that doesn't stream returns it as a whole. A streaming runtime may describe the
    response before the body. Bytes that aren't JSON become the body.
    """
    if payload is None:
        return FAILED
    description, end, rest = payload.partition(DESCRIPTION_END)
    bare = UrlAnswer(200, (("content-type", "application/octet-stream"),), payload)
    try:
        returned = parse_json(description)
        if isinstance(returned, dict) and (end or "statusCode" in returned):
            behind = rest if end else payload
            content = behind if streamed else b"" if end else None
            return _structured({"statusCode": 200} | returned, content)
    except ValueError:
        return bare
    except RecursionError:
        return FAILED
    if end:
        return bare
    if not streamed:
        payload = _encoded(returned if isinstance(returned, str) else _compact(returned))
    return UrlAnswer(200, (("content-type", "application/json"),), payload)


def _structured(returned: Mapping[str, Any], content: bytes | None) -> UrlAnswer:
    """Return the response that an object describes; its body is `content`, or the object's if that is None."""
    status, given, cookies = returned["statusCode"], returned.get("headers") or {}, returned.get("cookies") or []
    if isinstance(status, str) and status.isdecimal():
        status = int(status[:4])
    if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599:
        return FAILED
    if not isinstance(given, dict) or not isinstance(cookies, list):
        return FAILED
    headers = [(name.lower(), _shown(value)) for name, value in given.items() if name.lower() not in CONNECTION]
    headers += [("set-cookie", _shown(cookie)) for cookie in cookies]
    if any(not TOKEN.fullmatch(name) or CONTROL.search(value) for name, value in headers):
        return FAILED
    if all(name != "content-type" for name, _ in headers):
        headers.append(("content-type", "application/json"))
    if content is None:
        body = returned.get("body", "")
        text = body if isinstance(body, str) else _compact(body)
        content = _lenient_base64(text) if returned.get("isBase64Encoded") is True else _encoded(text)
    return UrlAnswer(status, headers, b"" if status in NO_CONTENT else content)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _shown(value: Any) -> str:
    """Return a header's value as text: an object as Java writes a map."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_shown(key)}={_shown(each)}" for key, each in value.items()) + "}"
    return _encoded(value).decode() if isinstance(value, str) else json.dumps(value)


def _encoded(text: str) -> bytes:
    """Return text as UTF-8; half a pair of surrogates, which JSON may have, becomes a question mark."""
    return text.encode(errors="replace")


def _lenient_base64(text: str) -> bytes:
    """Decode Base64, URL-safe characters too; skip other characters, and a single one left over at the end."""
    kept = re.sub(r"[^A-Za-z0-9+/]", "", text.translate({ord("-"): "+", ord("_"): "/"}))
    kept = kept[: len(kept) - (len(kept) % 4 == 1)]
    return base64.b64decode(kept + "=" * (-len(kept) % 4))


def _joined(pairs: Any) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in pairs:
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def _text_of(body: bytes, content_type: str) -> str | None:
    if not body:
        return ""
    if TEXT.fullmatch(content_type.strip()) is None:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _identity(caller: Principal, key_id: str) -> Mapping[str, Any]:
    """Return who signed a request; assumed: a caller's name stands for the ids that AWS's identities have."""
    return {
        "accessKey": key_id,
        "accountId": ACCOUNT,
        "callerId": caller.function or ACCOUNT,
        "cognitoIdentity": None,
        "principalOrgId": None,
        "userArn": caller.arn,
        "userId": caller.function or ACCOUNT,
    }


def preflight(cors: Mapping[str, Any], method: str, headers: Mapping[str, str]) -> UrlAnswer | None:
    """Return the answer to a preflight request, for which no function runs; None for any other request."""
    wanted = headers.get("access-control-request-method")
    if not cors or method != "OPTIONS" or wanted is None or "origin" not in headers:
        return None
    names = [name.strip() for name in headers.get("access-control-request-headers", "").split(",") if name.strip()]
    plain = [("content-type", "application/json")]
    allowed = (
        _allows(cors, "AllowOrigins", headers["origin"])
        and _allows(cors, "AllowMethods", wanted)
        and all(_allows(cors, "AllowHeaders", name) for name in names)
    )
    if not allowed:
        return UrlAnswer(200, plain)
    granted = [*plain, ("access-control-allow-origin", headers["origin"]), ("vary", "Origin")]
    for member in ("AllowHeaders", "AllowMethods"):
        if cors.get(member):
            granted.append((f"access-control-allow-{member.removeprefix('Allow').lower()}", ",".join(cors[member])))
    if cors.get("MaxAge") is not None:
        granted.append(("access-control-max-age", str(cors["MaxAge"])))
    return UrlAnswer(200, [*granted, *_credentials(cors)])


def shared(cors: Mapping[str, Any], origin: str | None, headers: Headers) -> Headers:
    """Return the headers of a function's answer, plus CORS headers if its caller's origin is allowed."""
    if origin is None or not _allows(cors, "AllowOrigins", origin):
        return headers
    exposed = [value for name, value in headers if name == "access-control-expose-headers"]
    exposed += cors.get("ExposeHeaders") or []
    return [
        *(header for header in headers if header[0] != "access-control-expose-headers"),
        ("access-control-allow-origin", origin),
        ("vary", "Origin"),
        *([("access-control-expose-headers", ",".join(exposed))] if exposed else []),
        *_credentials(cors),
    ]


def _allows(cors: Mapping[str, Any], member: str, value: str) -> bool:
    """Return whether a list of the configuration contains a value, ignoring case, or the asterisk.

    assumed: an origin that the asterisk allows is answered by its name, like any other.
    """
    return any(each == "*" or each.lower() == value.lower() for each in cors.get(member) or ())


def _credentials(cors: Mapping[str, Any]) -> Headers:
    return [("access-control-allow-credentials", "true")] if cors.get("AllowCredentials") else []


class UrlServer:
    """The ASGI application of one emulator's function URLs; the gate only checks that a request's host is known."""

    prefix, host = URL_PREFIX, URL_HOST

    def __init__(self, functions: Functions, service: InvocationService, keys: Keyring) -> None:
        self._functions = functions
        self._service = service
        self._keys = keys
        self._limit = functions.limits.request_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            response = await self._answer(scope, receive, IndexedHeaders(scope["headers"]))
        except ServiceError as error:
            document = {"Message": error.message, **error.fields}
            response = JSONResponse(document, error.status, {"x-amzn-ErrorType": error.error_type, **error.headers})
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, headers: IndexedHeaders) -> Response:
        url_id, path = called(headers["host"].partition(":")[0].lower(), scope["raw_path"].decode("latin-1"))
        entry, qualifier, url = self._find(url_id)
        if (granted := preflight(url.get("Cors", {}), scope["method"], headers)) is not None:
            return _response(granted)
        policy = entry.policies.get(qualifier, {})
        caller, signer = None, None
        if url["AuthType"] == "AWS_IAM":
            caller, key_id, body = await self._signed(scope, receive, headers)
            signer = caller, key_id
        _authorize(policy, url["AuthType"], caller)
        if caller is None:
            body = await read_body(receive, headers, self._limit, "InvokeFunction")
        target = self._target(entry, qualifier)
        request_id, trace_id = str(uuid.uuid4()), headers.get("x-amzn-trace-id") or new_trace_id()
        result = await self._service.invoke(
            target,
            make_event(scope, url_id, path, body, request_id, trace_id, signer),
            trace_id,
            caller=caller.function if caller is not None else "",
            request_id=request_id,
        )
        streamed = url.get("InvokeMode", BUFFERED) != BUFFERED
        returned = answer(None if result.function_error else result.payload, streamed=streamed)
        merged = shared(url.get("Cors", {}), headers.get("origin"), returned.headers)
        ids = [("x-amzn-requestid", request_id), ("x-amzn-trace-id", trace_id)]
        return _response(UrlAnswer(returned.status, [*merged, *ids], returned.body))

    def _find(self, url_id: str) -> tuple[Entry, str, Mapping[str, Any]]:
        """Return the function that owns this URL. Unknown and disabled ids look the same."""
        for entry in self._functions.entries():
            for qualifier, url in entry.urls.items():
                if url["Id"] == url_id:
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


def _authorize(policy: Policy, auth_type: str, caller: Principal | None) -> None:
    values = {"lambda:FunctionUrlAuthType": auth_type, "lambda:InvokedViaFunctionUrl": "true"}
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
        entry, qualifier = self._qualified(call, NO_FUNCTION), call.qualifier
        arn = function_arn(call.name, qualifier)
        if (qualifier or LATEST) in entry.urls:
            raise conflict(
                f"Failed to create function url config for [functionArn = {arn}]. Error message:  FunctionUrlConfig "
                "exists for this Lambda function"
            )
        url_id, now = "".join(secrets.choice(ALPHABET) for _ in range(32)), _now()
        new = {"Id": url_id, "FunctionArn": arn, "CreationTime": now, "LastModifiedTime": now}
        url = entry.urls[qualifier or LATEST] = _changed(new, call.members)
        return _document(url, call.headers["host"])

    async def _get_function_url_config(self, call: Call) -> Answer:
        entry, qualifier = self._configured(call)
        return _listed(entry.urls[qualifier], call.headers["host"])

    async def _update_function_url_config(self, call: Call) -> Answer:
        self._qualified(call, NO_FUNCTION)
        entry, qualifier = self._configured(call)
        url = entry.urls[qualifier] = _changed(entry.urls[qualifier], call.members) | {"LastModifiedTime": _now()}
        return _document(url, call.headers["host"]) | {"LastModifiedTime": url["LastModifiedTime"]}

    async def _delete_function_url_config(self, call: Call) -> None:
        entry, qualifier = self._configured(call)
        del entry.urls[qualifier]

    async def _list_function_url_configs(self, call: Call) -> Answer:
        if not self._functions.exists(call.name):
            raise missing(NO_FUNCTION)
        urls = self._functions.entry(call.name).urls
        return call.page("FunctionUrlConfigs", {key: _listed(url, call.headers["host"]) for key, url in urls.items()})

    def _configured(self, call: Call) -> tuple[Entry, str]:
        """Return the function, and the key of its URL; a deleted alias keeps its URL (recorded)."""
        qualifier = call.qualifier or LATEST
        if not self._functions.exists(call.name) or qualifier not in self._functions.entry(call.name).urls:
            raise missing(NO_RESOURCE)
        return self._functions.entry(call.name), qualifier


def _changed(url: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a URL with a request's settings, except empty ones, as in AWS's answers (recorded)."""
    settings = {name: request[name] for name in ("AuthType", "Cors", "InvokeMode") if name in request}
    return {name: value for name, value in {**url, **settings}.items() if value}


def _document(url: Mapping[str, Any], host: str) -> dict[str, Any]:
    """Return the members that all answers contain. `host` is the host and port by which the client calls us."""
    members = {name: value for name, value in url.items() if name not in ("Id", "LastModifiedTime")}
    return {"FunctionUrl": f"http://{host}{URL_PREFIX}{url['Id']}/", **members}


def _listed(url: Mapping[str, Any], host: str) -> dict[str, Any]:
    """Return the members of GetFunctionUrlConfig's answer."""
    return {"InvokeMode": BUFFERED, "LastModifiedTime": url["LastModifiedTime"], **_document(url, host)}


def called(name: str, path: str) -> tuple[str, str]:
    """Return the URL id in a request's host or path, and the rest of the path."""
    if (found := URL_HOST.fullmatch(name)) is not None:
        return found["id"], path
    url, slash, rest = path.removeprefix(URL_PREFIX).partition("/")
    return url, slash + rest or "/"


def _now() -> str:
    """Return the time with nanoseconds, as AWS writes it (recorded)."""
    now = time.time_ns()
    return f"{datetime.fromtimestamp(now // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{now % 10**9:09}Z"
