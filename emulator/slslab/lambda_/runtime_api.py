"""Serve the Lambda Runtime API, one address per execution environment; `awslambdaric` is its client.

Other processes of this host, and pages in its browsers, reach that address, too, so it is asked whose each connection
is. (A secret in the address would not do: awslambdaric reports an error of the initialisation to a host and port only.)
https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import h11

from slslab.host.connections import LOOPBACK, Address

PREFIX = b"/2018-06-01/runtime/"
# Status, headers and body.
Answer = tuple[int, list[tuple[bytes, bytes]], bytes]
JSON = (b"content-type", b"application/json")
ACCEPTED: Answer = (202, [JSON], b'{"status":"OK"}\n')


@dataclass(frozen=True)
class NextInvocation:
    """What `/invocation/next` returns to the runtime."""

    request_id: str
    payload: bytes
    function_arn: str
    deadline_ms: int
    trace_id: str
    client_context: str | None = None


@dataclass(frozen=True)
class RuntimeReport:
    """What the runtime sent: a response, an error of the handler, or an error of the initialisation."""

    kind: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def error_type(self) -> str:
        """The error's type as the runtime names it in the body, or else in its header."""
        error_type = self.headers.get("lambda-runtime-function-error-type") or "Unknown"
        with contextlib.suppress(ValueError):
            document = json.loads(self.body)
            error_type = (isinstance(document, dict) and document.get("errorType")) or error_type
        return str(error_type)


class RuntimeApi:
    """Serves one execution environment: hands out invocations one at a time, and receives their reports.

    `owns` tells whether a connection, given its client's address and the server's, is one of the environment's
    processes'; it is asked once for each, and all requests of others are refused. A report has at most one byte more
    than `limit`; its runtime is told that it was too large.
    """

    def __init__(self, owns: Callable[[Address, Address], Awaitable[bool]], limit: int, host: str = LOOPBACK) -> None:
        self._owns = owns
        self._limit = limit
        self._host = host
        self._server: asyncio.Server | None = None
        self._waiting: asyncio.Future[NextInvocation] | None = None
        self._current: str | None = None
        self._initialised = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.ready = asyncio.Event()
        self.reports: asyncio.Queue[RuntimeReport] = asyncio.Queue()

    async def start(self) -> str:
        """Bind a free port, and return `host:port` for AWS_LAMBDA_RUNTIME_API."""
        self._server = await asyncio.start_server(self._serve, self._host, 0, limit=1024 * 1024)
        return "{}:{}".format(*self._server.sockets[0].getsockname())

    async def stop(self) -> None:
        """Close the address and every connection to it."""
        if self._server is not None:
            # asyncio loses a connection that it has accepted, but not made, when its server closes: it is made first.
            for listener in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())
            await asyncio.sleep(0)
            self._server.close()
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def hand_out(self, invocation: NextInvocation) -> None:
        """Answer the runtime's waiting `/invocation/next`; the environment must be ready."""
        if self._waiting is None or self._waiting.done():
            raise RuntimeError("the runtime is not waiting for an invocation")
        self._current = invocation.request_id
        self.ready.clear()
        self._waiting.set_result(invocation)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        assert self._server is not None
        if not self._server.is_serving():  # stopped between the connection and this task
            writer.close()
            return
        self._tasks.add(task)
        connection = h11.Connection(h11.SERVER)
        try:
            own = await self._owns(writer.get_extra_info("peername"), writer.get_extra_info("sockname"))
            while True:
                request = await _read_request(connection, reader, writer, self._limit if own else 0)
                if request is None:
                    break
                status, headers, body = await self._answer(*request) if own else STRANGER
                # Header and body leave in one write: two would cost a delayed acknowledgement.
                fields = [*headers, (b"content-length", str(len(body)).encode())]
                events = (h11.Response(status_code=status, headers=fields), h11.Data(data=body), h11.EndOfMessage())
                writer.write(b"".join(connection.send(event) or b"" for event in events))
                await writer.drain()
                if connection.our_state is h11.MUST_CLOSE:
                    break
                connection.start_next_cycle()
        except (OSError, h11.RemoteProtocolError, asyncio.CancelledError):
            pass  # the process has exited or the environment is being stopped: its exit is reported elsewhere
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, method: bytes, path: bytes, headers: dict[str, str], body: bytes) -> Answer:
        if not path.startswith(PREFIX):
            return _refusal(404, "the Runtime API has no such path")
        parts = path[len(PREFIX) :].decode().split("/")
        if method == b"GET" and parts == ["invocation", "next"]:
            return await self._next()
        if method == b"POST" and parts == ["init", "error"]:
            if self._initialised:
                return _refusal(403, "the initialisation has ended")
            return self._report("init-error", body, headers)
        if method == b"POST" and len(parts) == 3 and parts[0] == "invocation":
            if parts[1] != self._current:
                return _refusal(400, "InvalidRequestID")
            if parts[2] in ("response", "error"):
                self._current = None
                return self._report(parts[2], body, headers)
        return _refusal(404, "the Runtime API has no such path")

    def _report(self, kind: str, body: bytes, headers: dict[str, str]) -> Answer:
        self.reports.put_nowait(RuntimeReport(kind, body, headers))
        if len(body) <= self._limit:
            return ACCEPTED
        # documented: runtimes-api.html, 413; the words are those of AWS's interface emulator. awslambdaric then exits.
        return _refusal(413, f"Exceeded maximum allowed payload size ({self._limit} bytes).", "RequestEntityTooLarge")

    async def _next(self) -> Answer:
        self._initialised = True
        self._waiting = asyncio.get_running_loop().create_future()
        self.ready.set()
        invocation = await self._waiting
        headers = [
            JSON,
            (b"lambda-runtime-aws-request-id", invocation.request_id.encode()),
            (b"lambda-runtime-deadline-ms", str(invocation.deadline_ms).encode()),
            (b"lambda-runtime-invoked-function-arn", invocation.function_arn.encode()),
            (b"lambda-runtime-trace-id", invocation.trace_id.encode()),
        ]
        if invocation.client_context is not None:
            headers.append((b"lambda-runtime-client-context", invocation.client_context.encode()))
        return 200, headers, invocation.payload


async def _read_request(
    connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int
) -> tuple[bytes, bytes, dict[str, str], bytes] | None:
    """Return method, path, headers and body of the next request; None when the client has closed the connection.

    Of a body beyond the limit one byte more than that is kept, and the rest thrown away as it comes.
    """
    request: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                writer.write(connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            connection.receive_data(await reader.read(256 * 1024))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data[: limit + 1 - len(body)]
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
            return bytes(request.method), bytes(request.target), headers, bytes(body)
        elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            return None


def _refusal(status: int, message: str, error_type: str = "InvalidRequest") -> Answer:
    return status, [JSON], json.dumps({"errorType": error_type, "errorMessage": message}).encode()


STRANGER = _refusal(403, "the Runtime API answers the processes of its own environment alone")
