"""A server on a thread of its own."""

import asyncio
import urllib.request

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from slslab.host.server_process import listening_socket
from slslab.lambda_.server import Server


def test_it_answers_until_what_waits_is_finished() -> None:
    steps: list[str] = []

    async def answer(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("here")

    async def finish() -> None:
        def ask() -> str:
            return str(urllib.request.urlopen(server.endpoint).read().decode())

        steps.append(f"finished while it answers: {await asyncio.to_thread(ask)}")

    async def add(first: int, second: int) -> int:
        return first + second

    server = Server(listening_socket("127.0.0.1", 0))
    with server.serving(Starlette(routes=[Route("/", answer)]), finish):
        assert urllib.request.urlopen(server.endpoint).read() == b"here"
        assert server.wait_for(add(1, 2)) == 3
        assert server.cpu_seconds() > 0
        assert steps == []
    server.close()
    assert steps == ["finished while it answers: here"]
