"""Memcached through its text protocol: set, get, delete."""

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.keyed import ANSWER_S, KeyedChannel
from slslab_workers.channels.stream import CONNECT_S, Session
from slslab_workers.trace.operations import SERVERS


class _Connection(Session):
    def log_in(self) -> None:
        if self.user:
            # The first set of a connection logs in and isn't stored.
            login = f"{self.user} {self.password}".encode()
            self.ask((b"STORED",), b"set login 0 0 %d\r\n" % len(login), login, b"\r\n")


class Memcached(KeyedChannel):
    """One Memcached server, `memcached://[user:password@]host:port`; connects at its first request.

    An item holds the metadata and then the body; its flags say how many bytes are metadata.
    """

    name = "memcached"
    server = SERVERS[name]

    def __init__(self, url: str, tracer: Tracer) -> None:
        super().__init__(tracer)
        self._connection: _Connection = _Connection("Memcached at", url, CONNECT_S, ANSWER_S)

    def store(self, key: str, metadata: bytes, body: memoryview) -> None:
        head = f"set {key} {len(metadata)} 0 {len(metadata) + body.nbytes}\r\n".encode() + metadata
        self._connection.ask((b"STORED",), head, body, b"\r\n")

    def fetch(self, key: str) -> tuple[bytes, memoryview] | None:
        answer = self._connection.ask((b"END", b"VALUE "), f"get {key}\r\n".encode())
        if answer == b"END":
            return None
        *_, flags, size = answer.split(b" ")
        stream, metadata_bytes = self._connection.stream, int(flags)
        metadata = bytes(stream.body(metadata_bytes))
        body = stream.body(int(size) - metadata_bytes)
        stream.line()
        stream.line()  # END
        return metadata, body

    def remove(self, key: str) -> None:
        self._connection.ask((b"DELETED", b"NOT_FOUND"), f"delete {key}\r\n".encode())
