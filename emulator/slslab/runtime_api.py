"""The Lambda Runtime API: one address per execution environment; `awslambdaric` is its client.

https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import h11

PREFIX = b"/2018-06-01/runtime/"
MAX_REQUEST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class NextInvocation:
    """What `/invocation/next` hands to the runtime."""

    request_id: str
    payload: bytes
    function_arn: str
    deadline_ms: int
    trace_id: str
    client_context: str | None = None


@dataclass(frozen=True)
class RuntimeReport:
    """What the runtime said: a response, an error of the handler, or an error of the initialisation."""

    kind: str
    request_id: str | None
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def error_type(self) -> str:
        """The error's type as the runtime names it in its header, or in the body."""
        header = self.headers.get("lambda-runtime-function-error-type")
        try:
            document: Any = json.loads(self.body)
        except ValueError:
            document = {}
        body_type = document.get("errorType") if isinstance(document, dict) else None
        return str(body_type or header or "Unknown")


class RuntimeApi:
    """Serves one execution environment: hands out invocations one at a time, and hears what became of them."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self._server: asyncio.Server | None = None
        self._waiting: asyncio.Future[NextInvocation] | None = None
        self._current: str | None = None
        self._initialised = False
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.ready = asyncio.Event()
        self.reports: asyncio.Queue[RuntimeReport] = asyncio.Queue()
        self.address = ""

    async def start(self) -> str:
        """Bind a free port; returns `host:port` for AWS_LAMBDA_RUNTIME_API."""
        self._server = await asyncio.start_server(self._serve, self._host, 0, limit=1024 * 1024)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        return self.address

    async def stop(self) -> None:
        """Close the address and every connection to it."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._connections):
            writer.close()
        for task in list(self._tasks):
            task.cancel()
        for task in list(self._tasks):
            with contextlib.suppress(asyncio.CancelledError):
                await task

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
        self._connections.add(writer)
        self._tasks.add(task)
        connection = h11.Connection(h11.SERVER)
        try:
            while True:
                request = await _read_request(connection, reader, writer)
                if request is None:
                    break
                status, headers, body = await self._answer(*request)
                # Header and body leave in one write: two would cost a delayed acknowledgement.
                fields = [*headers, (b"content-length", str(len(body)).encode())]
                head = connection.send(h11.Response(status_code=status, headers=fields))
                data = connection.send(h11.Data(data=body))
                end = connection.send(h11.EndOfMessage())
                writer.write((head or b"") + (data or b"") + (end or b""))
                await writer.drain()
                if connection.our_state is h11.MUST_CLOSE:
                    break
                connection.start_next_cycle()
        except (OSError, h11.RemoteProtocolError, asyncio.CancelledError):
            pass  # the process went away or the environment is being stopped: its exit is reported elsewhere
        finally:
            self._connections.discard(writer)
            self._tasks.discard(task)
            writer.close()

    async def _answer(
        self, method: bytes, path: bytes, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        if not path.startswith(PREFIX):
            return _refusal(404, "the Runtime API has no such path")
        parts = path[len(PREFIX) :].decode().split("/")
        if method == b"GET" and parts == ["invocation", "next"]:
            return await self._next()
        if method == b"POST" and parts == ["init", "error"]:
            if self._initialised:
                return _refusal(403, "the initialisation has ended")
            self.reports.put_nowait(RuntimeReport("init-error", None, body, headers))
            return _accepted()
        if method == b"POST" and len(parts) == 3 and parts[0] == "invocation":
            if parts[1] != self._current:
                return _refusal(400, "InvalidRequestID")
            if parts[2] in ("response", "error"):
                self._current = None
                self.reports.put_nowait(RuntimeReport(parts[2], parts[1], body, headers))
                return _accepted()
        return _refusal(404, "the Runtime API has no such path")

    async def _next(self) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        self._initialised = True
        self._waiting = asyncio.get_running_loop().create_future()
        self.ready.set()
        invocation = await self._waiting
        headers = [
            (b"content-type", b"application/json"),
            (b"lambda-runtime-aws-request-id", invocation.request_id.encode()),
            (b"lambda-runtime-deadline-ms", str(invocation.deadline_ms).encode()),
            (b"lambda-runtime-invoked-function-arn", invocation.function_arn.encode()),
            (b"lambda-runtime-trace-id", invocation.trace_id.encode()),
        ]
        if invocation.client_context is not None:
            headers.append((b"lambda-runtime-client-context", invocation.client_context.encode()))
        return 200, headers, invocation.payload


async def _read_request(
    connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> tuple[bytes, bytes, dict[str, str], bytes] | None:
    request: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                go_on = connection.send(h11.InformationalResponse(status_code=100, headers=[]))
                writer.write(go_on or b"")
            connection.receive_data(await reader.read(256 * 1024))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_REQUEST_BYTES:
                return None
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
            return bytes(request.method), bytes(request.target), headers, bytes(body)
        elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            return None


def _accepted() -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    return 202, [(b"content-type", b"application/json")], b'{"status":"OK"}\n'


def _refusal(status: int, message: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    body = json.dumps({"errorType": "InvalidRequest", "errorMessage": message}).encode()
    return status, [(b"content-type", b"application/json")], body
