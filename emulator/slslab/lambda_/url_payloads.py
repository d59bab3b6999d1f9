"""Convert a function URL's HTTP requests to events, and a function's answers to responses (payload format 2.0, CORS).

https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html and
https://docs.aws.amazon.com/lambda/latest/dg/urls-configuration.html#urls-cors; formats as recorded from AWS, unless a
comment says otherwise.
"""

import base64
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

from slslab.aws.arns import ACCOUNT
from slslab.aws.json_text import parse_json
from slslab.aws.keys import Principal

TEXT = re.compile(r"(text/.*|application/(json|xml|javascript))(;.*)?", re.IGNORECASE)
# Headers of a connection, and headers that the server writes itself.
CONNECTION = frozenset({"connection", "content-length", "date", "keep-alive", "transfer-encoding", "upgrade"})
# assumed: a signature stays with Lambda.
SIGNATURE = frozenset({"authorization", "x-amz-security-token"})
TOKEN, CONTROL = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"), re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
NO_CONTENT = (204, 304)
# A streaming runtime writes this between its description of a response and the body.
DESCRIPTION_END = bytes(8)


@dataclass(frozen=True)
class UrlRequest:
    """An HTTP request to a function URL; `caller` and `key_id` tell who signed it, if its AuthType is AWS_IAM."""

    url_id: str
    host: str
    method: str
    path: str
    query: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    source_ip: str
    caller: Principal | None = None
    key_id: str = ""

    def event(self, request_id: str, trace_id: str) -> bytes:
        """Return the event that the function gets."""
        now = time.time()
        headers = self._headers(trace_id)
        document: dict[str, Any] = {
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": self.path,
            "rawQueryString": self.query,
        }
        if cookies := [each for name, value in self.headers if name == "cookie" for each in value.split("; ")]:
            document["cookies"] = cookies
        document["headers"] = headers
        if parameters := _joined(parse_qsl(self.query, keep_blank_values=True)):
            document["queryStringParameters"] = parameters
        document["requestContext"] = {
            "accountId": "anonymous" if self.caller is None else ACCOUNT,
            "apiId": self.url_id,
            **({} if self.caller is None else {"authorizer": {"iam": _identity(self.caller, self.key_id)}}),
            "domainName": self.host,
            "domainPrefix": self.url_id,
            "http": {
                "method": self.method,
                "path": re.sub("/+", "/", unquote(self.path)),
                "protocol": "HTTP/1.1",
                "sourceIp": self.source_ip,
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": request_id,
            "routeKey": "$default",
            "stage": "$default",
            "time": f"{datetime.fromtimestamp(now, UTC):%d/%b/%Y:%H:%M:%S +0000}",
            "timeEpoch": int(now * 1000),
        }
        text = _text_of(self.body, headers.get("content-type", ""))
        if self.body:
            document["body"] = base64.b64encode(self.body).decode() if text is None else text
        document["isBase64Encoded"] = text is None
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    def _headers(self, trace_id: str) -> dict[str, str]:
        """Return the event's headers: the client's and Lambda's. The protocol is http, because there isn't TLS here."""
        length = {} if self.method == "HEAD" else {"content-length": str(len(self.body))}
        kept = ((name, value) for name, value in self.headers if name not in CONNECTION | SIGNATURE)
        return {
            **_joined(kept),
            **length,
            "x-amzn-trace-id": trace_id,
            "x-forwarded-proto": "http",
            "x-forwarded-port": self.host.rpartition(":")[2] if ":" in self.host else "80",
            "x-forwarded-for": self.source_ip,
        }


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


Headers = Sequence[tuple[str, str]]


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
