"""A server on a thread of its own."""

import asyncio
import urllib.request

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from slslab.errors import HostError
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

    server = Server("127.0.0.1", 0)
    with server.serving(Starlette(routes=[Route("/", answer)]), finish):
        assert urllib.request.urlopen(server.endpoint).read() == b"here"
        assert server.wait_for(add(1, 2)) == 3
        assert server.cpu_seconds() > 0
        assert steps == []
    server.close()
    assert steps == ["finished while it answers: here"]


def test_an_address_that_is_taken_is_an_error_with_a_hint() -> None:
    first = Server("127.0.0.1", 0)
    port = int(first.endpoint.rpartition(":")[2])
    with pytest.raises(HostError, match=f"The port {port} cannot be bound: Address already in use") as error:
        Server("127.0.0.1", port)
    assert error.value.hint.startswith("choose another with --port")
    with pytest.raises(HostError, match=r"The address 192\.0\.2\.1:0 cannot be bound"):
        Server("192.0.2.1", 0)
    first.close()
