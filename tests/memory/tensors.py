"""Tensor databases in memory: the project's own engine, called by its protocol in place of a socket.

A command takes effect in its middle, as a request to `stores` does.
"""

import io
from collections.abc import Iterable, Sequence
from functools import cache, partial
from itertools import count
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import torch
from tests.memory.stores import Wait

from slslab.tensordb import server  # noqa: F401 - it enters all commands into the table
from slslab.tensordb.executions import Report
from slslab.tensordb.lua_engine import Engine
from slslab.tensordb.replies import Encoder
from slslab.tensordb.resp import Reader, Request
from slslab.tensordb.scripts import Script, compile_script
from slslab.tensordb.session import Context, Session, admit, execute
from slslab.tensordb.store import PeerClosed, Store, Waiter
from slslab_workers.channels.stream import Bytes, Unreachable

# A password that an address must quote.
PASSWORD = "p@ss:word/1"
PLACE = "memory"
FIRST_PORT = 7001


class Database:
    """One database, until a client's SHUTDOWN."""

    def __init__(self, number: int, report: Report) -> None:
        self.closed = False
        self.url = f"redis://:{quote(PASSWORD, safe='')}@{PLACE}:{FIRST_PORT + number}"
        self.store = Store()
        lua = Engine()
        clients: dict[int, Session] = {}
        password = PASSWORD.encode()
        self.context = Context(self.store, number, password, lua, report, clients, self.close)
        self._numbers = count(1)

    def close(self) -> None:
        """Free the memory; every connection breaks."""
        self.closed = True
        self.context.lua.end()
        self.store.close()

    def session(self) -> Session:
        """Return the state of a new connection, which has no socket."""
        connection: Any = None
        return Session(self.context, next(self._numbers), connection, "memory")


@cache
def _compiled(source: bytes, entry_points: tuple[bytes, ...], tag: bytes) -> Script:
    return compile_script(source, entry_points, tag)


def compiled_once(source: bytes, entry_points: Sequence[bytes], tag: bytes) -> Script:
    """Compile a script, unless a database of this process has compiled it: it is the same for all."""
    return _compiled(source, tuple(entry_points), tag)


class Databases:
    """The databases of a run; `wait` waits for half of a command, `report` receives what scripts took."""

    def __init__(self, number: int, wait: Wait, report: Report) -> None:
        self.wait = wait
        self.peers = [Database(peer, report) for peer in range(number)]

    @property
    def urls(self) -> str:
        """The addresses, as functions find them in their variables."""
        return " ".join(database.url for database in self.peers)

    def keys(self, run: str) -> tuple[str, ...]:
        """Return the keys of a run in the databases that live."""
        return tuple(key.decode() for peer in self.peers for key in peer.store.table if run.encode() in key)

    def end_scripts(self) -> None:
        """End the processes of their Lua scripts; the tables stay to be looked at."""
        for peer in self.peers:
            peer.context.lua.end()

    def at(self, name: str, port: int) -> Database:
        """Return the database at a port; Unreachable if it is not there any more."""
        database = self.peers[port - FIRST_PORT]
        if database.closed:
            raise Unreachable(f"{name} cannot be reached: it has ended")
        return database

    def create_connection(self, address: tuple[str, int], _timeout_s: float) -> Any:
        """Connect and send nothing, as `socket.create_connection` does."""
        self.wait()
        try:
            self.at("The database", address[1])
        except Unreachable as error:
            raise ConnectionRefusedError(str(error)) from error
        return SimpleNamespace(close=lambda: None)


class Stream:
    """A connection to a database; see `slslab_workers.channels.stream.Stream`."""

    def __init__(self, databases: Databases, title: str, host: str, port: int, _connect_s: float = 0) -> None:
        self.name = f"{title} {host}:{port}"
        self._databases = databases
        databases.wait()
        self._database = databases.at(self.name, port)
        self._session = self._database.session()
        self._requests = io.BytesIO()
        incoming: Any = SimpleNamespace(recv=self._requests.read, recv_into=self._receive)
        self._reader = Reader(incoming, lambda: None, partial(admit, self._session))
        self._answers = io.BytesIO()

    def close(self) -> None:
        """Nothing is held."""

    def wait_at_most(self, answer_s: float | None) -> None:
        """An answer takes a moment."""

    def send(self, parts: Iterable[Bytes]) -> None:
        """Have a command executed."""
        self._requests.seek(0)
        self._requests.truncate()
        self._requests.write(b"".join(parts))
        self._requests.seek(0)
        self._databases.wait()
        try:
            self._answers = io.BytesIO(self._answer())
        except PeerClosed as error:
            raise Unreachable(f"{self.name} has ended") from error
        self._databases.wait()

    def line(self) -> bytes:
        """Return the next line without its end; Unreachable if the database has ended without an answer."""
        line = self._answers.readline()
        if not line:
            raise Unreachable(f"{self.name} closed the connection")
        return line.removesuffix(b"\r\n")

    def body(self, size: int) -> memoryview:
        """Return the next bytes in a buffer of their own."""
        return memoryview(bytearray(self._answers.read(size)))

    def _answer(self) -> bytes:
        self._reader.trusted = self._session.authenticated
        request, encoder = Request(), Encoder()
        self._reader.request(request)
        # Each database has torch's threads for itself; here it shares them with the functions.
        threads = torch.get_num_threads()
        answer = execute(self._session, request)
        torch.set_num_threads(threads)
        assert not isinstance(answer, Waiter), "no worker waits in a database"
        if self._session.leaving:
            return b""
        encoder.add(answer)
        return b"".join(encoder.take())

    def _receive(self, target: memoryview, _size: int, _flags: int) -> int:
        return self._requests.readinto(target)
