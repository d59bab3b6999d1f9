"""Requests that come before the answers to earlier ones."""

import gc
import socket
import weakref
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from slslab.aws import gate
from slslab.host.server_process import listening_socket
from slslab.lambda_.server import Server

pytestmark = pytest.mark.server

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def _answer(_: Request) -> Response:
    return Response(b"answer")


async def _answer_whole(_: Request) -> Response:
    return gate.WholeResponse(b"whole", 200, {"X-Name": "value"}, "text/plain")


def answers(requests: bytes, endpoint: Callable[[Request], Awaitable[Response]] = _answer) -> bytes:
    """What a connection gives back until it is closed."""
    return exchange(requests, Starlette(routes=[Route("/", endpoint)]))


def exchange(requests: bytes, application: ASGIApp) -> bytes:
    """What a connection to an application gives back until it is closed."""
    server = Server(listening_socket("127.0.0.1", 0))
    with closing(server), server.serving(application):
        address = server.endpoint.removeprefix("http://").split(":")
        with socket.create_connection((address[0], int(address[1])), 30) as client:
            client.sendall(requests)
            found = b""
            with suppress(ConnectionResetError):  # it has not read everything
                while piece := client.recv(65536):
                    found += piece
            return found


def test_some_requests_may_come_at_once() -> None:
    assert answers(REQUEST * (gate.MOST_WAITING - 1) + LAST).count(b"answer") == gate.MOST_WAITING


def test_a_connection_with_too_many_requests_is_closed() -> None:
    assert answers(REQUEST * 5_000).count(b"answer") <= gate.MOST_WAITING


def test_a_whole_response_keeps_the_connection_until_the_client_closes_it() -> None:
    head = REQUEST.replace(b"GET", b"HEAD")
    first, second, last = answers(REQUEST + head + LAST, _answer_whole).split(b"HTTP/1.1 200 OK\r\n")[1:]
    for answer in (first, second, last):
        assert b"\r\nx-name: value\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n" in answer
        assert answer.startswith(b"date: ")
    assert [answer.partition(b"\r\n\r\n")[2] for answer in (first, second, last)] == [b"whole", b"", b"whole"]
    assert [b"connection: close" in answer for answer in (first, second, last)] == [False, False, True]


def test_an_answered_request_is_freed_without_the_collector() -> None:
    freed: list[bool] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["body"] = body = {"large"}
        weakref.finalize(body, freed.append, True)
        await gate.WholeResponse(b"whole")(scope, receive, send)

    gc.disable()
    try:
        exchange(REQUEST * 5 + LAST, answer)
        assert len(freed) == 6
    finally:
        gc.enable()
