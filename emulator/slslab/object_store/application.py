"""Serve S3 as an ASGI application: find the operation and caller of a request, and answer in S3's format."""

import asyncio
import re
import sys
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

from botocore import xform_name
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from slslab.aws.arns import ACCOUNT
from slslab.aws.errors import ServiceError
from slslab.aws.keys import Keyring, Principal
from slslab.aws.signatures import IndexedHeaders, parameters
from slslab.object_store import SERVER, buckets, checksums, cors, model, objects, signing, uploads
from slslab.object_store.bodies import Incoming
from slslab.object_store.call import Answer, Call
from slslab.object_store.errors import failure, refusal
from slslab.object_store.storage import Store, read

# recorded: MaxSizeAllowed of RequestHeaderSectionTooLarge.
LARGEST_HEAD = 8192
# assumed: a longer document is parsed on another thread.
LARGE_DOCUMENT = 16 * 1024
# Some clients put the bucket's name before the host's name.
HOST = re.compile(r"(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])\.localhost", re.IGNORECASE)
# Characters that parameters can contain, but headers can't.
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f]")
Handler = Callable[[Call], Awaitable[Answer]]
# Takes the operation, function, start_ns, end_ns and size of a request (`slslab.stack.object_store.AccessLog`).
Log = Callable[[str, str, int, int, int], None]
# What to use instead of an operation.
HINTS = {
    "PutBucketNotificationConfiguration": "invoke the function, or send the message, when the object has been put.",
    "PutBucketLifecycleConfiguration": "delete objects with DeleteObjects; when the service ends, all are deleted.",
    "SelectObjectContent": "read the object with GetObject.",
}
# HEAD and all other reads cost the same as GET; starting and completing a multipart upload cost the same as POST.
# documented: Amazon S3 pricing, "Requests & data retrievals".
PUT, LIST, GET, DELETE = "object.put", "object.list", "object.get", "object.delete"
BILLED = {"PUT": PUT, "POST": PUT, "DELETE": DELETE}


class Application:
    """Serves the buckets of a store; `keys` are the callers' keys, and `log` is called for each billed request."""

    prefix, host = "/", HOST

    def __init__(self, store: Store, keys: Keyring, log: Log) -> None:
        self._store = store
        self._keys = keys
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive, self._store, self._keys)
        try:
            answer, document = await request.answer()
        except ClientDisconnect:
            raise
        except ServiceError as error:
            answer, document = request.refused(error)
        except OSError as error:
            answer, document = request.refused(failure("InternalError", f"The S3 server's disk failed: {error}"))
        except Exception:
            traceback.print_exc(file=sys.stderr)
            answer, document = request.refused(failure("InternalError"))
        await request.send(answer, document, send, self._log)


class Request:
    """One request: its bucket and key, and its operation and caller once these are known."""

    def __init__(self, scope: Scope, receive: Receive, store: Store, keys: Keyring) -> None:
        self._store = store
        self._keys = keys
        self._began_ns = time.monotonic_ns()
        self._id = uuid.uuid4().hex[:16].upper()
        self._headers = IndexedHeaders(scope["headers"])
        self._method: str = scope["method"]
        self._sent_path = self._path = scope["raw_path"].decode("latin-1")
        self._query = scope["query_string"].decode("latin-1")
        self._operation: model.Operation | None = None
        self._principal: Principal | None = None
        self._cross_origin: Mapping[str, str] = MappingProxyType({})
        self._receive = receive
        self._incoming = Incoming(receive, _length(self._headers, signing.UNSIGNED), signing.UNSIGNED)
        self._bucket = self._key = ""
        self._host = self._headers.get("host", "localhost")

    async def answer(self) -> tuple[Answer, bytes]:
        """Return the answer and its document; raises S3's errors."""
        lines = sum(len(name) + len(value) + 4 for name, value in self._headers.raw)
        if lines + len(self._path) + len(self._query) > LARGEST_HEAD:
            raise failure("RequestHeaderSectionTooLarge", MaxSizeAllowed=str(LARGEST_HEAD))
        self._read_names()
        given = dict(parameters(self._query))
        self._allow_origin()
        if self._method == "OPTIONS":
            self._check_preflight()
            return Answer(), b""
        kind = self._headers.get("content-type", "").lower()
        if self._method == "POST" and not self._key and kind.startswith("multipart/form-data"):
            # A form has its signature inside.
            raise refusal("PostObject", "upload with PutObject, or by a presigned URL.")
        self._principal, payload = signing.authenticate(
            self._keys, self._method, self._sent_path, self._path, self._query, given, self._headers
        )
        if "" in given and not given[""]:
            del given[""]
        headers = {name: ",".join(self._headers.getlist(name)) for name in set(self._headers)}
        for name, value in given.items():
            # When boto3 presigns with Version 2, it moves headers into the query.
            if name.startswith("x-amz-") or name == "content-type":
                headers.setdefault(name, value)
        try:
            operation = model.find(self._method, self._bucket, self._key, given, "x-amz-copy-source" in headers)
        except ServiceError as error:
            # Callers without a key don't learn which operations exist.
            raise (failure("AccessDenied") if self._principal is None else error) from None
        self._operation = operation
        self._incoming = Incoming(self._receive, _length(headers, payload), payload)
        members = model.members(operation, given, headers)
        call = Call(
            operation, members, self._bucket, self._key, self._principal, self._store, self._incoming, self._host
        )
        if operation.name != "DeleteObjects":
            call.authorize(self._key, members.get("VersionId"))
        for name in ("ExpectedBucketOwner", "ExpectedSourceBucketOwner"):
            if members.pop(name, ACCOUNT) != ACCOUNT:
                raise failure("AccessDenied")
        handler = _handler(operation.name)
        if handler is None:
            raise refusal(operation.name, HINTS.get(operation.name, "docs/services.md lists what S3 does here."))
        call.check_members()
        await self._read_body(call, headers)
        answer = await handler(call)
        await self._incoming.discard()
        if answer.output.get("EncodingType"):
            answer.output = _url_encoded(answer.output)
        return answer, model.document(operation, answer.output) if answer.body is None else b""

    def refused(self, error: ServiceError) -> tuple[Answer, bytes]:
        """Return an error as an answer."""
        if error.status == 304 or self._method == "HEAD":
            return Answer(status=error.status, headers=error.headers), b""
        fields = "".join(f"<{name}>{model.text_of(value)}</{name}>" for name, value in error.fields.items())
        document = (
            f"{model.DECLARATION}<Error><Code>{error.error_type}</Code>"
            f"<Message>{model.text_of(error.message)}</Message>{fields}"
            f"<Resource>{escape(self._path)}</Resource><RequestId>{self._id}</RequestId><HostId>slslab</HostId></Error>"
        )
        # A message can quote half a character of a policy in JSON.
        return Answer(status=error.status, headers=error.headers), document.encode(errors="replace")

    def billed(self, status: int) -> str:
        """Return the operation that AWS bills the request as; empty if AWS doesn't bill it.

        documented: S3 user guide, "Billing for Amazon S3 error responses": AWS doesn't bill its own failures, nor
        refused requests from outside the account. assumed: nor requests for missing buckets, which have no owner.
        """
        nobodys = status == 404 and self._bucket not in self._store.buckets
        if status >= 500 or nobodys or (status == 403 and self._principal is None):
            return ""
        if self._operation is not None and self._operation.name == "DeleteObjects":
            return DELETE
        if self._method == "GET" and not self._key:
            return LIST
        return BILLED.get(self._method, GET)

    async def send(self, answer: Answer, document: bytes, send: Send, log: Log) -> None:
        """Send an answer, but an object only as fast as its client reads. It is logged before the last part is sent."""
        headers = [
            ("server", SERVER),
            ("x-amz-request-id", self._id),
            *answer.headers.items(),
            *self._cross_origin.items(),
        ]
        if self._operation is not None:
            headers += model.header_fields(self._operation, answer.output)
        if answer.body is None:
            if document:
                headers.append(("content-type", "application/xml"))
            if answer.status not in (204, 304):
                headers.append(("content-length", str(len(document))))
        if await self._left_unread():
            headers.append(("connection", "close"))
        encoded = [
            (name.encode("latin-1"), CONTROL.sub(" ", value).encode("latin-1", "replace")) for name, value in headers
        ]
        parts = chain([document] * bool(document), read(answer.body or ())) if self._method != "HEAD" else ()
        waiting: Message = {"type": "http.response.start", "status": answer.status, "headers": encoded}
        for part in parts:
            await send(waiting)
            waiting = {"type": "http.response.body", "body": part, "more_body": True}
        if operation := self.billed(answer.status):
            function = self._principal.function if self._principal is not None else ""
            log(operation, function, self._began_ns, time.monotonic_ns(), self._moved(answer))
        # The client has an answer without a body as soon as it has the headers.
        await send(waiting)
        await send({"type": "http.response.body"})

    def _moved(self, answer: Answer) -> int:
        """Return how many bytes of objects the request and its answer contained."""
        if self._operation is None or answer.status >= 300 or self._method == "HEAD":
            return 0
        stored = (self._incoming.length or 0) if self._operation.streams else 0
        return stored + sum(length for _, _, length in answer.body or ())

    async def _left_unread(self) -> bool:
        if self._incoming.untouched and self._headers.get("expect", "").lower() == "100-continue":
            return True
        await self._incoming.discard()
        return False

    def _read_names(self) -> None:
        path = self._path
        host = HOST.fullmatch(self._host.partition(":")[0])
        if host is not None:
            path = self._path = f"/{host['bucket']}{self._path}"
            self._host = self._host.removeprefix(f"{host['bucket']}.")
        try:
            self._bucket, _, self._key = unquote(path[1:], errors="strict").partition("/")
        except UnicodeDecodeError as error:
            raise failure("InvalidURI") from error

    async def _read_body(self, call: Call, headers: Mapping[str, str]) -> None:
        """Read a document in the body into the members. Leave the bytes of an object for the operation."""
        operation = call.operation
        if operation.streams:
            if "x-amz-trailer" in headers:
                call.members["trailer"] = headers["x-amz-trailer"]
            return
        if operation.payload is None:
            return
        # The checksum in CompleteMultipartUpload covers the object, not the request.
        sums = checksums.given(call.members) if operation.model.http_checksum else {}
        document = await self._incoming.document(call.members.get("ContentMD5"), sums)
        if operation.payload.type_name == "string":
            call.members[operation.payload_member] = document.decode("utf-8", "replace")
        elif len(document) > LARGE_DOCUMENT:
            call.members |= await asyncio.to_thread(model.body_members, operation, document)
        elif document:
            call.members |= model.body_members(operation, document)
        elif operation.name not in ("CreateBucket", "PutBucketAcl", "PutObjectAcl"):
            raise failure("MalformedXML")

    def _allow_origin(self) -> None:
        origin, bucket = self._headers.get("origin"), self._store.buckets.get(self._bucket)
        if origin is not None and bucket is not None and "cors" in bucket.settings:
            asked = self._headers.get("access-control-request-headers", "").split(",")
            method = self._headers.get("access-control-request-method", self._method)
            self._cross_origin = cors.headers(bucket.settings["cors"], origin, method, asked) or {}

    def _check_preflight(self) -> None:
        if "origin" not in self._headers:
            raise failure("BadRequest", "Insufficient information. Origin request header needed.")
        bucket = self._store.buckets.get(self._bucket)
        if bucket is None or "cors" not in bucket.settings:
            raise failure("AccessForbidden", "CORSResponse: CORS is not enabled for this bucket.")
        method = self._headers.get("access-control-request-method", "null")
        if method not in cors.METHODS:
            raise failure("BadRequest", f"Invalid Access-Control-Request-Method: {method[:100]}")
        if not self._cross_origin:
            raise failure("AccessForbidden")


def _length(headers: Mapping[str, str], payload: str) -> int | None:
    text = headers.get("x-amz-decoded-content-length" if payload == signing.CHUNKED else "content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


@cache
def _handler(operation: str) -> Handler | None:
    """Return the function of this operation, which may be named like boto3's method; None if it isn't emulated."""
    name = xform_name(operation)
    own = (vars(module)[name] for module in (buckets, objects, uploads) if name in vars(module))
    return next(own, buckets.HANDLERS.get(operation))


def _url_encoded(output: Mapping[str, Any]) -> dict[str, Any]:
    names = ("Key", "Prefix", "Delimiter", "Marker", "NextMarker", "StartAfter", "KeyMarker", "NextKeyMarker")
    found: dict[str, Any] = {}
    for name, value in output.items():
        if name in names and value is not None:
            found[name] = quote(value, safe="/-_.*~", errors="surrogatepass")
        elif isinstance(value, list):
            found[name] = [_url_encoded(entry) if isinstance(entry, dict) else entry for entry in value]
        else:
            found[name] = value
    return found
