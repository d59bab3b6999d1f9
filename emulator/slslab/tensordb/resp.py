"""Read a connection's requests: RESP arrays of bulk strings.

Limits and error texts are from Redis 7.0's networking.c. A large bulk string is received directly into memory that then
becomes the value: it is never copied.
"""

import re
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

from slslab.tensordb.memory import allocate
from slslab.tensordb.replies import LARGE, Blob, CommandError

MAX_BULK = 512 * 1024 * 1024  # proto-max-bulk-len
MAX_ARGUMENTS = 1024 * 1024
MAX_LINE = 64 * 1024
MAX_REQUEST = 1024 * 1024 * 1024  # client-query-buffer-limit
# For a client that hasn't sent the password yet.
MAX_STRANGER_BULK = 16 * 1024
MAX_STRANGER_ARGUMENTS = 10
CHUNK = 64 * 1024
WORD = re.compile(rb"0|-?[1-9][0-9]*")


class ProtocolError(Exception):
    """The client sent something other than a request; the connection ends with this as its last reply."""


def integer(word: Blob) -> int:
    """Parse a 64-bit integer like Redis: only a minus sign, no blanks, no leading zeros, no -0.

    ValueError otherwise.
    """
    if len(word) <= 20 and WORD.fullmatch(word):
        number = int(bytes(word))
        if -(1 << 63) <= number < 1 << 63:
            return number
    raise ValueError("not an integer")


@dataclass(slots=True)
class Request:
    """One command: its name and arguments, or the error with which its large argument was refused."""

    arguments: list[Blob] = field(default_factory=list)
    refusal: CommandError | None = None
    reserved: int = 0  # bytes reserved in the store for an argument that is being received


class Reader:
    """Reads the requests of one connection.

    `flush` is called before waiting for the client, which may itself wait for replies. `admit` is called before memory
    is allocated for a large argument, with the request so far and the length. If it raises CommandError, the rest of
    the request is read and discarded.
    """

    def __init__(
        self,
        connection: socket.socket,
        flush: Callable[[], None],
        admit: Callable[[Request, int], None],
    ) -> None:
        self._socket = connection
        self._flush = flush
        self._admit = admit
        self._buffer = bytearray()
        self._at = 0
        self._ended = False
        self.trusted = False

    def request(self, request: Request) -> None:
        """Read the next request that isn't empty.

        Raises ProtocolError, and EOFError when the client has disconnected.
        """
        count = 0
        while count <= 0:
            self._need(1)
            # No inline commands: a web page can post lines of its choice to this port.
            if self._buffer[self._at] != ord("*"):
                _fail(f"expected '*', got '{chr(self._buffer[self._at])}'")
            count = self._count(self._line("too big mbulk count string"), MAX_ARGUMENTS, "invalid multibulk length")
        if count > MAX_STRANGER_ARGUMENTS and not self.trusted:
            _fail("unauthenticated multibulk length")
        total = 0
        for _ in range(count):
            length = self._bulk_length()
            total += length
            if total > MAX_REQUEST:
                _fail("too big request")
            self._argument(request, length)

    def spill(self) -> bool:
        """Buffer the available input, as clients may send before they read replies; False at the end of the input."""
        if len(self._buffer) > MAX_REQUEST:
            raise EOFError
        data = self._socket.recv(4 * CHUNK)
        self._ended = not data
        self._buffer += data
        return not self._ended

    def _argument(self, request: Request, length: int) -> None:
        if request.refusal is None and length >= LARGE:
            try:
                self._admit(request, length)
            except CommandError as error:
                request.refusal = error
                request.arguments = request.arguments[:1]
        if request.refusal is not None:
            self._drain(length)
        elif length < LARGE:
            self._need(length)
            request.arguments.append(bytes(memoryview(self._buffer)[self._at : self._at + length]))
            self._at += length
        else:
            request.arguments.append(self._large(length))
        self._need(2)
        self._at += 2

    def _bulk_length(self) -> int:
        line = self._line("too big bulk count string")
        if line[:1] != b"$":
            _fail(f"expected '$', got '{chr(line[0]) if line else ' '}'")
        length = self._count(line, MAX_BULK, "invalid bulk length")
        if length < 0:
            _fail("invalid bulk length")
        if length > MAX_STRANGER_BULK and not self.trusted:
            _fail("unauthenticated bulk length")
        return length

    @staticmethod
    def _count(line: bytes, most: int, complaint: str) -> int:
        with suppress(ValueError):
            if (count := integer(line[1:])) <= most:
                return count
        _fail(complaint)

    def _large(self, length: int) -> memoryview:
        target = allocate(length)
        self._flush()  # which may buffer more input
        have = min(length, len(self._buffer) - self._at)
        target[:have] = memoryview(self._buffer)[self._at : self._at + have]
        self._at += have
        while have < length:
            # The whole rest in one call, so that the interpreter's lock doesn't change hands for every packet.
            got = 0 if self._ended else self._socket.recv_into(target[have:], 0, socket.MSG_WAITALL)
            if not got:
                raise EOFError
            have += got
        return target

    def _drain(self, length: int) -> None:
        while length:
            if self._at == len(self._buffer):
                self._fill()
            passed = min(length, len(self._buffer) - self._at)
            self._at += passed
            length -= passed

    def _line(self, complaint: str) -> bytes:
        searched = 0
        while (end := self._buffer.find(b"\r\n", self._at + searched)) < 0:
            if len(self._buffer) - self._at > MAX_LINE:
                _fail(complaint)
            searched = max(0, len(self._buffer) - self._at - 1)
            self._fill()
        line = bytes(memoryview(self._buffer)[self._at : end])
        self._at = end + 2
        return line

    def _need(self, length: int) -> None:
        while len(self._buffer) - self._at < length:
            self._fill()

    def _fill(self) -> None:
        del self._buffer[: self._at]
        self._at = 0
        before = len(self._buffer)
        self._flush()
        if len(self._buffer) > before:
            return  # input arrived while replies were sent
        data = b"" if self._ended else self._socket.recv(CHUNK)
        if not data:
            raise EOFError
        self._buffer += data


def _fail(complaint: str) -> NoReturn:
    raise ProtocolError(f"ERR Protocol error: {complaint}")
