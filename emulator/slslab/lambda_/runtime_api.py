"""Serve the Lambda Runtime API, one address per execution environment; `awslambdaric` is its client.

Other processes of this host, and pages in its browsers, can reach that address, too, so the owner of each connection is
checked. (A secret in the address isn't possible: awslambdaric reports initialisation errors to a host and port only.)
https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
"""

import asyncio
import contextlib
import errno
import json
import socket
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple

import httptools

from slslab.host.connections import LOOPBACK, Address

PREFIX = b"/2018-06-01/runtime/"
NEXT_PATH = PREFIX + b"invocation/next"
READ_BYTES = 256 * 1024
HEAD_BYTES, PIPELINED = 1024 * 1024, 16
# The most connections, since an environment has no more descriptors (Lambda quotas); how many to accept at a time; and
# when to accept again after this process has run out of descriptors, s.
MOST_CONNECTIONS, ACCEPTED_AT_ONCE, ACCEPT_AGAIN_S = 1024, 64, 1.0
LONGEST_TYPE = 256
HEADERS = frozenset({b"expect", b"lambda-runtime-function-error-type"})
LENGTHS = frozenset(map(len, HEADERS))
# asm-generic/socket.h: the kernel reports when it received the data, as a `struct timespec` of CLOCK_REALTIME.
SO_TIMESTAMPNS, TIMESPEC = 35, struct.Struct("@ll")
ANCILLARY_BYTES = socket.CMSG_SPACE(TIMESPEC.size)
HEAD = "HTTP/1.1 {} {}\r\ncontent-type: application/json\r\n"
# The head, without the length of the body, and the body.
Answer = tuple[str, bytes]
NEXT = HEAD.format(200, "OK")
ACCEPTED: Answer = (HEAD.format(202, "Accepted"), b'{"status":"OK"}\n')


class NextInvocation(NamedTuple):
    """What `/invocation/next` returns to the runtime."""

    request_id: str
    payload: bytes
    function_arn: str
    deadline_ms: int
    trace_id: str
    client_context: str | None = None


class RuntimeReport(NamedTuple):
    """What the runtime sent: a response, an error of the handler, or an error of the initialisation."""

    kind: str
    body: bytes
    headers: Mapping[str, str]
    arrived_ns: int = 0

    @property
    def error_type(self) -> str:
        """The error's type as the runtime names it in the body, or else in its header."""
        error_type = self.headers.get("lambda-runtime-function-error-type") or "Unknown"
        with contextlib.suppress(ValueError, RecursionError):
            document = json.loads(self.body)
            error_type = str((isinstance(document, dict) and document.get("errorType")) or error_type)
        # Logs and records contain it, and half of a surrogate pair can't be encoded.
        return error_type[:LONGEST_TYPE].encode(errors="replace").decode()


class RuntimeApi:
    """Serves one execution environment: hands out invocations one at a time, and receives their reports.

    `owns` returns whether a connection, given its client's and the server's address, belongs to a process of the
    environment. It is called once per connection, and requests on all others are refused. A report is kept up to one
    byte over `limit`; its runtime gets an error. `changed` is called when `report` or `ready_ns` changes.

    `report` is what the runtime sent in its present phase; `ready_ns` is when it asked for its next invocation, None
    while it does not wait for one.
    """

    def __init__(
        self,
        owns: Callable[[Address, Address], Awaitable[bool]],
        limit: int,
        host: str = LOOPBACK,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.owns = owns
        self.limit = limit
        self.report: RuntimeReport | None = None
        self.ready_ns: int | None = None
        self.abandoned = False
        self.connections: set[_Connection] = set()
        self._host = host
        self._changed = changed
        self._listener: socket.socket | None = None
        self.waiting: _Connection | None = None
        self._pending: NextInvocation | None = None
        self._current: str | None = None
        self._initialised = False

    def start(self) -> str:
        """Bind a free port, and return `host:port` for AWS_LAMBDA_RUNTIME_API."""
        self._listener = socket.create_server((self._host, 0))
        self._listener.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._listen()
        return "{}:{}".format(*self._listener.getsockname())

    def stop(self) -> None:
        """Close the address and every connection to it."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            connection.close()

    def given_up(self) -> bool:
        """Return whether the runtime, which has exited, closed a connection before it asked for anything."""
        self._accept()
        self.read()
        return self.abandoned

    def read(self) -> None:
        """Read what has arrived by now, without waiting for the event loop."""
        for connection in list(self.connections):
            connection.read()

    def hand_out(self, invocation: NextInvocation) -> None:
        """Answer the runtime's waiting `/invocation/next`, or the next one if it has just hung up."""
        self._current = invocation.request_id
        self.report = self.ready_ns = None
        if self.waiting is None:
            self._pending = invocation
            return
        connection, self.waiting = self.waiting, None
        connection.respond(_next(invocation))

    def forget(self, connection: "_Connection") -> None:
        """Forget a closed connection; if the runtime waited there, it doesn't wait any more."""
        self.connections.discard(connection)
        if self.waiting is connection:
            self.waiting = self.ready_ns = None

    def answer(self, connection: "_Connection", request: "_Request") -> Answer | None:
        """Return the answer to the environment's request; None if it waits for an invocation."""
        if request.path == NEXT_PATH and request.method == b"GET":
            self._initialised = True
            if self._pending is not None:
                pending, self._pending = self._pending, None
                return _next(pending)
            # Only one connection waits, so that a function that asks and never listens can't pile up connections.
            former, self.waiting = self.waiting, connection
            if former is not None:
                former.close()
            self.ready_ns = request.arrived_ns
            self._changed()
            return None
        before, _, path = request.path.partition(PREFIX)
        parts = path.decode("latin-1").split("/") if not before else []
        if request.method == b"POST" and parts == ["init", "error"]:
            if self._initialised:
                return _refusal(403, "the initialisation has ended")
            return self._report("init-error", request)
        if request.method == b"POST" and len(parts) == 3 and parts[0] == "invocation":
            if parts[1] != self._current:
                return _refusal(400, "InvalidRequestID")
            if parts[2] in ("response", "error"):
                self._current = None
                return self._report(parts[2], request)
        return _refusal(404, "the Runtime API has no such path")

    def _report(self, kind: str, request: "_Request") -> Answer:
        self.report = RuntimeReport(kind, bytes(request.body), request.headers, request.arrived_ns)
        self._changed()
        if len(request.body) <= self.limit:
            return ACCEPTED
        # documented: runtimes-api.html, 413; the text is from AWS's interface emulator. awslambdaric then exits.
        return _refusal(413, f"Exceeded maximum allowed payload size ({self.limit} bytes).", "RequestEntityTooLarge")

    def _listen(self) -> None:
        if self._listener is not None:
            self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if self._listener is None:
                return
            try:
                connection, _address = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._loop.remove_reader(self._listener)
                    self._loop.call_later(ACCEPT_AGAIN_S, self._listen)
                return  # or the client has gone
            if len(self.connections) < MOST_CONNECTIONS:
                _Connection(self, connection)
            else:
                connection.close()


@dataclass
class _Request:
    """A request as far as it has been read; `arrived_ns` is when its last byte did."""

    method: bytes = b""
    path: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    arrived_ns: int = 0
    persists: bool = True


class _Connection:
    """One connection to a Runtime API: its requests are answered in turn.

    It reads its socket itself, because asyncio's transports don't report when the kernel received the data.
    """

    def __init__(self, api: RuntimeApi, connection: socket.socket) -> None:
        self._api = api
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._request = _Request()
        self._head_bytes = 0  # read so far of the request, without its body
        self._late_ns = 0
        self._requests: deque[_Request] = deque()  # read, and not answered yet
        self._own: bool | None = None
        self._waits = self._ended = self._asked = self._blocked = False
        self._unsent = memoryview(b"")
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        api.connections.add(self)
        self._loop.add_reader(connection, self.read)
        self._asking = asyncio.ensure_future(self._ask())

    def respond(self, answer: Answer) -> None:
        self._waits = False
        self._send(answer)
        self._answer()

    def close(self) -> None:
        self._asking.cancel()
        self._requests.clear()
        if self in self._api.connections:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._api.forget(self)

    def on_url(self, url: bytes) -> None:
        self._request.path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) in LENGTHS and (key := name.lower()) in HEADERS:
            self._request.headers[key.decode("latin-1")] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._request.method = self._parser.get_method()
        if self._request.headers.get("expect", "").lower() == "100-continue" and not self._requests:
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Take a part of the body. Beyond the limit, keep one byte and drop the rest."""
        self._head_bytes -= len(body)
        self._request.body += body[: self._api.limit + 1 - len(self._request.body)]

    def on_message_complete(self) -> None:
        self._request.arrived_ns = time.monotonic_ns() - self._late_ns
        self._request.persists = self._parser.should_keep_alive()
        self._requests.append(self._request)
        self._request, self._head_bytes, self._asked = _Request(), 0, True

    async def _ask(self) -> None:
        try:
            self._own = await self._api.owns(self._socket.getpeername(), self._socket.getsockname())
        except OSError:  # the client is gone, or its owner can't be found out
            self.close()
        self._answer()

    def read(self) -> None:
        """Read requests; hang up on anything else, on endless headers, and on a client that waits for no answer."""
        try:
            data, ancillary, _, _ = self._socket.recvmsg(READ_BYTES, ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._api.abandoned |= not self._asked
            self.close()
            return
        self._late_ns = 0
        for _, _, stamp in ancillary:
            seconds, nanoseconds = TIMESPEC.unpack(stamp)
            self._late_ns = max(0, time.time_ns() - seconds * 1_000_000_000 - nanoseconds)
        if data:
            self._parse(data)
        else:
            self._api.abandoned |= not self._asked
            self._end()
        waiting = len(self._requests)
        # One alone isn't too long: of its body only a byte more than the limit is kept.
        held = sum([len(request.body) for request in self._requests]) if waiting > 1 else 0
        if self._head_bytes > HEAD_BYTES or waiting > PIPELINED or held > self._api.limit + 1:
            self.close()
        # A client that has hung up doesn't wait; the exit of its process is reported elsewhere.
        if self._ended and self._api.waiting is self:
            self.close()
        self._answer()

    def _parse(self, data: bytes) -> None:
        """Parse what has arrived; stop reading after an invalid request."""
        self._head_bytes += len(data)
        while data and len(self._requests) <= PIPELINED:
            try:
                self._parser.feed_data(data)
                data = b""
            except httptools.HttpParserUpgrade as pause:  # to another protocol, which a server may ignore
                data = data[pause.args[0] :]
            except httptools.HttpParserError:
                self._end()
                return

    def _end(self) -> None:
        """Read no more; close it when what has been read is answered."""
        if not self._ended and self in self._api.connections:
            self._ended = True
            self._loop.remove_reader(self._socket)

    def _answer(self) -> None:
        while self._requests and self._own is not None and not self._waits and self in self._api.connections:
            answer = self._api.answer(self, self._requests[0]) if self._own else STRANGER
            if answer is None:
                self._waits = True
            elif answer is ACCEPTED:
                # The caller gets the report first: a runtime that wakes up now may take the processor from both.
                self._waits = True
                self._loop.call_soon(self._loop.call_soon, self.respond, answer)
            else:
                self._send(answer)
        self._close_if_over()

    def _close_if_over(self) -> None:
        if self._ended and not self._requests and not self._unsent:
            self.close()

    def _send(self, answer: Answer) -> None:
        head, body = answer
        if self._requests and not self._requests.popleft().persists:
            self._requests.clear()
            self._end()
        # Header and body leave in one write: two would cost a delayed acknowledgement.
        self._write(f"{head}content-length: {len(body)}\r\n\r\n".encode("latin-1") + body)

    def _write(self, data: bytes) -> None:
        if self not in self._api.connections:
            return
        self._unsent = memoryview(bytes(self._unsent) + data if self._unsent else data)
        if not self._blocked:
            self._flush()

    def _flush(self) -> None:
        """Send what the socket accepts now, and the rest when it accepts more; hang up if that was all.

        Meanwhile, nothing more is read from a client that doesn't read its answers.
        """
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if bool(self._unsent) != self._blocked:
            self._blocked = not self._blocked
            if self._blocked:
                self._loop.remove_reader(self._socket)
                self._loop.add_writer(self._socket, self._flush)
            else:
                self._loop.remove_writer(self._socket)
                if not self._ended:
                    self._loop.add_reader(self._socket, self.read)
        self._close_if_over()


def _next(invocation: NextInvocation) -> Answer:
    context = invocation.client_context
    head = (
        f"{NEXT}lambda-runtime-aws-request-id: {invocation.request_id}\r\n"
        f"lambda-runtime-deadline-ms: {invocation.deadline_ms}\r\n"
        f"lambda-runtime-invoked-function-arn: {invocation.function_arn}\r\n"
        f"lambda-runtime-trace-id: {invocation.trace_id}\r\n"
    )
    return head + f"lambda-runtime-client-context: {context}\r\n" * (context is not None), invocation.payload


def _refusal(status: int, message: str, error_type: str = "InvalidRequest") -> Answer:
    document = {"errorType": error_type, "errorMessage": message}
    return HEAD.format(status, HTTPStatus(status).phrase), json.dumps(document).encode()


STRANGER = _refusal(403, "the Runtime API answers the processes of its own environment alone")
