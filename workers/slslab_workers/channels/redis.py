"""Redis as workers use it for objects: a hash for each, of its metadata and its body."""

from typing import Any
from urllib.parse import unquote, urlsplit

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.keyed import KeyedChannel
from slslab_workers.channels.resp import Connection, Refused
from slslab_workers.channels.stream import CONNECT_S
from slslab_workers.trace.operations import SERVERS

# A server that has not answered after this long counts as unreachable.
ANSWER_S = 60.0


class Redis(KeyedChannel):
    """One Redis server, `redis://[:password@]host:port`; connects at its first request."""

    name = "redis"
    server = SERVERS[name]

    def __init__(self, url: str, tracer: Tracer) -> None:
        super().__init__(tracer)
        self._address = urlsplit(url)
        self._connection: Connection | None = None

    def close(self) -> None:
        """End the connection; the next request makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def store(self, key: str, metadata: bytes, body: memoryview) -> None:
        self._ask("HSET", key, "metadata", metadata, "body", body)

    def fetch(self, key: str) -> tuple[bytes, memoryview] | None:
        metadata, body = self._ask("HMGET", key, "metadata", "body")
        return None if metadata is None else (bytes(metadata), body)

    def remove(self, key: str) -> int:
        self._ask("DEL", key)
        return 0

    def _ask(self, *words: str | bytes | memoryview) -> Any:
        if self._connection is None:
            host, port = self._address.hostname, self._address.port
            assert host is not None
            assert port is not None
            password = unquote(self._address.password or "")
            self._connection = Connection("Redis at", host, port, password, CONNECT_S)
        try:
            return self._connection.command(words, ANSWER_S)
        except Refused:
            raise
        except BaseException:
            # With half a command or half a reply on it, this connection is of no more use.
            self.close()
            raise
