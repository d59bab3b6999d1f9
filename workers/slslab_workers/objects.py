"""The object store as workers use it: boto3's S3, every request counted, timed and told to the trace."""

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import boto3
import botocore.config
import botocore.exceptions

from slslab_workers.events import Span, Tracer

P = ParamSpec("P")
T = TypeVar("T")

ABSENT = ("404", "NoSuchKey", "NotFound")
UNCHANGED = ("304", "NotModified")
BROKEN = (
    botocore.exceptions.HTTPClientError,
    botocore.exceptions.ConnectionError,
    botocore.exceptions.IncompleteReadError,
)
RETRY_DELAYS_S = (0.1, 0.4)
READ_BYTES = 1 << 18


def s3_client(**settings: Any) -> Any:
    """A boto3 S3 client for gradients: path-style addresses, no checksums beside the wire's own, payload unsigned.

    Over TLS boto3 leaves the payload unsigned of its own accord; a loopback endpoint speaks plain HTTP, where it would
    hash every gradient, which no worker on AWS does. urllib3 sets TCP_NODELAY on its connections. boto3's own retries
    are off, because requests that nobody sees cannot be counted: `Objects` retries.
    """
    config = botocore.config.Config(
        s3={"addressing_style": "path", "payload_signing_enabled": False},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"total_max_attempts": 1},
        tcp_keepalive=True,
        read_timeout=120,
        **settings,
    )
    session: Any = boto3.session.Session()
    return session.client("s3", config=config)


@functools.cache
def environment_client() -> Any:
    """One S3 client for the life of the environment: making it costs a second of a small function's CPU share."""
    return s3_client()


@dataclass(frozen=True)
class Poll:
    """How long to sleep between polls: from `first` seconds, growing by `factor`, to at most `limit` seconds."""

    first: float
    factor: float
    limit: float

    def delays(self) -> Iterator[float]:
        """The sleeps, without end."""
        delay = self.first
        while True:
            yield delay
            delay = min(delay * self.factor, self.limit)


@dataclass(frozen=True)
class Object:
    """A fetched object: its body in a buffer of its own, its ETag and its user metadata."""

    body: bytearray
    etag: str
    metadata: Mapping[str, str]


class Absent(KeyError):
    """There is no object of this key."""


class Unchanged(Exception):
    """The object still has the ETag that the caller knows."""


class _Body:
    """A buffer as a file, for boto3 to send without a copy: whatever size is asked for, all that is left is read."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def read(self, _size: int = -1) -> memoryview:
        rest = self._data[self._position :]
        self._position = len(self._data)
        return rest

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._position, len(self._data))[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position


def _retried(request: Callable[Concatenate["Objects", P], T]) -> Callable[Concatenate["Objects", P], T]:
    """Repeat a request for which the store was too busy or unreachable; each attempt is an event of its own."""

    @functools.wraps(request)
    def attempts(objects: "Objects", /, *args: P.args, **kwargs: P.kwargs) -> T:
        for delay_s in RETRY_DELAYS_S:
            try:
                return request(objects, *args, **kwargs)
            except BROKEN:
                objects.pause(delay_s)
            except botocore.exceptions.ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                    raise
                objects.pause(delay_s)
        return request(objects, *args, **kwargs)

    return attempts


class Objects:
    """One bucket of the object store, seen by one worker.

    `overhead=False` marks a request of the training protocol; everything else (lists, failed gets, minibatches, state)
    stands apart. Each event's phase says what the request was for.
    """

    def __init__(self, client: Any, bucket: str, tracer: Tracer, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._sleep = sleep
        self.bucket = bucket
        self.tracer = tracer

    @_retried
    def put(
        self,
        key: str,
        data: bytes | bytearray | memoryview,
        phase: str,
        *,
        overhead: bool = True,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Store the bytes; returns the ETag."""
        with self._request("object.put", key, phase, overhead) as span:
            view = memoryview(data)
            span.bytes = view.nbytes
            body: Any = _Body(view) if view.nbytes else b""
            answer = self._client.put_object(Bucket=self.bucket, Key=key, Body=body, Metadata=dict(metadata or {}))
            span.etag = str(answer["ETag"])
            return span.etag

    @_retried
    def get(self, key: str, phase: str, *, overhead: bool = True, known_etag: str | None = None) -> Object:
        """Fetch an object; raises Absent, or Unchanged if it still has `known_etag` (a conditional request)."""
        condition = {"IfNoneMatch": known_etag} if known_etag is not None else {}
        with self._request("object.get", key, phase, overhead) as span:
            try:
                answer = self._client.get_object(Bucket=self.bucket, Key=key, **condition)
            except botocore.exceptions.ClientError as error:
                code = error.response["Error"]["Code"]
                if code not in ABSENT + UNCHANGED:
                    raise
                raise (Absent(key) if code in ABSENT else Unchanged(key)) from None
            body = _read(answer["Body"], int(answer["ContentLength"]))
            span.bytes = len(body)
            span.etag = str(answer["ETag"])
            return Object(body, span.etag, answer["Metadata"])

    def wait_for(self, key: str, poll: Poll, phase: str, *, overhead: bool = True) -> Object:
        """Get the object as soon as it exists; S3 cannot be waited on, so it is polled, and every poll is counted."""
        delays = poll.delays()
        while True:
            try:
                return self.get(key, phase, overhead=overhead)
            except Absent:
                self.pause(next(delays))

    def pause(self, seconds: float) -> None:
        """Sleep between polls, as a `wait` event."""
        if seconds > 0:
            with self.tracer.span("wait", "wait"):
                self._sleep(seconds)

    def list(self, prefix: str, phase: str) -> list[str]:
        """Keys that begin with the prefix, in S3's (lexicographic) order; each page of 1,000 is a request."""
        keys: list[str] = []
        token: dict[str, str] = {}
        while True:
            answer = self._page(prefix, phase, token)
            keys += [entry["Key"] for entry in answer.get("Contents", [])]
            if not answer.get("IsTruncated"):
                return keys
            token = {"ContinuationToken": answer["NextContinuationToken"]}

    @_retried
    def delete(self, key: str, phase: str, *, overhead: bool = True) -> None:
        """Delete one object."""
        with self._request("object.delete", key, phase, overhead):
            self._client.delete_object(Bucket=self.bucket, Key=key)

    @_retried
    def _page(self, prefix: str, phase: str, token: Mapping[str, str]) -> Mapping[str, Any]:
        with self._request("object.list", prefix, phase, overhead=True):
            answer: Mapping[str, Any] = self._client.list_objects_v2(Bucket=self.bucket, Prefix=prefix, **token)
            return answer

    def _request(self, op: str, key: str, phase: str, overhead: bool) -> AbstractContextManager[Span]:
        return self.tracer.request(op, phase, f"{self.bucket}/{key}", overhead=overhead)


def _read(stream: Any, size: int) -> bytearray:
    """The whole body; botocore raises IncompleteReadError when the connection ends before `size` bytes."""
    body = bytearray(size)
    view, position = memoryview(body), 0
    while position < size:
        # urllib3 reads into a buffer of its own first: small ones stay in the cache, a whole gradient would not.
        position += stream.readinto(view[position : position + READ_BYTES])
    # The connection goes back to the pool only when the end of the body has been seen.
    stream.read()
    return body
