"""The client of RedisAI-compatible tensor databases: stock RedisAI and tensordb alike, over RESP2 on a socket.

Thin for the sake of gradients: tensors are sent from and received into their own memory, without a copy. It imports no
torch, for functions that only move tensors; `torch.from_numpy` makes tensors of its arrays, without a copy too.
"""

import json
import socket
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from slslab_workers import scripts
from slslab_workers.events import Tracer

Vector = npt.NDArray[np.float32]
CONNECT_S = 5.0
# A script over gigabytes takes seconds; a database that says nothing for this long is given up.
ANSWER_S = 300.0
HEADER_BYTES = 4096
# Numbers that are made text at a time.
PART = 1 << 16

Reply = Any


class TensorError(Exception):
    """The database refused a command, with its own words."""


class NoTensor(KeyError):
    """There is no tensor of this key."""


class Unreachable(Exception):
    """The database cannot be reached, or its connection broke: it may have died."""


class TensorDatabase:
    """One tensor database, seen by one worker; connects at its first command.

    `url` is `redis://[:password@]host:port`. `overhead=False` marks what belongs to the training protocol, and the
    phase says what a command was for, as with `Objects`. Raises TensorError, NoTensor or Unreachable.
    """

    def __init__(self, url: str, tracer: Tracer, *, connect_s: float = CONNECT_S) -> None:
        parts = urlsplit(url)
        if parts.scheme != "redis" or parts.hostname is None or parts.port is None:
            raise ValueError(f"{url!r} is no address of a tensor database: redis://[:password@]host:port is")
        self.host, self.port = parts.hostname, parts.port
        self.password = unquote(parts.password) if parts.password else ""
        self.tracer = tracer
        self._connect_s = connect_s
        self._connection: _Connection | None = None
        self._scripts_stored = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; the next command makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def set(self, key: str, vector: Vector, phase: str, *, overhead: bool = True) -> None:
        """Store a float32 vector (P,)."""
        body = np.ascontiguousarray(vector, np.float32).data.cast("B")
        with self.tracer.request("tensor.set", phase, self.resource(key), overhead=overhead) as span:
            span.bytes = body.nbytes
            self._ask("AI.TENSORSET", key, "FLOAT", vector.size, "BLOB", body)

    def get(self, key: str, phase: str, *, overhead: bool = True) -> Vector:
        """A float32 vector (P,) in memory of its own."""
        with self.tracer.request("tensor.get", phase, self.resource(key), overhead=overhead) as span:
            try:
                body = self._ask("AI.TENSORGET", key, "BLOB")
            except TensorError as error:
                if "key is empty" not in str(error):
                    raise
                raise NoTensor(key) from None
            span.bytes = len(body)
            return np.frombuffer(body, np.float32)

    def delete(self, keys: Iterable[str], phase: str, *, overhead: bool = True) -> int:
        """Delete keys with one command; returns how many there were."""
        with self.tracer.request("tensor.delete", phase, self.resource(""), overhead=overhead):
            return int(self._ask("DEL", *keys))

    def execute(
        self,
        function: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        phase: str,
        *,
        arguments: Sequence[float] = (),
        overhead: bool = True,
    ) -> None:
        """Run a function of `scripts.SOURCE` in the database; outputs may take the place of inputs."""
        command: list[Any] = ["AI.SCRIPTEXECUTE", scripts.KEY, function, "INPUTS", len(inputs), *inputs]
        if arguments:
            command += ["ARGS", len(arguments), *map(repr, arguments)]
        command += ["OUTPUTS", len(outputs), *outputs]
        self._store_scripts()
        with self.tracer.request("tensor.script", phase, self.resource(outputs[0]), overhead=overhead) as span:
            span.reads = tuple(self.resource(key) for key in inputs)
            self._ask(*command)

    def push_json(self, key: str, vector: Vector, phase: str, *, overhead: bool = True) -> None:
        """Append a vector (P,) to a list as JSON text, as SPIRT's released code stores gradients."""
        with self.tracer.request("tensor.set", phase, self.resource(key), overhead=overhead) as span:
            body = _as_json(vector)
            span.bytes = len(body)
            self._ask("RPUSH", key, memoryview(body))

    def average_json(self, key: str, count: int, phase: str, *, overhead: bool = True) -> Vector:
        """Mean (P,) of the first `count` vectors of a list of JSON texts, added up in the database and sent as JSON."""
        with self.tracer.request("tensor.script", phase, self.resource(key), overhead=overhead) as span:
            span.reads = (self.resource(key),)
            body = self._ask("EVAL", scripts.LUA_AVERAGE, 1, key, count)
            span.bytes = len(body)
            return np.array(json.loads(bytes(body)), np.float32)

    def command(self, *words: str | int | float | bytes | memoryview) -> Reply:
        """Any other Redis command, and its reply: bulks are memoryviews, arrays lists, nil None."""
        resource = self.resource(str(words[1]) if len(words) > 1 else "")
        with self.tracer.request("tensor.command", "other", resource, overhead=True):
            return self._ask(*words)

    def ping(self, answer_s: float = 1.0) -> bool:
        """Whether the database answers within this time, as an event of its own."""
        with self.tracer.span("ping", "wait", self.resource("")) as span:
            span.requests = 1
            try:
                return bool(self._ask("PING", answer_s=answer_s) == "PONG")
            except (Unreachable, TensorError):
                span.failed = True
                return False

    def _ask(self, *words: str | int | float | bytes | memoryview, answer_s: float = ANSWER_S) -> Reply:
        if self._connection is None:
            self._connection = _Connection(self.host, self.port, self.password, self._connect_s)
        try:
            return self._connection.command(words, answer_s)
        except TensorError:
            raise
        except BaseException:
            # Half a command or half a reply on it: nothing more can be said over this connection.
            self.close()
            raise

    def resource(self, key: str) -> str:
        """How the trace names a key of this database."""
        return f"{self.host}:{self.port}/{key}"

    def _store_scripts(self) -> None:
        """Store the scripts unless somebody has: the key is made of their text."""
        if self._scripts_stored:
            return
        with self.tracer.request("tensor.script", "other", self.resource(scripts.KEY), overhead=True) as span:
            if not self._ask("EXISTS", scripts.KEY):
                entry_points = scripts.ENTRY_POINTS
                span.requests = 2
                self._ask(
                    *("AI.SCRIPTSTORE", scripts.KEY, "CPU", "ENTRY_POINTS", len(entry_points), *entry_points),
                    *("SOURCE", scripts.SOURCE),
                )
        self._scripts_stored = True


def _as_json(vector: Vector) -> bytearray:
    """A vector (P,) as `json.dumps` writes its numbers, in parts: a list of all would take eight times its memory."""
    body = bytearray(b"[")
    for begin in range(0, vector.size, PART):
        body += b", " if begin else b""
        body += json.dumps(vector[begin : begin + PART].tolist())[1:-1].encode()
    body += b"]"
    return body


class _Connection:
    """A socket that speaks RESP2."""

    def __init__(self, host: str, port: int, password: str, connect_s: float) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout=connect_s)
        except OSError as error:
            raise Unreachable(f"The tensor database {host}:{port} cannot be reached: {error}") from error
        self._name = f"{host}:{port}"
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""
        if password:
            try:
                self.command(("AUTH", password), connect_s)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        self._socket.close()

    def command(self, words: Sequence[Any], answer_s: float) -> Reply:
        self._socket.settimeout(answer_s)
        try:
            self._send(words)
            return self._reply()
        except OSError as error:
            raise Unreachable(f"The connection to the tensor database {self._name} broke: {error}") from error

    def _send(self, words: Sequence[Any]) -> None:
        """All words; large ones go from their own memory."""
        small = bytearray(b"*%d\r\n" % len(words))
        for word in words:
            data = word if isinstance(word, bytes | memoryview) else str(word).encode()
            size = data.nbytes if isinstance(data, memoryview) else len(data)
            small += b"$%d\r\n" % size
            if size > HEADER_BYTES:
                self._socket.sendall(small)
                self._socket.sendall(data)
                small = bytearray()
            else:
                small += data
            small += b"\r\n"
        self._socket.sendall(small)

    def _reply(self) -> Reply:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            raise TensorError(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self._bulk(int(rest))
        if kind == b"*":
            return None if rest == b"-1" else self._array(int(rest))
        raise Unreachable(f"{self._name} answers {line[:40]!r}, which is not RESP2")

    def _array(self, count: int) -> list[Reply]:
        """Elements; an error among them is a value, so that the ones after it are still read."""
        found: list[Reply] = []
        for _ in range(count):
            try:
                found.append(self._reply())
            except TensorError as error:
                found.append(error)
        return found

    def _line(self) -> bytes:
        while b"\r\n" not in self._unread:
            data = self._socket.recv(HEADER_BYTES)
            if not data:
                raise Unreachable(f"The tensor database {self._name} closed the connection")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\r\n")
        return line

    def _bulk(self, size: int) -> memoryview:
        """A bulk received into a buffer of its own; at most a header's worth of it is copied."""
        # A bytearray would be filled with zeros first.
        view = np.empty(size, np.uint8).data
        position = min(size, len(self._unread))
        view[:position] = self._unread[:position]
        self._unread = self._unread[position:]
        while position < size:
            received = self._socket.recv_into(view[position:])
            if not received:
                raise Unreachable(f"The tensor database {self._name} closed the connection")
            position += received
        while len(self._unread) < 2:
            data = self._socket.recv(2 - len(self._unread))
            if not data:
                raise Unreachable(f"The tensor database {self._name} closed the connection")
            self._unread += data
        self._unread = self._unread[2:]
        return view
