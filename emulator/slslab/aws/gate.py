"""Guard all our HTTP ports: decide who may call, under which host name, and from which web site.

A page in a browser on this host can send requests to loopback. It can even read the answers if it rebinds its own name
to 127.0.0.1. But it can't set three headers, by which the gate recognises it: Host is the name that was called, and
Origin and Sec-Fetch-Site tell which site's page sends the request. AWS's clients don't send the last two.
https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/Sec-Fetch-Site

Programs on this host sign their requests as they do for AWS.
"""

import asyncio
import hashlib
import ipaddress
import json
import re
import uuid
import weakref
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from typing import Protocol
from xml.sax.saxutils import escape

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from slslab.aws.errors import ServiceError
from slslab.aws.keys import Keyring, Principal
from slslab.aws.signatures import IndexedHeaders, Signature, canonical_path

# AWS's clients send heads of a few kilobytes; one piece of data has up to 256, possibly of an earlier body.
LARGEST_HEAD = 512 * 1024
# assumed: AWS's clients wait for each answer before their next request.
MOST_WAITING = 100
# The ASGI extension that a whole response is sent with.
EXTENSION = "slslab.whole"


class BoundedHeads(HttpToolsProtocol):
    """Answers 400 if a head or the number of waiting requests exceeds the limits, and closes the connection."""

    _in_head = False
    _size = 0

    def on_message_begin(self) -> None:
        """Start counting. If too many requests wait, raise ValueError: the parser reports an invalid request."""
        if len(self.pipeline) >= MOST_WAITING:
            raise ValueError("too many requests wait for an answer")
        super().on_message_begin()
        self._in_head, self._size = True, 0

    def on_headers_complete(self) -> None:
        """Stop counting: the gate limits the body."""
        super().on_headers_complete()
        # Weak, because the cycle has the scope: only the garbage collector would free both, with the request's body.
        self.scope["extensions"] = {EXTENSION: {"cycle": weakref.ref(self.cycle)}}
        self._in_head = False

    def data_received(self, data: bytes) -> None:
        """Receive the next piece of a request."""
        super().data_received(data)
        self._size += len(data)
        if self._in_head and self._size > LARGEST_HEAD:
            self.send_400_response("The head of the request is too large.")


class WholeResponse(Response):
    """An ASGI response that leaves in one write; the server's protocol must be `BoundedHeads`.

    `headers` are trusted: no name and no value may have a line break.
    """

    def __init__(
        self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None, media_type: str = ""
    ) -> None:
        self.status_code, self.body = status, body
        self.lines = [f"{name.lower()}: {value}\r\n" for name, value in (headers or {}).items()]
        if media_type:
            self.lines.append(f"content-type: {media_type}\r\n")
        if status != 204:
            self.lines.append(f"content-length: {len(body)}\r\n")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send it."""
        cycle: RequestResponseCycle = scope["extensions"][EXTENSION]["cycle"]()
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        date = [part for name, value in cycle.default_headers for part in (name, b": ", value, b"\r\n")]
        closes = "" if cycle.keep_alive else "connection: close\r\n"
        head = "".join([*self.lines, closes, "\r\n"]).encode("latin-1")
        body = self.body if scope["method"] != "HEAD" else b""
        cycle.transport.write(b"".join([STATUS_LINE[self.status_code], *date, head, body]))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:]+)\]|(?P<name>[^:\[\]]+))(?::\d{1,5})?", re.IGNORECASE)
# Returns the maximum size of a request's body, bytes, and the operation for AWS's message.
BodyLimit = Callable[[Scope], tuple[int, str]]
# Hashing takes a third of a millisecond for each further megabyte.
HASHED_AT_ONCE = 1024 * 1024
# A liveness check can't sign.
OPEN_PATHS = frozenset({"/slslab/health"})


class Public(Protocol):
    """Answers unsigned requests from anywhere and decides itself whom to serve: function URLs.

    It owns the paths below a prefix, and all paths of hosts that match a pattern.
    """

    prefix: str
    host: re.Pattern[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""


class Gate:
    """Answers foreign requests with AWS's errors, and passes the others on to an ASGI application.

    It also answers with AWS's error if an application raises ServiceError, and not at all to a client that has left.
    `names` are this host's names in addition to `localhost` and the loopback addresses. With `keys`, every request
    needs a signature by one of them and a body within `limit`; `principal` tells the application who signed it.
    `public` answers its own requests; another web site's page may send them, too, but not under a host name of its own.
    """

    def __init__(
        self,
        application: ASGIApp,
        names: Collection[str] = (),
        keys: Keyring | None = None,
        limit: BodyLimit | None = None,
        public: Public | None = None,
    ) -> None:
        self._application = application
        self._names = frozenset(name.lower() for name in names)
        self._keys = keys
        self._limit = limit
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = IndexedHeaders(scope["headers"])
        try:
            application = self._checked_host(headers, scope["path"])
            if application is self._application:
                if "origin" in headers or "sec-fetch-site" in headers:
                    _check_origin(headers)
                if self._keys is not None and scope["path"] not in OPEN_PATHS:
                    assert self._limit is not None
                    signer, _, body = await authenticate(self._keys, headers, scope, receive, *self._limit(scope))
                    scope.setdefault("state", {}).update(principal=signer, headers=headers, body=body)
                    receive = partial(_receive_again, [body], receive)
            await application(scope, receive, send)
        except ServiceError as error:
            await refusal(error, headers)(scope, receive, send)
        except ClientDisconnect:
            return

    def _checked_host(self, headers: IndexedHeaders, path: str) -> ASGIApp:
        hosts = headers.getlist("host")
        # The result is cached; a name has at most 253 letters.
        name = _name(hosts[0][:300]) if len(hosts) == 1 else None
        public = self._public
        if name is not None and (name in self._names or _is_loopback(name)):
            return self._application if public is None or not path.startswith(public.prefix) else public
        if name is not None and public is not None and public.host.fullmatch(name):
            return public
        raise _foreign(f"This server is not called {', '.join(hosts)!r}. Call it 127.0.0.1 or localhost.")


def _check_origin(headers: IndexedHeaders) -> None:
    if any(origin != f"http://{headers['host']}" for origin in headers.getlist("origin")):
        raise _foreign("This request comes from another web site's page (Origin). Send it without a browser.")
    if any(site not in ("none", "same-origin") for site in headers.getlist("sec-fetch-site")):
        raise _foreign(
            "This request comes from another web site's page (Sec-Fetch-Site). Type the address into the browser."
        )


async def _receive_again(read: list[bytes], receive: Receive) -> Message:
    """Give the application the body, which has been read; then continue to receive."""
    return {"type": "http.request", "body": read.pop(), "more_body": False} if read else await receive()


async def authenticate(
    keys: Keyring, headers: IndexedHeaders, scope: Scope, receive: Receive, limit: int, operation: str
) -> tuple[Principal, Signature, bytes]:
    """Verify a request's signature and return its signer, the signature, and the body within its limit."""
    query = scope["query_string"].decode("latin-1")
    signature = Signature.of(headers, query)
    pair, signer = keys.find(signature.key_id, signature.token)
    body = await read_body(receive, headers, limit, operation)
    digest = hashlib.sha256(body) if len(body) <= HASHED_AT_ONCE else await asyncio.to_thread(hashlib.sha256, body)
    signature.check_time()
    path = canonical_path(scope["raw_path"].decode("latin-1"))
    signature.verify(pair.secret, scope["method"], path, query, headers, digest.hexdigest())
    return signer, signature, body


def principal(request: Request) -> Principal:
    """Return the signer of a request that has passed the gate."""
    found: Principal = request.scope["state"]["principal"]
    return found


def refusal(error: ServiceError, headers: IndexedHeaders) -> Response:
    """Return the response for an error outside of any operation, in the form of the client's protocol."""
    status, media_type, document = refusal_document(error, headers.get("content-type", ""))
    return Response(document, status, {"x-amzn-ErrorType": error.error_type}, media_type)


def refusal_document(error: ServiceError, content_type: str) -> tuple[int, str, bytes]:
    """Return status, media type and body of such an error; the request's content type tells the protocol.

    documented: CommonErrors.html of each service: in AWS JSON, all client errors have status 400.
    """
    if content_type.startswith("application/x-www-form-urlencoded"):
        kind = "Sender" if error.status < 500 else "Receiver"
        message = f"<Type>{kind}</Type><Code>{error.error_type}</Code><Message>{escape(error.message)}</Message>"
        document = f"<ErrorResponse><Error>{message}</Error><RequestId>{uuid.uuid4()}</RequestId></ErrorResponse>"
        return error.status, "text/xml", document.encode()
    members = {"__type": error.error_type, "Type": "User", "Message": error.message, "message": error.message}
    json_only = content_type.startswith("application/x-amz-json") and error.status < 500
    return 400 if json_only else error.status, "application/json", json.dumps(members).encode()


async def read_body(receive: Receive, headers: IndexedHeaders, limit: int, operation: str) -> bytes:
    """Return a body within its limit. A longer one is refused by its declared length, or when it exceeds the limit.

    The rest of the body is read and dropped, because closing the connection would lose the client the answer.
    """
    declared = headers.get("content-length", "0")
    if not declared.isdecimal() or len(declared) > 15 or int(declared) > limit:
        raise _too_large(limit, operation)
    chunks, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise _too_large(limit, operation)
        more = message.get("more_body", False)
    return b"".join(chunks)


def _too_large(limit: int, operation: str) -> ServiceError:
    return ServiceError(
        413,
        "RequestEntityTooLargeException",
        f"Request must be smaller than {limit} bytes for the {operation} operation",
    )


def _foreign(message: str) -> ServiceError:
    return ServiceError(403, "AccessDeniedException", message)


@lru_cache
def _name(host: str) -> str | None:
    found = HOST.fullmatch(host)
    return (found["address"] or found["name"]).lower() if found else None


@lru_cache
def _is_loopback(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
