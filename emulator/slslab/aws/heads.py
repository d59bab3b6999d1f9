"""Add to uvicorn: limits on a request's head and on queued requests, and responses in one write.

uvicorn copies a long head with every piece that arrives, and reads on with each answer, however many requests wait. It
writes a response's head before its body, which wakes up the client twice.
"""

from collections.abc import Mapping
from functools import partial

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

# AWS's clients send heads of a few kilobytes; one piece of data has up to 256, possibly of an earlier body.
LARGEST_HEAD = 512 * 1024
# assumed: AWS's clients wait for each answer before their next request.
MOST_WAITING = 100
# The ASGI extension that sends a whole response.
EXTENSION = "slslab.whole"


class BoundedHeads(HttpToolsProtocol):
    """Answers 400 if a head or the number of waiting requests exceeds the limits, and closes the connection."""

    _in_head = False
    _size = 0

    def on_message_begin(self) -> None:
        """Start counting. If too many requests wait, raise ValueError: the parser reports an invalid request."""
        if len(self.pipeline) >= MOST_WAITING:
            raise ValueError("too many requests wait for an answer")
        super().on_message_begin()
        self._in_head, self._size = True, 0

    def on_headers_complete(self) -> None:
        """Stop counting: the gate limits the body."""
        super().on_headers_complete()
        self.scope["extensions"] = {EXTENSION: {"send": partial(_send, self.cycle)}}
        self._in_head = False

    def data_received(self, data: bytes) -> None:
        """Receive the next piece of a request."""
        super().data_received(data)
        self._size += len(data)
        if self._in_head and self._size > LARGEST_HEAD:
            self.send_400_response("The head of the request is too large.")


class WholeResponse(Response):
    """An ASGI response that leaves in one write; the server's protocol must be `BoundedHeads`.

    `headers` are trusted: no name and no value may have a line break.
    """

    def __init__(
        self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None, media_type: str = ""
    ) -> None:
        self.status_code, self.body = status, body
        self.lines = [f"{name.lower()}: {value}\r\n" for name, value in (headers or {}).items()]
        if media_type:
            self.lines.append(f"content-type: {media_type}\r\n")
        if status != 204:
            self.lines.append(f"content-length: {len(body)}\r\n")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send it."""
        await scope["extensions"][EXTENSION]["send"](self)


async def _send(cycle: RequestResponseCycle, response: WholeResponse) -> None:
    if cycle.flow.write_paused and not cycle.disconnected:
        await cycle.flow.drain()
    if cycle.disconnected:
        return
    date = [part for name, value in cycle.default_headers for part in (name, b": ", value, b"\r\n")]
    closes = "" if cycle.keep_alive else "connection: close\r\n"
    head = "".join([*response.lines, closes, "\r\n"]).encode("latin-1")
    body = response.body if cycle.scope["method"] != "HEAD" else b""
    cycle.transport.write(b"".join([STATUS_LINE[response.status_code], *date, head, body]))
    cycle.response_started = cycle.response_complete = True
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
