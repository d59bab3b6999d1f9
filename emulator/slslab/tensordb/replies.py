"""Encode replies of commands in RESP2 and RESP3.

Source: redis.io/docs/latest/develop/reference/protocol-spec, and the replies of Redis 7.0 and of RedisAI 1.2.7.

Python's own types stand for RESP's: int, float (double), bytes and str (bulk string), memoryview (a bulk string that is
sent without a copy), None (null), list (array), dict (map; a flat array in RESP2), frozenset (set).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

# Longer strings are sent without a copy; for shorter ones, copying into one buffer is cheaper.
LARGE = 32 * 1024


@dataclass(frozen=True)
class Simple:
    """A simple string, such as `+OK`."""

    text: str


class NullArray:
    """`*-1` in RESP2: the reply of a blocking pop that timed out, or of a transaction without a result."""


class CommandError(Exception):
    """An error reply: its first word is the code that clients read (ERR, WRONGTYPE, OOM, …)."""


Blob: TypeAlias = bytes | memoryview
Reply: TypeAlias = (
    "Simple | NullArray | CommandError | int | float | str | Blob | Sequence[Reply] | Mapping[bytes, Reply]"
    " | frozenset[Any] | None"
)

OK = Simple("OK")
QUEUED = Simple("QUEUED")
NULL_ARRAY = NullArray()
LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")
WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


def shown(word: Blob, most: int = 128) -> str:
    """Return an argument as an error shows it: cut off after `most` bytes or at a zero byte, otherwise unchanged."""
    return bytes(word[:most]).partition(b"\0")[0].decode(errors="surrogateescape")


class Encoder:
    """Collects replies as buffers to be sent in order; `protocol` is 2 or 3, as set by HELLO."""

    def __init__(self) -> None:
        self.protocol = 2
        self.parts: list[Blob] = []
        self._small = bytearray()

    def take(self) -> list[Blob]:
        """Return the buffers to be sent, and forget them."""
        self._close()
        parts, self.parts = self.parts, []
        return parts

    def add(self, reply: Reply) -> None:
        """Append one reply."""
        small = self._small
        if isinstance(reply, Simple):
            small += b"+%s\r\n" % reply.text.encode()
        elif isinstance(reply, (bytes, memoryview)):
            self._bulk(reply)
        elif isinstance(reply, int):
            small += b":%d\r\n" % reply
        elif reply is None:
            small += b"$-1\r\n" if self.protocol == 2 else b"_\r\n"
        elif isinstance(reply, str):
            self._bulk(reply.encode())
        elif isinstance(reply, float):
            self._double(reply)
        elif isinstance(reply, CommandError):
            # A line break would end the reply.
            small += b"-%s\r\n" % str(reply).strip("\r\n").encode(errors="surrogateescape").translate(LINE_BREAKS)
        elif isinstance(reply, NullArray):
            small += b"*-1\r\n" if self.protocol == 2 else b"_\r\n"
        else:
            self._aggregate(reply)

    def _aggregate(self, reply: "Sequence[Reply] | Mapping[bytes, Reply] | frozenset[Any]") -> None:
        if isinstance(reply, Mapping):
            self._small += b"%%%d\r\n" % len(reply) if self.protocol == 3 else b"*%d\r\n" % (2 * len(reply))
            for key, value in reply.items():
                self.add(key)
                self.add(value)
            return
        kind = b"~" if self.protocol == 3 and isinstance(reply, frozenset) else b"*"
        self._small += b"%s%d\r\n" % (kind, len(reply))
        for element in reply:
            self.add(element)

    def _bulk(self, body: Blob) -> None:
        self._small += b"$%d\r\n" % len(body)
        if len(body) < LARGE:
            self._small += body
        else:
            self._close()
            self.parts.append(body)
        self._small += b"\r\n"

    def _double(self, number: float) -> None:
        # As Redis 7.0 writes a double, with its own names for infinity and NaN.
        text = b"%.17g" % number if math.isfinite(number) else str(number).encode()
        self._small += b",%s\r\n" % text if self.protocol == 3 else b"$%d\r\n%s\r\n" % (len(text), text)

    def _close(self) -> None:
        if self._small:
            self.parts.append(bytes(self._small))
            self._small.clear()
