"""Channels of servers that keep bytes under a key and cannot say which keys they have."""

import json
import secrets
from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol

from slslab_workers.channels.objects import Absent, Object, ObjectChannel

# The name in an object's metadata of what takes the place of S3's ETag.
ETAG = "etag"


class KeyedChannel(ObjectChannel, Protocol):
    """Bytes under a key, in one server, seen by one worker.

    A subclass has `name`, `server` and three requests: `store`, `fetch` and `remove`. Metadata travel with the body as
    JSON, and are not counted among its bytes, as on S3. All may raise Unreachable, or Refused for what the server does
    not take.
    """

    @abstractmethod
    def store(self, key: str, metadata: bytes, body: memoryview) -> None:
        """Store a body and its metadata under a key, in place of what is there."""

    @abstractmethod
    def fetch(self, key: str) -> tuple[bytes, bytearray | memoryview] | None:
        """Return the metadata and, in a writable buffer, the body under a key; None if there is none."""

    def write(self, key: str, metadata: Mapping[str, str], body: memoryview) -> str:
        etag = secrets.token_hex(8)
        self.store(key, json.dumps({**metadata, ETAG: etag}).encode(), body)
        return etag

    def read(self, key: str, known_etag: str | None) -> Object:  # noqa: ARG002 - it cannot be asked for a change
        found = self.fetch(key)
        if found is None:
            raise Absent(key)
        metadata = json.loads(found[0])
        return Object(found[1], str(metadata.pop(ETAG)), metadata)
