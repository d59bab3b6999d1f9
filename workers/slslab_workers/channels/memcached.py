"""Memcached as workers use it, by its text protocol: set, get, delete."""

from urllib.parse import unquote, urlsplit

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.keyed import KeyedChannel
from slslab_workers.channels.resp import Refused
from slslab_workers.channels.stream import Bytes, Stream
from slslab_workers.trace.operations import SERVERS

# A server that has not answered after this long counts as unreachable.
ANSWER_S = 60.0


class Memcached(KeyedChannel):
    """One Memcached server, `memcached://[user:password@]host:port`; connects at its first request.

    An item holds the metadata and then the body; its flags say how many bytes the metadata are.
    """

    name = "memcached"
    server = SERVERS[name]

    def __init__(self, url: str, tracer: Tracer) -> None:
        super().__init__(tracer)
        self._address = urlsplit(url)
        self._stream: Stream | None = None

    def close(self) -> None:
        """End the connection; the next request makes a new one."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def store(self, key: str, metadata: bytes, body: memoryview) -> None:
        head = f"set {key} {len(metadata)} 0 {len(metadata) + body.nbytes}\r\n".encode() + metadata
        answer = self._ask(head, body, b"\r\n")
        if answer != b"STORED":
            raise self._refused(answer)

    def fetch(self, key: str) -> tuple[bytes, memoryview] | None:
        answer = self._ask(f"get {key}\r\n".encode())
        if answer == b"END":
            return None
        if not answer.startswith(b"VALUE "):
            raise self._refused(answer)
        *_, flags, size = answer.split(b" ")
        stream, metadata_bytes = self._connected(), int(flags)
        metadata = bytes(stream.body(metadata_bytes))
        body = stream.body(int(size) - metadata_bytes)
        stream.line()
        stream.line()  # END
        return metadata, body

    def remove(self, key: str) -> int:
        answer = self._ask(f"delete {key}\r\n".encode())
        if answer not in (b"DELETED", b"NOT_FOUND"):
            raise self._refused(answer)
        return 0

    def _ask(self, *parts: Bytes) -> bytes:
        """Send a command, and return the first line of the answer."""
        stream = self._connected()
        stream.send(parts)
        return stream.line()

    def _connected(self) -> Stream:
        if self._stream is None:
            host, port = self._address.hostname, self._address.port
            assert host is not None
            assert port is not None
            self._stream = Stream("Memcached at", host, port)
            self._stream.wait_at_most(ANSWER_S)
            if self._address.username:
                # The first set of a connection is not stored: it logs in.
                login = f"{self._address.username} {unquote(self._address.password or '')}".encode()
                answer = self._ask(b"set login 0 0 %d\r\n" % len(login), login, b"\r\n")
                if answer != b"STORED":
                    raise self._refused(answer)
        return self._stream

    def _refused(self, answer: bytes) -> Refused:
        """Return the error of an answer; what was to follow it is not known, so that the connection ends."""
        self.close()
        return Refused(f"Memcached answered {answer[:200].decode(errors='replace')}")
