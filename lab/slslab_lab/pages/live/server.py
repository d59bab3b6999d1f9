"""The server: a socket on loopback, served until Ctrl-C."""

import asyncio
import secrets
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import uvicorn

from slslab.aws.gate import BoundedHeads
from slslab.errors import HostError, RequestError, writable
from slslab.run.bill import DEFAULT_BOOK, load_book
from slslab_lab.pages.live.app import Pages
from slslab_lab.pages.live.changes import Changes
from slslab_lab.pages.live.views import Views

HOST = "127.0.0.1"
# Pages that are still being sent after this time are broken off.
CLOSE_LIMIT_S = 3


def serve(folder: Path, port: int, ready: Callable[[str], None]) -> None:
    """Serve the runs in the folder until Ctrl-C; make the folder if it is missing.

    `ready` gets the address, with a token that is new at each start and is needed to see anything.

    RequestError if the port is taken or the folder can't be made; HostError if files can't be watched.
    """
    with listening(port) as listener:
        asyncio.run(_serve(prepare(folder), listener, ready))


def prepare(folder: Path) -> Path:
    """Return the folder with all links resolved, after making it if it is missing."""
    with writable(folder, "choose another --runs.", done="made"):
        folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def listening(port: int) -> socket.socket:
    """Return a socket that listens on this port of loopback, or on any free one for 0."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise RequestError(
            f"Port {port} of {HOST} cannot be served: {error.strerror}.", "--port 0 takes any free one."
        ) from error


class _Server(uvicorn.Server):
    """Leaves signals to the loop, and ends the event streams, which would never end otherwise."""

    def __init__(self, config: uvicorn.Config, changes: Changes) -> None:
        super().__init__(config)
        self._changes = changes

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    def stop(self) -> None:
        """Stop; on a second call, without waiting for pages that are still being sent."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._changes.end()


async def _serve(folder: Path, listener: socket.socket, ready: Callable[[str], None]) -> None:
    changes = Changes(folder)
    port, token = listener.getsockname()[1], secrets.token_urlsafe(32)
    config = uvicorn.Config(
        Pages(Views(folder, load_book(DEFAULT_BOOK)), changes).application(token, port),
        http=BoundedHeads,
        log_config=None,
        access_log=False,
        # With a WebSockets library installed, connections would bypass the gate, which checks HTTP.
        ws="none",
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=CLOSE_LIMIT_S,
    )
    server = _Server(config, changes)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, server.stop)
    try:
        async with changes.watching():
            ready(f"http://{HOST}:{port}/?token={token}")
            await server.serve(sockets=[listener])
    except OSError as error:
        raise HostError(f"{folder} cannot be watched: {error}.", "raise fs.inotify.max_user_watches.") from error
