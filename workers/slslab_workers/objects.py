"""The object store as workers use it: boto3's S3, every request counted, timed and told to the trace."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import boto3
import botocore.config
import botocore.exceptions

from slslab_workers.events import Tracer

ABSENT = ("404", "NoSuchKey", "NotFound")
UNCHANGED = ("304", "NotModified")


def s3_client(**settings: Any) -> Any:
    """A boto3 S3 client for gradients: path-style addresses, no checksums beside the wire's own, payload unsigned.

    Over TLS boto3 leaves the payload unsigned of its own accord; a loopback endpoint speaks plain HTTP, where it would
    hash every gradient, which no worker on AWS does. urllib3 sets TCP_NODELAY on its connections.
    """
    config = botocore.config.Config(
        s3={"addressing_style": "path", "payload_signing_enabled": False},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"mode": "standard", "total_max_attempts": 3},
        tcp_keepalive=True,
        read_timeout=120,
        **settings,
    )
    session: Any = boto3.session.Session()
    return session.client("s3", config=config)


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
        with self.tracer.span("object.put", phase, f"{self.bucket}/{key}", overhead=overhead) as span:
            view = memoryview(data)
            span.bytes = view.nbytes
            body: Any = _Body(view) if view.nbytes else b""
            answer = self._client.put_object(Bucket=self.bucket, Key=key, Body=body, Metadata=dict(metadata or {}))
            span.requests = _requests(answer)
            span.etag = str(answer["ETag"])
            return span.etag

    def get(self, key: str, phase: str, *, overhead: bool = True, known_etag: str | None = None) -> Object:
        """Fetch an object; raises Absent, or Unchanged if it still has `known_etag` (a conditional request)."""
        condition = {"IfNoneMatch": known_etag} if known_etag is not None else {}
        with self.tracer.span("object.get", phase, f"{self.bucket}/{key}", overhead=overhead) as span:
            span.requests = 1
            try:
                answer = self._client.get_object(Bucket=self.bucket, Key=key, **condition)
            except botocore.exceptions.ClientError as error:
                code = error.response["Error"]["Code"]
                if code not in ABSENT + UNCHANGED:
                    raise
                span.failed = span.overhead = True
                raise (Absent(key) if code in ABSENT else Unchanged(key)) from None
            body = _read(answer["Body"], int(answer["ContentLength"]))
            span.requests = _requests(answer)
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
            with self.tracer.span("object.list", phase, f"{self.bucket}/{prefix}") as span:
                answer = self._client.list_objects_v2(Bucket=self.bucket, Prefix=prefix, **token)
                span.requests = _requests(answer)
            keys += [entry["Key"] for entry in answer.get("Contents", [])]
            if not answer.get("IsTruncated"):
                return keys
            token = {"ContinuationToken": answer["NextContinuationToken"]}

    def delete(self, key: str, phase: str, *, overhead: bool = True) -> None:
        """Delete one object."""
        with self.tracer.span("object.delete", phase, f"{self.bucket}/{key}", overhead=overhead) as span:
            span.requests = _requests(self._client.delete_object(Bucket=self.bucket, Key=key))


def _requests(answer: Mapping[str, Any]) -> int:
    return 1 + int(answer["ResponseMetadata"].get("RetryAttempts", 0))


def _read(stream: Any, size: int) -> bytearray:
    body = bytearray(size)
    view, position = memoryview(body), 0
    while position < size:
        count = stream.readinto(view[position:])
        if not count:
            raise OSError(f"the object store closed the connection after {position} of {size} bytes")
        position += count
    # The connection goes back to the pool only when the end of the body has been seen.
    stream.read()
    return body
