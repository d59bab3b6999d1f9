"""Make the emulator's loopback services reachable on a node: `python -m slslab_ray.relay`, a process on each side.

Stores, databases, queues and the emulator itself only listen on loopback, and some don't check keys. On a node, a relay
listens at the same loopback ports and sends each connection over the network by mutual TLS. Each start makes a new key,
which reaches the nodes through the cluster. The emulator's relay only opens ports that it was given. So functions use
the same addresses as on one host.

It is a separate process because it moves gradients while the emulator and its nodes meter time. It ends when its
standard input closes. There it reads lines of JSON, `{"ports": [...]}`, and answers each with `{"problem": ""}`.
"""

import asyncio
import json
import os
import ssl
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import uvloop

from slslab.host.connections import LOOPBACK
from slslab.host.server_process import NotReadyError, ServerProcess
from slslab.stack.mutual_tls import mutual_context

CHUNK_BYTES = 1 << 18
# Each connection begins with its port.
PORT = struct.Struct("!H")
READY_LIMIT_S = 30.0


class Relay(ServerProcess):
    """One side of the relay: `here`, which listens at this address of the emulator's host, or a node's, `there`, which
    connects to it. `key` is the file with its key and certificate. `address` has the actual port once the emulator's
    side is entered. HostError if it doesn't start."""

    title = "The relay"
    hint = "check that the address belongs to this host, and that the nodes can reach it."

    def __init__(self, side: str, address: tuple[str, int], key: Path, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self.address = address
        self._side = side
        self._key = key
        self._asking = threading.Lock()

    def runs(self) -> bool:
        """Return whether it is running."""
        return self._running.poll() is None

    def add(self, ports: Sequence[int]) -> str:
        """Relay these ports, too; return the problem, or an empty text."""
        process = self._running
        assert process.stdin is not None
        with self._asking, suppress(BrokenPipeError, NotReadyError):
            # Leave nothing in a buffer, which would be flushed at the end.
            os.write(process.stdin.fileno(), json.dumps({"ports": list(ports)}).encode() + b"\n")
            return str(self._report(READY_LIMIT_S)["problem"])
        process.kill()  # a late answer would be mistaken for the next one's
        return "the relay has ended"

    def _start(self) -> None:
        host, port = self.address
        self._launch_module("slslab_ray.relay", [self._side, host, str(port), str(self._key)], os.environ)
        self.address = host, int(self._report(READY_LIMIT_S)["port"])


class Sides:
    """Connection handling of both sides; `ports` are the reachable ports."""

    def __init__(self, address: tuple[str, int], key: Path) -> None:
        self.address = address
        self.ports: set[int] = set()
        self._key = key
        self._servers: list[asyncio.Server] = []

    async def serve(self) -> int:
        """Listen as the emulator's side, and return the port."""
        host, port = self.address
        server = await asyncio.start_server(
            self._accept, host, port, ssl=mutual_context(self._key, ssl.PROTOCOL_TLS_SERVER)
        )
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def listen(self, ports: Sequence[int]) -> str:
        """Listen at these loopback ports as a node's side; return the problem, if there is one."""
        for port in ports:
            if port not in self.ports:
                try:
                    server = await asyncio.start_server(self._forward, LOOPBACK, port)
                except OSError as error:
                    return f"its port {port} cannot be bound: {os.strerror(error.errno or 0)}"
                self._servers.append(server)
                self.ports.add(port)
        return ""

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            (port,) = PORT.unpack(await reader.readexactly(PORT.size))
            if port in self.ports:
                await _join(reader, writer, *await asyncio.open_connection(LOOPBACK, port))
        writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("sockname")[1]
        with suppress(OSError):
            host, there = self.address
            context = mutual_context(self._key, ssl.PROTOCOL_TLS_CLIENT)
            far_reader, far_writer = await asyncio.open_connection(host, there, ssl=context)
            far_writer.write(PORT.pack(port))
            await _join(reader, writer, far_reader, far_writer)
        writer.close()


async def _join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
) -> None:
    copies = {asyncio.ensure_future(_copy(reader, far_writer)), asyncio.ensure_future(_copy(far_reader, writer))}
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for copy in copies:
            copy.cancel()
        far_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()


async def _serve(side: str, address: tuple[str, int], key: Path) -> None:
    sides = Sides(address, key)
    port = await sides.serve() if side == "here" else address[1]
    print(json.dumps({"port": port}), flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        ports = json.loads(line)["ports"]
        if side == "here":
            sides.ports.update(ports)
            problem = ""
        else:
            problem = await sides.listen(ports)
        print(json.dumps({"problem": problem}), flush=True)


def main() -> None:
    """Relay until standard input closes."""
    side, host, port, key = sys.argv[1:]
    uvloop.run(_serve(side, (host, int(port)), Path(key)))


if __name__ == "__main__":
    main()
