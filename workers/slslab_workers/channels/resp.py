"""RESP2, the protocol of Redis, as a client speaks it."""

from collections.abc import Sequence
from typing import Any

from slslab_workers.channels.stream import Bytes, Stream, Unreachable

Reply = Any


class Refused(Exception):
    """The server refused a command; the message is its own."""


class Connection:
    """A connection to a Redis-compatible server, `title` in messages; all may raise Refused or Unreachable."""

    def __init__(self, title: str, host: str, port: int, password: str, connect_s: float) -> None:
        self._stream = Stream(title, host, port, connect_s)
        if password:
            try:
                self.command(("AUTH", password), connect_s)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """End the connection."""
        self._stream.close()

    def command(self, words: Sequence[Any], answer_s: float) -> Reply:
        """Send a command's words and return the reply: a bulk as memoryview, an array as list, nil as None."""
        self._stream.wait_at_most(answer_s)
        self._stream.send(_written(words))
        return self._reply()

    def _reply(self) -> Reply:
        line = self._stream.line()
        kind, rest = line[:1], line[1:]
        match kind:
            case b"+":
                return rest.decode()
            case b"-":
                raise Refused(rest.decode(errors="replace"))
            case b":":
                return int(rest)
            case b"$":
                return None if rest == b"-1" else self._bulk(int(rest))
            case b"*":
                return None if rest == b"-1" else self._array(int(rest))
            case _:
                raise Unreachable(f"{self._stream.name} answers {line[:40]!r}, which is not RESP2")

    def _array(self, count: int) -> list[Reply]:
        """Return an array's elements; an error among them is an element, so that those after it are still read."""
        elements: list[Reply] = []
        for _ in range(count):
            try:
                elements.append(self._reply())
            except Refused as error:
                elements.append(error)
        return elements

    def _bulk(self, size: int) -> memoryview:
        body = self._stream.body(size)
        self._stream.line()
        return body


def _written(words: Sequence[Any]) -> list[Bytes]:
    """Return a command as RESP2 has it."""
    parts: list[Bytes] = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word.cast("B") if isinstance(word, memoryview) else word
        data = data if isinstance(data, bytes | memoryview) else str(data).encode()
        parts += (b"$%d\r\n" % len(data), data, b"\r\n")
    return parts
