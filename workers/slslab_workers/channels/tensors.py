"""The client of RedisAI-compatible tensor databases, stock RedisAI and tensordb, over RESP2 on a socket.

Tensors are sent and received without a copy. Functions that only move tensors don't need torch, so this module doesn't
import it; `torch.from_numpy` makes a tensor of an array, also without a copy.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from slslab_workers.channels import scripts
from slslab_workers.channels.channel import Channel
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.resp import Connection, Reply
from slslab_workers.channels.stream import CONNECT_S, Refused, Unreachable
from slslab_workers.trace.operations import SERVERS

Vector = npt.NDArray[np.float32]
# A script over gigabytes takes seconds. A database that takes longer to answer counts as unreachable, s.
ANSWER_S = 300.0
# How many numbers are converted to text at a time.
PART = 1 << 16
# How many keys one request scans.
SCANNED = 1000


class NoTensor(KeyError):
    """No tensor has this key."""


class TensorDatabase(Channel):
    """One tensor database, as one worker uses it; connects at its first command.

    `url` is `redis://[:password@]host:port`. Every command may raise Refused or Unreachable.
    """

    name = "tensor"
    server = SERVERS[name]

    def __init__(self, url: str, tracer: Tracer, *, connect_s: float = CONNECT_S) -> None:
        parts = urlsplit(url)
        if parts.scheme != "redis" or parts.hostname is None or parts.port is None:
            raise ValueError(f"{url!r} is not a tensor database's address, redis://[:password@]host:port.")
        super().__init__(tracer)
        self._connection: Connection = Connection("the tensor database", url, connect_s)
        self.host, self.port, self.password = parts.hostname, parts.port, self._connection.password
        self._scripts_stored = False

    def set(self, key: str, vector: Vector, phase: str, *, overhead: bool = True) -> None:
        """Store a float32 vector (P,)."""
        body = np.ascontiguousarray(vector, np.float32).data.cast("B")
        with self.request("tensor.set", phase, self.resource(key), overhead=overhead) as span:
            span.bytes = body.nbytes
            self._ask("AI.TENSORSET", key, "FLOAT", vector.size, "BLOB", body)

    def get(self, key: str, phase: str, *, overhead: bool = True) -> Vector:
        """Return a float32 vector (P,) in its own memory; NoTensor if the key doesn't exist."""
        with self.request("tensor.get", phase, self.resource(key), overhead=overhead) as span:
            try:
                body = self._ask("AI.TENSORGET", key, "BLOB")
            except Refused as error:
                if "key is empty" not in str(error):
                    raise
                raise NoTensor(key) from None
            span.bytes = len(body)
            return np.frombuffer(body, np.float32)

    def delete(self, keys: Iterable[str], phase: str, *, overhead: bool = True) -> int:
        """Delete keys with one command, and return how many existed."""
        with self.request("tensor.delete", phase, self.resource(""), overhead=overhead):
            return int(self._ask("DEL", *keys))

    def delete_all(self, prefix: str) -> None:
        """Delete all keys that begin with a prefix."""
        cursor, beginning = "0", prefix.encode()
        while True:
            following, keys = self.command("SCAN", cursor, "COUNT", SCANNED)
            if names := [key.decode() for key in map(bytes, keys) if key.startswith(beginning)]:
                self.command("DEL", *names)
            if (cursor := bytes(following).decode()) == "0":
                return

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
        """Run a function of `scripts.SOURCE` in the database; outputs may replace inputs."""
        command: list[Any] = ["AI.SCRIPTEXECUTE", scripts.KEY, function, "INPUTS", len(inputs), *inputs]
        if arguments:
            command += ["ARGS", len(arguments), *map(repr, arguments)]
        command += ["OUTPUTS", len(outputs), *outputs]
        self._store_scripts()
        with self.request("tensor.script", phase, self.resource(outputs[0]), overhead=overhead) as span:
            span.reads = tuple(self.resource(key) for key in inputs)
            self._ask(*command)

    def push_json(self, key: str, vector: Vector, phase: str, *, overhead: bool = True) -> None:
        """Append a vector (P,) to a list as JSON text, as Barrak et al.'s released code stores gradients."""
        with self.request("tensor.set", phase, self.resource(key), overhead=overhead) as span:
            body = _as_json(vector)
            span.bytes = len(body)
            self._ask("RPUSH", key, memoryview(body))

    def average_json(self, key: str, count: int, phase: str, *, overhead: bool = True) -> Vector:
        """Return the mean (P,) of a list's first `count` vectors, computed in the database and sent as JSON."""
        with self.request("tensor.script", phase, self.resource(key), overhead=overhead) as span:
            span.reads = (self.resource(key),)
            body = self._ask("EVAL", scripts.LUA_AVERAGE, 1, key, count)
            span.bytes = len(body)
            return np.array(json.loads(bytes(body)), np.float32)

    def command(self, *words: str | int | float | bytes | memoryview) -> Reply:
        """Send any other Redis command and return its reply: a bulk as memoryview, an array as list, nil as None."""
        resource = self.resource(str(words[1]) if len(words) > 1 else "")
        with self.request("tensor.command", "other", resource, overhead=True):
            return self._ask(*words)

    def ping(self, answer_s: float = 1.0) -> bool:
        """Return whether the database answers within this time."""
        try:
            with self.request("ping", "wait", self.resource(""), overhead=True):
                return bool(self._ask("PING", answer_s=answer_s) == "PONG")
        except (Unreachable, Refused):
            return False

    def _ask(self, *words: str | int | float | bytes | memoryview, answer_s: float = ANSWER_S) -> Reply:
        return self._connection.command(words, answer_s)

    def resource(self, key: str) -> str:
        """Return the name of a key of this database in the trace."""
        return f"{self.host}:{self.port}/{key}"

    def _store_scripts(self) -> None:
        """Store the scripts, unless they exist; their key is a hash of their text."""
        if self._scripts_stored:
            return
        with self.request("tensor.script", "other", self.resource(scripts.KEY), overhead=True) as span:
            if not self._ask("EXISTS", scripts.KEY):
                entry_points = scripts.ENTRY_POINTS
                span.requests = 2
                self._ask(
                    *("AI.SCRIPTSTORE", scripts.KEY, "CPU", "ENTRY_POINTS", len(entry_points), *entry_points),
                    *("SOURCE", scripts.SOURCE),
                )
        self._scripts_stored = True


def _as_json(vector: Vector) -> bytearray:
    """Return a vector (P,) as `json.dumps` writes it, in parts: a list of all numbers takes eight times its memory."""
    body = bytearray(b"[")
    for begin in range(0, vector.size, PART):
        body += b", " if begin else b""
        body += json.dumps(vector[begin : begin + PART].tolist())[1:-1].encode()
    body += b"]"
    return body
