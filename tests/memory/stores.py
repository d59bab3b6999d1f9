"""S3, DynamoDB, and servers of Memcached and Redis, in memory: what boto3's client or a channel asks of them.

A request takes effect in its middle: it is under way before and after, so that requests of several workers overlap.
"""

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import botocore.exceptions

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.keyed import KeyedChannel
from slslab_workers.trace.operations import SERVERS

# Waits for half of a request.
Wait = Callable[[], None]


class Stored(NamedTuple):
    """An object of S3."""

    body: bytes
    etag: str
    metadata: Mapping[str, str]


class NoSuchBucket(botocore.exceptions.ClientError):
    """The bucket is not there, or not any more."""


class S3:
    """boto3's client of S3, as far as this project uses it; `buckets` are the existing ones."""

    exceptions = SimpleNamespace(NoSuchBucket=NoSuchBucket)
    # boto3's own: the project's client changes one of its settings.
    meta = SimpleNamespace(events=SimpleNamespace(unregister=lambda *_: None))

    def __init__(self, wait: Wait) -> None:
        self._wait = wait
        self.buckets: dict[str, dict[str, Stored]] = {}

    def create_bucket(self, *, Bucket: str) -> None:
        self.buckets[Bucket] = {}

    def delete_bucket(self, *, Bucket: str) -> None:
        self._wait()
        if self._objects(Bucket):
            raise _error("BucketNotEmpty", 409, "DeleteBucket")
        del self.buckets[Bucket]
        self._wait()

    def put_object(self, *, Bucket: str, Key: str, Body: Any, Metadata: Mapping[str, str]) -> dict[str, Any]:
        body = bytes(Body if isinstance(Body, bytes) else Body.read())
        self._wait()
        etag = self.store(Bucket, Key, body, Metadata)
        self._wait()
        return {"ETag": etag}

    def store(self, bucket: str, key: str, body: bytes, metadata: Mapping[str, str] | None = None) -> str:
        """Store an object at once, as the emulator does for the records of failed events; return its ETag."""
        etag = f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
        self._objects(bucket)[key] = Stored(body, etag, dict(metadata or {}))
        return etag

    def get_object(self, *, Bucket: str, Key: str, IfNoneMatch: str | None = None) -> dict[str, Any]:
        self._wait()
        found = self._objects(Bucket).get(Key)
        self._wait()
        if found is None:
            raise _error("NoSuchKey", 404, "GetObject")
        if found.etag == IfNoneMatch:
            raise _error("304", 304, "GetObject")
        answer = {"ETag": found.etag, "ContentLength": len(found.body), "Metadata": found.metadata}
        return {**answer, "Body": io.BytesIO(found.body)}

    def delete_object(self, *, Bucket: str, Key: str) -> None:
        self._wait()
        self._objects(Bucket).pop(Key, None)
        self._wait()

    def list_objects_v2(self, *, Bucket: str, Prefix: str = "") -> dict[str, Any]:
        self._wait()
        keys = sorted(key for key in self._objects(Bucket) if key.startswith(Prefix))
        self._wait()
        assert len(keys) <= 1000, "a page has no more"
        return {"Contents": [{"Key": key} for key in keys], "IsTruncated": False}

    def get_paginator(self, operation: str) -> Any:
        assert operation == "list_objects_v2"
        return SimpleNamespace(paginate=self._pages)

    def delete_objects(self, *, Bucket: str, Delete: Mapping[str, Any]) -> None:
        self._wait()
        for entry in Delete["Objects"]:
            self._objects(Bucket).pop(entry["Key"], None)
        self._wait()

    def _pages(self, *, Bucket: str) -> Iterator[dict[str, Any]]:
        yield self.list_objects_v2(Bucket=Bucket)

    def _objects(self, bucket: str) -> dict[str, Stored]:
        if bucket not in self.buckets:
            raise _error("NoSuchBucket", 404, "S3", NoSuchBucket)
        return self.buckets[bucket]


def _error(
    code: str, status: int, operation: str, kind: type[botocore.exceptions.ClientError] | None = None
) -> botocore.exceptions.ClientError:
    answer: Any = {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return (kind or botocore.exceptions.ClientError)(answer, operation)


class Tables:
    """boto3's client of DynamoDB, as far as this project uses it; `tables` have items by their keys."""

    exceptions = SimpleNamespace(ResourceNotFoundException=type("ResourceNotFoundException", (Exception,), {}))

    def __init__(self, wait: Wait) -> None:
        self._wait = wait
        self.tables: dict[str, dict[str, Any]] = {}

    def create_table(self, *, TableName: str, **_: Any) -> None:
        self.tables[TableName] = {}

    def get_waiter(self, _name: str) -> Any:
        return SimpleNamespace(wait=lambda **_: None)

    def delete_table(self, *, TableName: str) -> None:
        del self.tables[TableName]

    def put_item(self, *, TableName: str, Item: Mapping[str, Any]) -> None:
        self._wait()
        self.tables[TableName][Item["key"]["S"]] = Item
        self._wait()

    def get_item(self, *, TableName: str, Key: Mapping[str, Any], ConsistentRead: bool) -> dict[str, Any]:
        assert ConsistentRead
        self._wait()
        item = self.tables[TableName].get(Key["key"]["S"])
        self._wait()
        return {} if item is None else {"Item": item}

    def delete_item(self, *, TableName: str, Key: Mapping[str, Any]) -> None:
        self._wait()
        self.tables[TableName].pop(Key["key"]["S"], None)
        self._wait()


class _Keyed(KeyedChannel):
    """A server that keeps bytes under a key; `values` are what all workers share."""

    def __init__(self, values: dict[str, tuple[bytes, bytes]], tracer: Tracer, wait: Wait) -> None:
        super().__init__(tracer)
        self._values = values
        self._wait = wait

    def store(self, key: str, metadata: bytes, body: memoryview) -> None:
        self._wait()
        self._values[key] = metadata, bytes(body)
        self._wait()

    def fetch(self, key: str) -> tuple[bytes, bytearray] | None:
        self._wait()
        found = self._values.get(key)
        self._wait()
        return None if found is None else (found[0], bytearray(found[1]))

    def remove(self, key: str) -> int:
        self._wait()
        self._values.pop(key, None)
        self._wait()
        return 0


class Memcached(_Keyed):
    """Memcached."""

    name = "memcached"
    server = SERVERS[name]


class Redis(_Keyed):
    """Redis."""

    name = "redis"
    server = SERVERS[name]


KEYED = {"memcached": Memcached, "redis": Redis}
