"""Channels to servers that store bytes under a key and can't list keys."""

import json
import secrets
from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol

from slslab_workers.channels.objects import Absent, Object, ObjectChannel

# Metadata name of the replacement for S3's ETag.
ETAG = "etag"
# Redis or Memcached counts as unreachable if an answer takes longer, s.
ANSWER_S = 60.0


class KeyedChannel(ObjectChannel, Protocol):
    """Bytes under a key on one server, as one worker uses it.

    A subclass has `name`, `server` and three requests: `store`, `fetch` and `remove`. Metadata travel with the body as
    JSON; as on S3, they don't count as its bytes. All methods may raise Unreachable, or Refused if the server rejects
    the request.
    """

    @abstractmethod
    def store(self, key: str, metadata: bytes, body: memoryview) -> None:
        """Store a body and its metadata under a key, replacing any earlier one."""

    @abstractmethod
    def fetch(self, key: str) -> tuple[bytes, bytearray | memoryview] | None:
        """Return the metadata of a key and its body in a writable buffer; None if the key doesn't exist."""

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
