"""Workers' object store: S3 through boto3, with every request counted, timed and traced."""

import functools
import socket
from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import boto3
import botocore.config
import botocore.exceptions
import botocore.handlers

from slslab_workers.channels.channel import Channel, retried
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.polling import Poll
from slslab_workers.trace.operations import SERVERS

ABSENT = ("404", "NoSuchKey", "NotFound")
UNCHANGED = ("304", "NotModified")
BROKEN = (
    botocore.exceptions.HTTPClientError,
    botocore.exceptions.ConnectionError,
    botocore.exceptions.IncompleteReadError,
)
READ_BYTES = 1 << 18


def aws_client(service: str, **settings: Any) -> Any:
    """Return a boto3 client for the environment; `settings` are botocore's."""
    session: Any = boto3.session.Session()
    return session.client(service, config=botocore.config.Config(**settings))


def s3_client(**settings: Any) -> Any:
    """Return a boto3 S3 client for gradients: path-style addresses, no checksums, payload unsigned.

    Over TLS boto3 doesn't sign payloads anyway. Over plain HTTP, as on a loopback endpoint, it would hash every
    gradient, which workers on AWS don't do. urllib3 sets TCP_NODELAY. boto3's own retries are off, because they
    couldn't be counted: `Objects` retries.
    """
    client = aws_client(
        "s3",
        s3={"addressing_style": "path", "payload_signing_enabled": False},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"total_max_attempts": 1},
        tcp_keepalive=True,
        read_timeout=120,
        **settings,
    )
    # For bodies that are read, like ours, boto3 first asks whether the server wants them (`Expect: 100-continue`). That
    # costs every put a round trip more than workers on AWS need.
    client.meta.events.unregister("before-call.s3", botocore.handlers.add_expect_header)
    return client


@functools.cache
def environment_client() -> Any:
    """Return the environment's S3 client, cached: creating one takes a small function a second of its CPU share."""
    return s3_client()


@dataclass(frozen=True)
class Object:
    """A fetched object: its body in its own bytearray or memoryview, writable, its ETag, and its user metadata."""

    body: Any
    etag: str
    metadata: Mapping[str, str]


class Absent(KeyError):
    """The key doesn't exist."""


class Unchanged(Exception):
    """The object still has the ETag that the caller knows."""


class _Body:
    """Wrap a buffer as a file, which boto3 sends without a copy: `read` returns everything left, whatever the size.

    urllib3 asks for 16 KB at a time, with a system call each. `readinto` is for awscrt, which signs for boto3 if it is
    installed.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def read(self, _size: int = -1) -> memoryview:
        rest = self._data[self._position :]
        self._position = len(self._data)
        return rest

    def readinto(self, buffer: memoryview) -> int:
        piece = self._data[self._position : self._position + len(buffer)]
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = (0, self._position, len(self._data))[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position


class ObjectChannel(Channel, Protocol):
    """Objects, bytes under a key: everything that exchanges and the training loop need of S3.

    A subclass has `name`, `server` and three requests, which `put`, `get` and `delete` record as events.
    """

    @abstractmethod
    def write(self, key: str, metadata: Mapping[str, str], body: memoryview) -> str:
        """Store a body and its metadata under a key, replacing any earlier one, and return the ETag."""

    @abstractmethod
    def read(self, key: str, known_etag: str | None) -> Object:
        """Return the object under a key; raise Absent, or Unchanged if that avoids fetching the bytes."""

    @abstractmethod
    def remove(self, key: str) -> int | None:
        """Remove a key, if it exists; return the bytes that AWS bills for that, None if it doesn't bill by them."""

    def resource(self, key: str) -> str:
        """Return the name of a key in the trace."""
        return key

    @retried
    def put(
        self,
        key: str,
        data: bytes | bytearray | memoryview,
        phase: str,
        *,
        overhead: bool = True,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Store the bytes with their metadata, and return the ETag."""
        with self.request(f"{self.name}.put", phase, self.resource(key), overhead=overhead) as event:
            body = memoryview(data).cast("B")
            event.bytes = body.nbytes
            event.etag = self.write(key, metadata or {}, body)
            return event.etag

    @retried
    def get(self, key: str, phase: str, *, overhead: bool = True, known_etag: str | None = None) -> Object:
        """Fetch an object; raise Absent, or Unchanged if it still has `known_etag` (a conditional request)."""
        with self.request(f"{self.name}.get", phase, self.resource(key), overhead=overhead) as event:
            found = self.read(key, known_etag)
            event.bytes, event.etag = len(found.body), found.etag
            if found.etag == known_etag:
                raise Unchanged(key)
            return found

    @retried
    def delete(self, key: str, phase: str, *, overhead: bool = True) -> None:
        """Delete one object, if it exists."""
        with self.request(f"{self.name}.delete", phase, self.resource(key), overhead=overhead) as event:
            event.bytes = self.remove(key) or 0

    def find(self, prefix: str, keys: Collection[str], phase: str) -> Collection[str]:  # noqa: ARG002
        """Return the keys that may exist; all begin with the prefix. By default return all, because most stores can't
        list keys."""
        return keys

    def wait_for(self, key: str, poll: Poll, phase: str, *, overhead: bool = True) -> Object:
        """Poll until the object exists and return it. S3 has no way to wait; polls are counted."""
        delays = poll.delays()
        while True:
            try:
                return self.get(key, phase, overhead=overhead)
            except Absent:
                self.pause(next(delays))


class Objects(ObjectChannel):
    """One bucket of S3, as one worker uses it."""

    name = "object"
    server = SERVERS[name]

    def __init__(self, client: Any, bucket: str, tracer: Tracer) -> None:
        super().__init__(tracer)
        self._client = client
        self.bucket = bucket

    def local_address(self) -> str:
        """Return this machine's address on its route to the store, without sending a packet."""
        url = urlsplit(self._client.meta.endpoint_url)
        family, kind, protocol, _, address = socket.getaddrinfo(
            url.hostname, url.port or url.scheme, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as way:
            way.connect(address)
            return str(way.getsockname()[0])

    def resource(self, key: str) -> str:
        return f"{self.bucket}/{key}"

    def write(self, key: str, metadata: Mapping[str, str], body: memoryview) -> str:
        sent: Any = _Body(body) if body.nbytes else b""
        return str(self._client.put_object(Bucket=self.bucket, Key=key, Body=sent, Metadata=dict(metadata))["ETag"])

    def read(self, key: str, known_etag: str | None) -> Object:
        condition = {"IfNoneMatch": known_etag} if known_etag is not None else {}
        try:
            answer = self._client.get_object(Bucket=self.bucket, Key=key, **condition)
        except botocore.exceptions.ClientError as error:
            code = error.response["Error"]["Code"]
            if code not in ABSENT + UNCHANGED:
                raise
            raise (Absent(key) if code in ABSENT else Unchanged(key)) from None
        return Object(_read(answer["Body"], int(answer["ContentLength"])), str(answer["ETag"]), answer["Metadata"])

    def remove(self, key: str) -> None:
        self._client.delete_object(Bucket=self.bucket, Key=key)

    def list(self, prefix: str, phase: str) -> list[str]:
        """Return the keys that begin with the prefix, in lexicographic order; each page of 1,000 takes a request."""
        keys: list[str] = []
        token: dict[str, str] = {}
        while True:
            answer = self._page(prefix, phase, token)
            keys += [entry["Key"] for entry in answer.get("Contents", [])]
            if not answer.get("IsTruncated"):
                return keys
            token = {"ContinuationToken": answer["NextContinuationToken"]}

    def find(self, prefix: str, keys: Collection[str], phase: str) -> Collection[str]:
        return sorted(set(keys).intersection(self.list(prefix, phase)))

    @retried
    def _page(self, prefix: str, phase: str, token: Mapping[str, str]) -> Mapping[str, Any]:
        with self.request("object.list", phase, self.resource(prefix), overhead=True):
            answer: Mapping[str, Any] = self._client.list_objects_v2(Bucket=self.bucket, Prefix=prefix, **token)
            return answer

    def is_transient(self, error: Exception) -> bool:
        """Return whether the store was too busy or unreachable, or the connection broke."""
        if isinstance(error, botocore.exceptions.ClientError):
            return int(error.response["ResponseMetadata"]["HTTPStatusCode"]) >= 500
        return isinstance(error, BROKEN)


def connected(bucket: str, tracer: Tracer) -> Objects:
    """Return a bucket for this function, with the environment's client; making one is a `connect`."""
    with tracer.span("connect", "other"):
        client = environment_client()
    return Objects(client, bucket, tracer)


def _read(stream: Any, size: int) -> bytearray:
    """Return the whole body; botocore raises IncompleteReadError if the connection ends before `size` bytes."""
    body = bytearray(size)
    view, position = memoryview(body), 0
    while position < size:
        # urllib3 first reads into its own buffer: a small one stays in the cache, a whole gradient wouldn't.
        position += stream.readinto(view[position : position + READ_BYTES])
    # The connection only returns to the pool at the end of the body.
    stream.read()
    return body
