"""An HTTP server of this process, on a thread and an event loop of its own."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import uvicorn
from starlette.types import ASGIApp

from slslab.errors import HostError

Result = TypeVar("Result")


class Server:
    """Bind an address; `endpoint` is its URL. Raises HostError if the address is not free."""

    def __init__(self, host: str, port: int) -> None:
        try:
            self._listener = socket.create_server((host, port), backlog=1024)
        except OSError as error:
            what = f"port {port}" if host == "127.0.0.1" else f"address {host}:{port}"
            message = f"The {what} cannot be bound: {os.strerror(error.errno or 0)}."
            raise HostError(message, "choose another with --port, or 0 for any free one.") from error
        # Accepted connections inherit it; asyncio sets it only on sockets that name their protocol.
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address, bound = self._listener.getsockname()
        self.endpoint = f"http://{'127.0.0.1' if address == '0.0.0.0' else address}:{bound}"
        self.loop = asyncio.new_event_loop()

    @contextmanager
    def serving(self, application: ASGIApp, finish: Callable[[], Awaitable[None]]) -> Iterator[None]:
        """Serve the application for as long as the block; `finish` is awaited before the server stops answering."""
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=3600,
            timeout_graceful_shutdown=1,
        )
        server, ending = uvicorn.Server(config), asyncio.Event()

        async def serve() -> None:
            serving = asyncio.ensure_future(server.serve(sockets=[self._listener]))
            await ending.wait()
            await finish()
            server.should_exit = True
            await serving

        run = self.loop.run_until_complete
        self._thread = threading.Thread(target=run, args=(serve(),), name="slslab-emulator", daemon=True)
        self._thread.start()
        try:
            yield
        finally:
            self.loop.call_soon_threadsafe(ending.set)
            self._thread.join()

    def close(self) -> None:
        """Release the address and the event loop; nothing is served any more."""
        self._listener.close()
        self.loop.close()

    def wait_for(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the server's thread and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def cpu_seconds(self) -> float:
        """Return the CPU time that the server's thread has used."""
        assert self._thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))
