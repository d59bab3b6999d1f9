"""Follow a channel's server while a run is recorded: its reports, and its end."""

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from slslab.compose.services import ANSWER_S
from slslab_workers.architecture import RunFailed

# It takes 9 seconds to notice that a server's host has vanished.
KEEPALIVE = {socket.TCP_KEEPIDLE: 3, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 3}


@dataclass(eq=False)
class Following:
    """A connection to a server, which stays silent until it ends; a parameter server writes its events to it.

    `on_record` receives them, and a record `failed` (a RunFailed) if the server ends before `close`.
    """

    channel: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    on_record: Callable[[dict[str, Any]], None]

    def __post_init__(self) -> None:
        self._closing = False
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def begin(cls, channel: str, address: str, on_record: Callable[[dict[str, Any]], None]) -> Self:
        """Connect to a channel's server, and empty it if it is a parameter server; OSError or ValueError on failure."""
        parts = urlsplit(address)
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                connection = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in KEEPALIVE.items():
                    connection.setsockopt(socket.IPPROTO_TCP, name, value)
                if parts.scheme == "parameter":
                    writer.write(f"token {unquote(parts.password or '')}\r\nrecord\r\n".encode())
                    for _ in range(2):
                        if (line := await reader.readline()) != b"ok\r\n":
                            raise ValueError(f"the server answers {line.decode(errors='replace').strip()}")
            except BaseException:
                writer.close()
                raise
        return cls(channel, reader, writer, on_record)

    async def close(self) -> None:
        """Announce that no requests will follow, and wait until the server has written everything and closes, too."""
        self._closing = True
        with suppress(OSError, RuntimeError):  # it has ended
            self.writer.write_eof()
        await asyncio.wait([self._reading], timeout=ANSWER_S)
        self._reading.cancel()
        self.writer.close()

    async def _read(self) -> None:
        with suppress(OSError, ValueError):  # it broke, perhaps within a line
            while line := await self.reader.readline():
                self.on_record(json.loads(line))
        if not self._closing:
            name = self.channel.removesuffix("-server")
            message = f"the {name} server ended"
            self.on_record({"record": "failed", **vars(RunFailed("StackFailed", message))})
