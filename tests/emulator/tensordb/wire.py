"""A client of few lines, which shows what is on the wire: RESP2 and RESP3, any bytes sent."""

import socket
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

LIMIT_S = 60.0
AVERAGE = """
def average(tensors: List[Tensor], keys: List[str], args: List[str]):
    acc = tensors[0].clone()
    for i in range(1, len(tensors)):
        acc.add_(tensors[i])
    return acc.div_(float(len(tensors)))

def sgd(tensors: List[Tensor], keys: List[str], args: List[str]):
    return torch.sub(tensors[0], tensors[1], alpha=float(args[0]))
"""


class WireError(Exception):
    """An error reply."""


def encode(*parts: Any) -> bytes:
    """A request as an array of bulk strings."""
    words = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class Wire:
    """A connection. Calling it sends a command and returns its reply, or raises it as WireError."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.address = (parts.hostname or "127.0.0.1", parts.port or 6379)
        self.socket = socket.create_connection(self.address, LIMIT_S)
        self._file = self.socket.makefile("rb")
        if parts.password:
            self("AUTH", unquote(parts.password))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, *parts: Any) -> Any:
        self.send(encode(*parts))
        reply = self.read()
        if isinstance(reply, WireError):
            raise reply
        return reply

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Any bytes."""
        self.socket.sendall(data)

    def exactly(self, length: int) -> bytes:
        """That many bytes, fewer if the server hangs up."""
        return self._file.read(length)

    def rest(self) -> bytes:
        """All until the server hangs up."""
        return self._file.read()

    def read(self) -> Any:
        """One reply: str for a simple string, bytes for a bulk string, WireError for an error."""
        line = self._file.readline()
        if not line:
            raise EOFError
        kind, text = line[:1], line[1:-2]
        match kind:
            case b"+":
                return text.decode()
            case b"-":
                return WireError(text.decode(errors="surrogateescape"))
            case b":":
                return int(text)
            case b",":
                return float(text)
            case b"_":
                return None
            case b"$":
                return None if text == b"-1" else self.exactly(int(text) + 2)[:-2]
            case b"=":
                return self.exactly(int(text) + 2)[4:-2]
            case b"*":
                return None if text == b"-1" else [self.read() for _ in range(int(text))]
            case b"~":
                members = [self.read() for _ in range(int(text))]
                return members if any(isinstance(member, dict | list) for member in members) else frozenset(members)
            case b"%":
                return {self.read(): self.read() for _ in range(int(text))}
        raise AssertionError(line)


def error(wire: Wire, *parts: Any) -> str:
    """The text of the error that a command must answer."""
    wire.send(encode(*parts))
    reply = wire.read()
    assert isinstance(reply, WireError), reply
    return str(reply)


def info(wire: Wire, field: str) -> int:
    """A number out of INFO."""
    lines = wire("INFO").decode().splitlines()
    return int(dict(line.split(":", 1) for line in lines if ":" in line)[field])
