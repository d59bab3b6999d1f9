"""Requests as they come over a connection: RESP arrays of bulk strings, or inline commands.

Limits and error texts are those of Redis 6.2's networking.c. A large bulk string is received straight into memory of
its own, which then is the value's: it is copied nowhere.
"""

import re
import socket
from collections.abc import Callable
from typing import NoReturn

from slslab.tensordb.memory import allocate
from slslab.tensordb.replies import LARGE, Blob, CommandError

MAX_BULK = 512 * 1024 * 1024  # proto-max-bulk-len
MAX_ARGUMENTS = 1024 * 1024
MAX_LINE = 64 * 1024
MAX_REQUEST = 1024 * 1024 * 1024  # client-query-buffer-limit
# Of a client that has not given the password yet.
MAX_STRANGER_BULK = 16 * 1024
MAX_STRANGER_ARGUMENTS = 10
CHUNK = 64 * 1024
WORD = re.compile(rb"-?(?:0|[1-9][0-9]*)")
ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


class ProtocolError(Exception):
    """What was sent is no request; the connection ends with this as its last reply."""


def integer(word: Blob) -> int:
    """A 64-bit integer as Redis accepts it: no sign but minus, no blanks, no leading zeros. ValueError otherwise."""
    if len(word) <= 20 and WORD.fullmatch(word):
        number = int(bytes(word))
        if -(1 << 63) <= number < 1 << 63:
            return number
    raise ValueError("no integer")


class Request:
    """One command: its name and arguments, or the error for which its large argument was not kept."""

    __slots__ = ("arguments", "refusal", "reserved")

    def __init__(self) -> None:
        self.arguments: list[Blob] = []
        self.refusal: CommandError | None = None
        self.reserved = 0  # bytes set aside in the store for what is being received


class Reader:
    """Reads the requests of one connection.

    `flush` is called before anything waits for the client: it may be waiting for replies. `admit` is asked before
    memory is taken for a large argument, with the request so far, its count of arguments and the length; its
    CommandError refuses the request, which is then read to its end and thrown away.
    """

    def __init__(
        self,
        connection: socket.socket,
        flush: Callable[[], None],
        admit: Callable[[Request, int, int], None],
    ) -> None:
        self._socket = connection
        self._flush = flush
        self._admit = admit
        self._buffer = bytearray()
        self._at = 0
        self._ended = False
        self.trusted = False

    def request(self, request: Request) -> bool:
        """Fill in the next request; False if it is empty, as an empty line is.

        Raises ProtocolError, EOFError when the client has gone.
        """
        if self._at == len(self._buffer):
            self._fill()
        if self._buffer[self._at] != ord("*"):
            request.arguments = list(_inline(self._line("too big inline request", inline=True)))
            return bool(request.arguments)
        count = self._count(self._line("too big mbulk count string"), MAX_ARGUMENTS, "invalid multibulk length")
        if count > MAX_STRANGER_ARGUMENTS and not self.trusted:
            _fail("unauthenticated multibulk length")
        total = 0
        for _ in range(count):
            length = self._bulk_length()
            total += length
            if total > MAX_REQUEST:
                _fail("too big request")
            self._argument(request, count, length)
        return count > 0

    def spill(self) -> bool:
        """Take in what has come, so that a client that sends before it reads is not waited for; False at its end."""
        if len(self._buffer) > MAX_REQUEST:
            raise EOFError
        data = self._socket.recv(4 * CHUNK)
        self._ended = not data
        self._buffer += data
        return not self._ended

    def _argument(self, request: Request, count: int, length: int) -> None:
        if request.refusal is None and length >= LARGE:
            try:
                self._admit(request, count, length)
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
        try:
            count = integer(line[1:])
        except ValueError:
            _fail(complaint)
        if count > most:
            _fail(complaint)
        return count

    def _large(self, length: int) -> memoryview:
        target = allocate(length)
        self._flush()  # which may take something in
        have = min(length, len(self._buffer) - self._at)
        target[:have] = memoryview(self._buffer)[self._at : self._at + have]
        self._at += have
        while have < length:
            # The whole rest in one call, so that the interpreter's lock is not passed around for every packet.
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

    def _line(self, complaint: str, *, inline: bool = False) -> bytes:
        separator = b"\n" if inline else b"\r\n"
        searched = self._at
        while (end := self._buffer.find(separator, searched)) < 0:
            if len(self._buffer) - self._at > MAX_LINE:
                _fail(complaint)
            passed = max(0, len(self._buffer) - self._at - 1)
            self._fill()
            searched = self._at + passed
        line = bytes(memoryview(self._buffer)[self._at : end])
        self._at = end + len(separator)
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
            return  # it came while replies were sent
        data = b"" if self._ended else self._socket.recv(CHUNK)
        if not data:
            raise EOFError
        self._buffer += data


def _fail(complaint: str) -> NoReturn:
    raise ProtocolError(f"ERR Protocol error: {complaint}")


def _inline(line: bytes) -> list[bytes]:
    """The words of an inline command, quoted as redis-cli does."""
    words: list[bytes] = []
    at = 0
    line = line.rstrip(b"\r")
    while at < len(line):
        if line[at : at + 1].isspace():
            at += 1
            continue
        word, at = _word(line, at)
        words.append(word)
    return words


def _word(line: bytes, at: int) -> tuple[bytes, int]:
    word = bytearray()
    while at < len(line) and not line[at : at + 1].isspace():
        quote = line[at : at + 1]
        if quote not in (b'"', b"'"):
            word += quote
            at += 1
            continue
        at += 1
        while line[at : at + 1] != quote:
            if at >= len(line):
                _fail("unbalanced quotes in request")
            piece, at = _quoted(line, at, quote)
            word += piece
        at += 1
        if at < len(line) and not line[at : at + 1].isspace():
            _fail("unbalanced quotes in request")
    return bytes(word), at


def _quoted(line: bytes, at: int, quote: bytes) -> tuple[bytes, int]:
    """One character inside quotes, and where the next begins."""
    character, following = line[at : at + 1], line[at + 1 : at + 2]
    if character != b"\\" or not following or (quote == b"'" and following != b"'"):
        return character, at + 1
    if following == b"x" and re.fullmatch(rb"[0-9a-fA-F]{2}", line[at + 2 : at + 4]):
        return bytes([int(line[at + 2 : at + 4], 16)]), at + 4
    return ESCAPES.get(following, following), at + 2
