"""Redis as a store of objects: a hash of metadata and body for each."""

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.keyed import ANSWER_S, KeyedChannel
from slslab_workers.channels.resp import Connection
from slslab_workers.trace.operations import SERVERS


class Redis(KeyedChannel):
    """One Redis server, `redis://[:password@]host:port`; connects at its first request."""

    name = "redis"
    server = SERVERS[name]

    def __init__(self, url: str, tracer: Tracer) -> None:
        super().__init__(tracer)
        self._connection: Connection = Connection("Redis at", url)

    def store(self, key: str, metadata: bytes, body: memoryview) -> None:
        self._connection.command(("HSET", key, "metadata", metadata, "body", body), ANSWER_S)

    def fetch(self, key: str) -> tuple[bytes, memoryview] | None:
        metadata, body = self._connection.command(("HMGET", key, "metadata", "body"), ANSWER_S)
        return None if metadata is None else (bytes(metadata), body)

    def remove(self, key: str) -> None:
        self._connection.command(("DEL", key), ANSWER_S)
