"""Channels of servers that keep bytes under a key and cannot say which keys they have."""

import json
import secrets
from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol

from slslab_workers.channels.objects import Absent, Object, ObjectChannel, Unchanged

# The name in an object's metadata of what takes the place of S3's ETag.
ETAG = "etag"


class KeyedChannel(ObjectChannel, Protocol):
    """Bytes under a key, in one server, seen by one worker.

    A subclass has `name`, `server` and three requests. Metadata travel beside the body as JSON, and are not counted
    among its bytes, as on S3. All may raise Unreachable, or Refused for what the server does not take.
    """

    @abstractmethod
    def store(self, key: str, metadata: bytes, body: memoryview) -> None:
        """Store a body and its metadata under a key, in place of what is there."""

    @abstractmethod
    def fetch(self, key: str) -> tuple[bytes, bytearray | memoryview] | None:
        """Return the metadata and, in a writable buffer, the body under a key; None if there is none."""

    @abstractmethod
    def remove(self, key: str) -> int:
        """Remove a key, if it is there; return the bytes by which that is billed, 0 for a server without a price."""

    def put(
        self,
        key: str,
        data: bytes | bytearray | memoryview,
        phase: str,
        *,
        overhead: bool = True,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        with self.request(f"{self.name}.put", phase, key, overhead=overhead) as event:
            body, etag = memoryview(data).cast("B"), secrets.token_hex(8)
            event.bytes = body.nbytes
            self.store(key, json.dumps({**(metadata or {}), ETAG: etag}).encode(), body)
            event.etag = etag
            return etag

    def get(self, key: str, phase: str, *, overhead: bool = True, known_etag: str | None = None) -> Object:
        with self.request(f"{self.name}.get", phase, key, overhead=overhead) as event:
            found = self.fetch(key)
            if found is None:
                raise Absent(key)
            metadata = json.loads(found[0])
            event.bytes, event.etag = len(found[1]), metadata.pop(ETAG)
            if event.etag == known_etag:
                raise Unchanged(key)
            return Object(found[1], str(event.etag), metadata)

    def delete(self, key: str, phase: str, *, overhead: bool = True) -> None:
        with self.request(f"{self.name}.delete", phase, key, overhead=overhead) as event:
            event.bytes = self.remove(key)
