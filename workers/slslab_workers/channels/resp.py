"""A client of RESP2, the protocol of Redis."""

from collections.abc import Sequence
from typing import Any

from slslab_workers.channels.stream import Bytes, Refused, Session, Unreachable

Reply = Any


class Connection(Session):
    """A connection to a Redis-compatible server; `command` may raise Refused or Unreachable."""

    def log_in(self) -> None:
        if self.password:
            self._command(("AUTH", self.password), self._connect_s)

    def command(self, words: Sequence[Any], answer_s: float) -> Reply:
        """Send a command's words and return the reply: a bulk as memoryview, an array as list, nil as None."""
        try:
            return self._command(words, answer_s)
        except Refused:
            raise
        except BaseException:
            # With half a command or half a reply in it, the connection can't be used any more.
            self.close()
            raise

    def _command(self, words: Sequence[Any], answer_s: float) -> Reply:
        self.stream.wait_at_most(answer_s)
        self.stream.send(_written(words))
        return self._reply()

    def _reply(self) -> Reply:
        line = self.stream.line()
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
                raise Unreachable(f"{self.stream.name} answers {line[:40]!r}, which is not RESP2")

    def _array(self, count: int) -> list[Reply]:
        """Return an array; an error in it becomes an element, so that the rest is still read."""
        elements: list[Reply] = []
        for _ in range(count):
            try:
                elements.append(self._reply())
            except Refused as error:
                elements.append(error)
        return elements

    def _bulk(self, size: int) -> memoryview:
        body = self.stream.body(size)
        self.stream.line()
        return body


def _written(words: Sequence[Any]) -> list[Bytes]:
    parts: list[Bytes] = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word.cast("B") if isinstance(word, memoryview) else word
        data = data if isinstance(data, bytes | memoryview) else str(data).encode()
        parts += (b"$%d\r\n" % len(data), data, b"\r\n")
    return parts
