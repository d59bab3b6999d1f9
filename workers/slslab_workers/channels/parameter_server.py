"""The client of a parameter server (`slslab_workers.parameter_server`): push a vector, pull the sum of all workers."""

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.keyed import KeyedChannel
from slslab_workers.channels.serialisation import SERIALISATIONS, Vector
from slslab_workers.channels.stream import Session
from slslab_workers.trace.operations import SERVERS


class _Connection(Session):
    def log_in(self) -> None:
        self.ask((b"ok",), f"token {self.password}\r\n".encode())


class ParameterServer(KeyedChannel):
    """A parameter server, `parameter://:token@host:port`; connects at its first request.

    Vectors are float32 (P,), written as one of `SERIALISATIONS`. Everything except sums is put and got as in any
    channel of objects.
    """

    name = "parameter"
    server = SERVERS[name]

    def __init__(self, url: str, tracer: Tracer, serialisation: str = "raw") -> None:
        super().__init__(tracer)
        # The answer to a sum waits for other workers.
        self._connection: _Connection = _Connection("the parameter server", url)
        self._serialisation = serialisation

    def push(self, key: str, rank: int, workers: int, vector: Vector, phase: str, *, leaving: bool) -> None:
        """Send a worker's vector for the sum under a key, to which each of `workers` sends one."""
        with self.tracer.span("serialise", phase) as span:
            body = SERIALISATIONS[self._serialisation].write(vector)
            span.bytes = len(body)
        with self.request("parameter.push", phase, f"{key}/{rank}", overhead=False) as event:
            event.bytes = len(body)
            words = f"push {key} {rank} {workers} {int(leaving)} {self._serialisation} {len(body)}\r\n"
            self._connection.ask((b"ok",), words.encode(), body)

    def pull(self, key: str, workers: int, phase: str) -> tuple[Vector, bool]:
        """Return the sum of all workers' vectors once the last has arrived, and whether any of them leaves."""
        with self.request("parameter.pull", phase, key, overhead=False) as event:
            event.reads = tuple(f"{key}/{rank}" for rank in range(workers))
            answer = self._connection.ask((b"sum ",), f"pull {key} {self._serialisation}\r\n".encode())
            _, leaving, size = answer.split(b" ")
            body = self._connection.stream.body(int(size))
            event.bytes = len(body)
        with self.tracer.span("deserialise", phase, bytes=len(body)):
            return SERIALISATIONS[self._serialisation].read(body), leaving == b"1"

    def store(self, key: str, metadata: bytes, body: memoryview) -> None:
        self._connection.ask((b"ok",), f"put {key} {len(metadata)} {body.nbytes}\r\n".encode(), metadata, body)

    def fetch(self, key: str) -> tuple[bytes, memoryview] | None:
        answer = self._connection.ask((b"none", b"object "), f"get {key}\r\n".encode())
        if answer == b"none":
            return None
        _, metadata_bytes, size = answer.split(b" ")
        stream = self._connection.stream
        return bytes(stream.body(int(metadata_bytes))), stream.body(int(size))

    def remove(self, key: str) -> None:
        self._connection.ask((b"ok",), f"delete {key}\r\n".encode())
