"""Forward requests unchanged, in pieces: a whole body is never kept in memory, and sending waits for the receiver."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send
from yarl import URL

# documented: RFC 9110, 7.6.1: these headers are about one connection. `Date` is each server's own; `Expect` was
# answered here.
OF_ONE_CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
NOT_SENT = OF_ONE_CONNECTION | {b"expect"}
NOT_RETURNED = OF_ONE_CONNECTION | {b"date"}
# aiohttp would add its own; the signature of a request may not cover them, but its server may read them.
ADDED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
# Size of a body's pieces: smaller ones cost more time, larger ones more memory for each connection.
PIECE_BYTES = 256 * 1024


class Unreachable(Exception):
    """The server doesn't answer."""


class Forwarder:
    """Forwards requests to HTTP servers of this host; requests for `services` go to the Unix socket."""

    def __init__(self, services: str) -> None:
        self._services = services
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def close(self) -> None:
        """End all connections."""
        for session in self._sessions.values():
            await session.close()

    async def forward(self, scope: Scope, receive: Receive, send: Send, endpoint: str) -> None:
        """Forward a request to the server at this URL, and its answer to the client, until the client leaves.

        Raises Unreachable.
        """
        upload = Upload(receive)
        answered = asyncio.ensure_future(self._answer(scope, upload, send, endpoint))
        left = asyncio.ensure_future(upload.client_left())
        try:
            await asyncio.wait((answered, left), return_when=asyncio.FIRST_COMPLETED)
            if answered.done():
                answered.result()
        except aiohttp.ClientConnectionError as error:
            raise Unreachable(str(error)) from error
        finally:
            answered.cancel()
            left.cancel()

    async def _answer(self, scope: Scope, upload: "Upload", send: Send, endpoint: str) -> None:
        path = scope["raw_path"].decode("latin-1")
        query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
        has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])
        if not has_body:
            upload.finished.set()
        answer = await self._session(endpoint == "").request(
            scope["method"],
            # Encoded as the client did, since the signature covers these characters.
            URL(f"{endpoint or 'http://services'}{path}{query}", encoded=True),
            headers=_headers(scope),
            data=upload.pieces() if has_body else None,
            skip_auto_headers=ADDED,
            allow_redirects=False,
            read_bufsize=PIECE_BYTES,
        )
        headers = [(name.lower(), value) for name, value in answer.raw_headers if name.lower() not in NOT_RETURNED]
        try:
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            async for piece in answer.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            # If the client stops reading, stop reading here, too; a complete answer has been read already.
            answer.close()

    def _session(self, to_services: bool) -> aiohttp.ClientSession:
        """Return the connections to one kind of server, made on first use since they need a running event loop."""
        if to_services not in self._sessions:
            connector = aiohttp.UnixConnector(self._services, limit=0) if to_services else aiohttp.TCPConnector(limit=0)
            self._sessions[to_services] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                # An invocation may take 15 minutes, and a task of a state machine longer.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            )
        return self._sessions[to_services]


class Upload:
    """The body of one request, as it arrives; `finished` is set at its end."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.finished = asyncio.Event()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body; ClientDisconnect if the client leaves before its end."""
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            if piece := message.get("body", b""):
                yield piece
            more = message.get("more_body", False)
        self.finished.set()

    async def client_left(self) -> None:
        """Return when the client has closed its connection after its request was read."""
        await self.finished.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _headers(scope: Scope) -> list[tuple[str, str]]:
    return [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"] if name not in NOT_SENT
    ]
