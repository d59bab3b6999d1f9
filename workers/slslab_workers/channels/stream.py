"""A TCP connection to a server outside AWS. Bodies are sent and received without a copy."""

import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

CONNECT_S = 5.0
# Bodies up to this size, bytes, are sent together with their header and trailer.
TOGETHER_BYTES = 4096

Bytes = bytes | bytearray | memoryview


class Unreachable(Exception):
    """The server cannot be reached, or the connection to it broke."""


class Refused(Exception):
    """The server refused a request; the message quotes it."""


class Stream:
    """A connection to `title` at this address, such as "the tensor database". Every method may raise Unreachable.

    An answer that takes longer than `answer_s` seconds breaks the connection.
    """

    def __init__(self, title: str, host: str, port: int, connect_s: float = CONNECT_S) -> None:
        self.name = f"{title} {host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout=connect_s)
        except OSError as error:
            raise Unreachable(f"{_capital(self.name)} cannot be reached: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self._answers.close()
        self._socket.close()

    def wait_at_most(self, answer_s: float | None) -> None:
        """Limit the time of later answers, s; None removes the limit."""
        self._socket.settimeout(answer_s)

    def send(self, parts: Iterable[Bytes]) -> None:
        """Send these parts in order, large ones without a copy."""
        small = bytearray()
        try:
            for part in parts:
                if len(part) <= TOGETHER_BYTES:
                    small += part
                    continue
                if small:
                    self._socket.sendall(small)
                    small = bytearray()
                self._socket.sendall(part)
            if small:
                self._socket.sendall(small)
        except OSError as error:
            raise self._broken(error) from error

    def line(self) -> bytes:
        """Return the next line without its CR LF."""
        try:
            line = self._answers.readline()
        except OSError as error:
            raise self._broken(error) from error
        if not line.endswith(b"\r\n"):
            raise Unreachable(f"{_capital(self.name)} closed the connection")
        return line[:-2]

    def body(self, size: int) -> memoryview:
        """Return the next bytes in their own writable buffer; only bytes that arrived with a line are copied."""
        # A bytearray would be zeroed first.
        view: Any = np.empty(size, np.uint8).data
        try:
            received = self._answers.readinto(view)
        except OSError as error:
            raise self._broken(error) from error
        if received < size:
            raise Unreachable(f"{_capital(self.name)} closed the connection")
        return memoryview(view)

    def _broken(self, error: OSError) -> Unreachable:
        return Unreachable(f"The connection to {self.name} broke: {error}")


class Session:
    """A connection to the server at `scheme://[user:password@]host:port`, called `title` in messages. It connects when
    needed, again after `close`. An answer that takes longer than `answer_s` seconds breaks it."""

    def __init__(self, title: str, url: str, connect_s: float = CONNECT_S, answer_s: float | None = None) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 0
        self.user, self.password = parts.username or "", unquote(parts.password or "")
        self._title, self._connect_s, self._answer_s = title, connect_s, answer_s
        self._stream: Stream | None = None

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    @property
    def stream(self) -> Stream:
        """Return the connection. Without one, connect and log in."""
        if self._stream is None:
            self._stream = Stream(self._title, self.host, self.port, self._connect_s)
            try:
                self._stream.wait_at_most(self._answer_s)
                self.log_in()
            except BaseException:
                self.close()
                raise
        return self._stream

    def log_in(self) -> None:
        """Log in, in the server's protocol."""

    def ask(self, begins: tuple[bytes, ...], *parts: Bytes) -> bytes:
        """Send a request, and return the first line of the answer. If it has another prefix, raise Refused and close
        the connection, because the rest of the answer is unknown."""
        self.stream.send(parts)
        answer = self.stream.line()
        if not answer.startswith(begins):
            self.close()
            said = answer[:200].decode(errors="replace")
            raise Refused(f"{_capital(self._title.removesuffix(' at'))} answered {said}")
        return answer


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
