"""An HTTP server in this process, with its own thread and event loop."""

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import uvicorn
import uvloop
from starlette.types import ASGIApp

from slslab.aws.gate import BodyLimit, BoundedHeads, Gate, Public
from slslab.aws.keys import Keyring

Result = TypeVar("Result")


class Server:
    """Serves at a listening socket; `endpoint` is its URL."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        address, port = listener.getsockname()
        self.endpoint = f"http://{'127.0.0.1' if address == '0.0.0.0' else address}:{port}"
        self.loop = uvloop.new_event_loop()

    @contextmanager
    def serving(
        self,
        application: ASGIApp,
        finish: Callable[[], Awaitable[None]] | None = None,
        names: Collection[str] = (),
        keys: Keyring | None = None,
        limit: BodyLimit | None = None,
        public: Public | None = None,
    ) -> Iterator[None]:
        """Serve the application during the block; `finish` is awaited before the server stops answering.

        Clients call it by a name of loopback, or one of `names`, and sign their requests with one of `keys`; `limit`
        bounds the bodies of these requests. `public` answers requests that the gate doesn't check.
        """
        config = uvicorn.Config(
            Gate(application, names, keys, limit, public),
            http=BoundedHeads,
            log_config=None,
            access_log=False,
            # WebSockets would bypass the gate, which checks HTTP only.
            ws="none",
            # The server isn't behind a proxy, so don't trust a client's proxy headers.
            proxy_headers=False,
            server_header=False,
            lifespan="off",
            timeout_keep_alive=3600,
            timeout_graceful_shutdown=1,
        )
        server, ending = uvicorn.Server(config), asyncio.Event()

        async def serve() -> None:
            serving = asyncio.ensure_future(server.serve(sockets=[self._listener]))
            await ending.wait()
            if finish is not None:
                await finish()
            server.should_exit = True
            await serving

        self._thread = threading.Thread(
            target=self.loop.run_until_complete, args=(serve(),), name="slslab-server", daemon=True
        )
        self._thread.start()
        try:
            yield
        finally:
            self.loop.call_soon_threadsafe(ending.set)
            self._thread.join()

    def close(self) -> None:
        """Stop serving, and release the address and the event loop."""
        self._listener.close()
        self.loop.close()

    def wait_for(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the server's thread and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def cpu_seconds(self) -> float:
        """Return the CPU time that the server's thread has used."""
        assert self._thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))
