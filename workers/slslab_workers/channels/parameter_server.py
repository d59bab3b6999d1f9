"""The client of a parameter server (`slslab_workers.parameter_server`): push a vector, pull the sum of all workers."""

from urllib.parse import unquote, urlsplit

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.keyed import KeyedChannel
from slslab_workers.channels.resp import Refused
from slslab_workers.channels.serialisation import SERIALISATIONS, Vector
from slslab_workers.channels.stream import Bytes, Stream
from slslab_workers.trace.operations import SERVERS


class ParameterServer(KeyedChannel):
    """A parameter server, `parameter://:token@host:port`; connects at its first request.

    Vectors are float32 (P,), written as one of `SERIALISATIONS`. What is not a sum is put and got as in any channel of
    objects.
    """

    name = "parameter"
    server = SERVERS[name]

    def __init__(self, url: str, tracer: Tracer, serialisation: str = "raw") -> None:
        super().__init__(tracer)
        self._address = urlsplit(url)
        self._serialisation = serialisation
        self._stream: Stream | None = None

    def close(self) -> None:
        """End the connection; the next request makes a new one."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def push(self, key: str, rank: int, workers: int, vector: Vector, phase: str, *, leaving: bool) -> None:
        """Send a worker's vector for the sum under a key, of which there is one for each of so many workers."""
        with self.tracer.span("serialise", phase) as span:
            body = SERIALISATIONS[self._serialisation].write(vector)
            span.bytes = len(body)
        with self.request("parameter.push", phase, f"{key}/{rank}", overhead=False) as event:
            event.bytes = len(body)
            words = f"push {key} {rank} {workers} {int(leaving)} {self._serialisation} {len(body)}\r\n"
            self._answer(b"ok", self._ask(words.encode(), body))

    def pull(self, key: str, workers: int, phase: str) -> tuple[Vector, bool]:
        """Return the sum of all workers' vectors as soon as the last was pushed, and whether any of them leaves."""
        with self.request("parameter.pull", phase, key, overhead=False) as event:
            event.reads = tuple(f"{key}/{rank}" for rank in range(workers))
            answer = self._ask(f"pull {key} {self._serialisation}\r\n".encode())
            _, leaving, size = self._answer(b"sum ", answer).split(b" ")
            body = self._connected().body(int(size))
            event.bytes = len(body)
        with self.tracer.span("deserialise", phase) as span:
            span.bytes = len(body)
            return SERIALISATIONS[self._serialisation].read(body), leaving == b"1"

    def store(self, key: str, metadata: bytes, body: memoryview) -> None:
        words = f"put {key} {len(metadata)} {body.nbytes}\r\n".encode()
        self._answer(b"ok", self._ask(words, metadata, body))

    def fetch(self, key: str) -> tuple[bytes, memoryview] | None:
        answer = self._ask(f"get {key}\r\n".encode())
        if answer == b"none":
            return None
        _, metadata_bytes, size = self._answer(b"object ", answer).split(b" ")
        stream = self._connected()
        return bytes(stream.body(int(metadata_bytes))), stream.body(int(size))

    def remove(self, key: str) -> int:
        self._answer(b"ok", self._ask(f"delete {key}\r\n".encode()))
        return 0

    def _ask(self, *parts: Bytes) -> bytes:
        """Send a request, and return the first line of the answer, which a sum may keep waiting for other workers."""
        stream = self._connected()
        stream.send(parts)
        return stream.line()

    def _answer(self, begins: bytes, answer: bytes) -> bytes:
        """Return the answer if it begins so; if not, end the connection: what was to follow is not known."""
        if not answer.startswith(begins):
            self.close()
            raise Refused(f"The parameter server answered {answer[:200].decode(errors='replace')}")
        return answer

    def _connected(self) -> Stream:
        if self._stream is None:
            host, port = self._address.hostname, self._address.port
            assert host is not None
            assert port is not None
            self._stream = Stream("the parameter server", host, port)
            self._stream.wait_at_most(None)
            self._stream.send([f"token {unquote(self._address.password or '')}\r\n".encode()])
            self._answer(b"ok", self._stream.line())
        return self._stream
