"""Whatever a function sends to its Runtime API, and wherever it breaks off, the next runtime is served."""

import asyncio
import contextlib
import gc
import multiprocessing
import os
import random
import socket
import struct
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from slslab.host.connections import Address
from slslab.lambda_.runtime_api import NextInvocation, RuntimeApi

SEEDS = 150
LIMIT = 1000
ID = "8476a536-e9f4-11e8-9739-2dfe598c3fcd"
NEXT = b"GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\nHost: x\r\n\r\n"
RESET = struct.pack("ii", 1, 0)
METHODS = (b"GET", b"GET", b"POST", b"POST", b"PUT", b"HEAD", b"CONNECT", b"OPTIONS", b"PRI", b"get", b"\xff")
PATHS = (
    *(b"invocation/next", b"invocation/next", b"init/error", f"invocation/{ID}/response".encode()),
    *(f"invocation/{ID}/error".encode(), b"invocation/other/response", b"invocation//error", b"", b"\xff\xfe", b"%00"),
    *(b"x" * 5000, b"../runtime/invocation/next", b"invocation/next?a=b"),
)
HEADERS = (
    *(
        b"Expect: 100-continue",
        b"Connection: close",
        b"Connection: keep-alive",
        b"Connection: Upgrade",
        b"Upgrade: h2c",
    ),
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Content-Length: 0", b"Content-Length: 5"),
    *(b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Content-Length: 2000", b"Host: x", b"A: \xff"),
    *(b"Lambda-Runtime-Function-Error-Type: \xe4", b"X: " + b"y" * 9000, b": z", b" folded", b"no colon", b"A:"),
)
BODIES = (
    *(b"", b"hello", b"{}", b'{"errorType": "\\ud800"}', b'{"errorType": ["a"]}', b"[" * 2000, b"\xff", bytes(2000)),
    *(b"5\r\nhello\r\n0\r\n\r\n", b"5;x=y\r\nhello\r\n0\r\nTrailer: 1\r\n\r\n", b"fffffffffffffffff\r\n", b"x\r\n"),
    *(b"0\r\n\r\n", b"1\r\na\r\n", b"\r\n\r\n", b"GET / HTTP/1.1\r\n"),
)


def request(order: random.Random) -> bytes:
    """A request, mostly with something odd in it."""
    if order.random() < 0.4:
        return NEXT
    prefix = b"/2018-06-01/runtime/" if order.random() < 0.9 else order.choice((b"/", b"", b"http://x/", b"*"))
    version = order.choice((b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b""))
    lines = [b" ".join((order.choice(METHODS), prefix + order.choice(PATHS), version))]
    lines += order.choices(HEADERS, k=order.randrange(4))
    body = order.choice(BODIES)
    if order.random() < 0.5:
        lines.append(b"Content-Length: %d" % len(body))
    made = bytearray(b"\r\n".join((*lines, b"", body)))
    if order.random() < 0.1:
        at = order.randrange(len(made))
        made[at : at + order.randrange(4)] = order.randbytes(order.randrange(4))
    return bytes(made)


class Case:
    """One Runtime API, and clients that treat it as a seed says."""

    def __init__(self, seed: int, complaints: list[Any]) -> None:
        self.order = random.Random(seed)
        self.api = RuntimeApi(self.owns, LIMIT)
        self.clients: list[socket.socket] = []
        self.complaints = complaints

    async def owns(self, _client: Address, _server: Address) -> bool:
        for _ in range(self.order.randrange(3)):
            await asyncio.sleep(0)
        if self.order.random() < 0.03:
            raise PermissionError
        return self.order.random() < 0.9

    async def play(self) -> None:
        """What the seed says, and then a runtime as it should be."""
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.complaints.append(context))
        address = self.api.start()
        host, port = address.split(":")
        for _ in range(self.order.randrange(2, 25)):
            if not self.clients or self.order.random() < 0.2:
                self.clients.append(socket.create_connection((host, int(port))))
                self.clients[-1].setblocking(False)
            await self.act(self.order.choice(self.clients))
            for _ in range(self.order.choice((0, 1, 2, 5))):
                await asyncio.sleep(0)
            if self.api.ready_ns is not None and self.order.random() < 0.5:
                self.api.hand_out(NextInvocation(ID, b"{}", "arn", 1, "Root"))
            if self.api.report is not None:
                assert len(self.api.report.error_type.encode()) <= 1024
                assert len(self.api.report.body) <= LIMIT + 1
        await self.serve(host, int(port))
        for client in self.clients:
            client.close()
        self.api.stop()
        assert not self.api.connections
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def act(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            match self.order.randrange(12):
                case 0:
                    client.shutdown(self.order.choice((socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR)))
                case 1:
                    client.close()
                case 2:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    client.close()
                case 3:
                    client.recv(10_000)
                case 4:
                    for byte in request(self.order):
                        client.send(bytes([byte]))
                        if self.order.random() < 0.1:
                            await asyncio.sleep(0)
                case 5:
                    client.send(request(self.order) * self.order.choice((2, 5, 40)))
                case 6:
                    made = request(self.order)
                    client.send(made[: self.order.randrange(len(made))])
                case _:
                    client.send(request(self.order))

    async def serve(self, host: str, port: int) -> None:
        """An ordinary runtime gets an invocation, and its response arrives."""
        self.api.owns = anybody
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(NEXT)
        while self.api.ready_ns is None or not self.waits(writer.get_extra_info("sockname")):
            await asyncio.sleep(0)
        self.api.hand_out(NextInvocation(ID, b'"ordinary"', "arn", 1, "Root"))
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(10) == b'"ordinary"'
        path = f"/2018-06-01/runtime/invocation/{ID}/response".encode()
        writer.write(b"POST " + path + b" HTTP/1.1\r\nContent-Length: 4\r\n\r\ndone")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 202 ")
        assert self.api.report is not None
        assert (self.api.report.kind, self.api.report.body) == ("response", b"done")
        writer.close()

    def waits(self, name: Address) -> bool:
        """Return whether this client's request is waiting."""
        with contextlib.suppress(OSError):
            return self.api.waiting is not None and self.api.waiting._socket.getpeername() == name
        return False


async def anybody(_client: Address, _server: Address) -> bool:
    return True


def play(seed: int, complaints: list[Any]) -> None:
    """Play a seed; `complaints` are what the event loop has to say, which may be as late as the next collection."""

    async def limited() -> None:
        async with asyncio.timeout(30):
            await Case(seed, complaints).play()

    asyncio.run(limited())


def open_files() -> set[str]:
    """What the descriptors of this process lead to; sockets and pipes have a number of their own."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the list itself
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return found


def play_all() -> tuple[list[str], set[str]]:
    """Play every seed; return what the event loops had to say, and what was left open."""
    complaints: list[Any] = []
    play(0, complaints)
    gc.collect()
    before = open_files()
    for seed in range(SEEDS):
        play(seed, complaints)
    gc.collect()
    return [repr(complaint) for complaint in complaints], open_files() - before


def test_any_runtime() -> None:
    """In a process of its own, in which no thread of another test opens anything meanwhile."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        complaints, left_open = process.submit(play_all).result()
    assert complaints == []
    assert not left_open
