"""Call the methods of a node: one connection for each, by mutual TLS, on which both ends send values in order.

Ray starts what holds a node's environments (`slslab_ray.node`) and brings it the key. The node then connects to the
emulator, which calls it: by Ray itself a call takes milliseconds more (`benchmarks/remote_invoke.py`). A value is
pickled, after its length; the holder of the key is the only one who is heard.
"""

import asyncio
import pickle
import ssl
import struct
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, cast

from slslab.errors import HostError, SlslabError
from slslab.stack.mutual_tls import mutual_context

LENGTH = struct.Struct("!Q")
# A host that is up answers sooner; a firewall does not at all.
CONNECT_S = 10.0
# What happens on a node within this time travels together.
TOGETHER_S = 0.02

# What has happened on a node: the environment of each, with a trace record of the node's clock, or bytes of its log.
Happened = Sequence[tuple[str, dict[str, Any] | bytes]]


class CallError(Exception):
    """A method has failed; the text says why."""


class Connection(asyncio.Protocol):
    """One end: sends values, and has `take` called with each that arrives."""

    def __init__(self) -> None:
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note what to write to."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take the values that have arrived whole."""
        self._received += data
        begin = 0
        while len(self._received) >= (start := begin + LENGTH.size):
            end = start + LENGTH.unpack_from(self._received, begin)[0]
            if len(self._received) < end:
                break
            self.take(pickle.loads(self._received[start:end]))
            begin = end
        del self._received[:begin]

    def take(self, value: Any) -> None:
        """Process a value of the other end."""
        raise NotImplementedError

    def close(self) -> None:
        """End the connection at once, whatever is still to be sent."""
        self._transport.abort()


class Caller(Connection):
    """The emulator's end; `arrived` is called with it and the name by which the node is expected.

    `happened` takes what has happened on the node until the answers that follow, and `ended` is called when the
    connection has ended, with why.
    """

    def __init__(self, arrived: "Callable[[Caller, str], object]") -> None:
        super().__init__()
        self.happened: Callable[[Happened], object] = lambda _happened: None
        self.ended: Callable[[str], object] = lambda _why: None
        self._arrived = arrived
        self._numbers = count()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._why = ""

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method; CallError if it fails, ConnectionError if the connection has ended."""
        if self._why:
            raise ConnectionError(self._why)
        number = next(self._numbers)
        self._transport.write(_packed((number, method, arguments)))
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            return await answer
        finally:
            del self._answers[number]

    def take(self, value: Any) -> None:
        """Take the node's name, what has happened on it, or an answer, which may have nobody who waits for it."""
        if isinstance(value, str):
            self._arrived(self, value)
        elif isinstance(value, list):
            self.happened(value)
        else:
            number, failure, result = value
            answer = self._answers.get(number)
            if answer is None or answer.done():
                return
            if failure:
                answer.set_exception(CallError(failure))
            else:
                answer.set_result(result)

    def connection_lost(self, error: Exception | None) -> None:
        """End the calls that are under way."""
        self._why = f"its connection has ended: {error}" if error else "its connection has ended"
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionError(self._why))
        self.ended(self._why)


class Listener:
    """Where nodes connect to: an address of this host, with its port once it is open."""

    def __init__(self, host: str, key: Path) -> None:
        self.address = (host, 0)
        self._key = key
        self._expected: dict[str, asyncio.Future[Caller]] = {}
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen; HostError if the address cannot be had."""
        context = mutual_context(self._key, ssl.PROTOCOL_TLS_SERVER)
        host, _ = self.address
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: Caller(self._arrived), host, 0, ssl=context
            )
        except OSError as error:
            hint = "start Ray on this machine with an address of its own (`ray start --node-ip-address`)."
            raise HostError(f"Nodes cannot connect to {host}: {error.strerror}.", hint) from error
        self.address = (host, self._server.sockets[0].getsockname()[1])

    def expect(self, name: str) -> asyncio.Future[Caller]:
        """Return what becomes the connection of the node that says this name."""
        self._expected[name] = asyncio.get_running_loop().create_future()
        return self._expected[name]

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    def _arrived(self, caller: Caller, name: str) -> None:
        expected = self._expected.pop(name, None)
        if expected is None or expected.done():
            caller.close()
        else:
            expected.set_result(caller)


class Answerer(Connection):
    """A node's end, which answers with what its methods return."""

    def __init__(self, name: str, methods: object) -> None:
        super().__init__()
        self._name = name
        self._methods = methods
        self._happened: list[tuple[str, dict[str, Any] | bytes]] = []
        self._answering: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say which node this is."""
        super().connection_made(transport)
        self._transport.write(_packed(self._name))

    def happen(self, environment: str, what: dict[str, Any] | bytes) -> None:
        """Tell of something within TOGETHER_S, with what else happens until then."""
        if not self._happened:
            asyncio.get_running_loop().call_later(TOGETHER_S, self._tell)
        self._happened.append((environment, what))

    def take(self, value: Any) -> None:
        """Begin what was asked for."""
        answering = asyncio.ensure_future(self._answer(*value))
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)

    async def _answer(self, number: int, method: str, arguments: Sequence[Any]) -> None:
        try:
            called: Awaitable[Any] = getattr(self._methods, method)(*arguments)
            answer = _packed((number, "", await called))
        except Exception as error:
            answer = _packed((number, _told(error), None))
        self._tell()  # before the answer, which is the end of it
        self._transport.write(answer)

    def _tell(self) -> None:
        if self._happened:
            self._transport.write(_packed(self._happened))
            self._happened = []


async def answer(address: tuple[str, int], key: Path, name: str, methods: object) -> Answerer:
    """Connect to an emulator's address and answer its calls with these methods; HostError if it cannot be reached."""
    context = mutual_context(key, ssl.PROTOCOL_TLS_CLIENT)
    host, port = address
    connecting = asyncio.get_running_loop().create_connection(lambda: Answerer(name, methods), host, port, ssl=context)
    try:
        _, answerer = await asyncio.wait_for(connecting, CONNECT_S)
    except (TimeoutError, OSError) as error:
        why = f"no answer within {CONNECT_S:.0f} s" if isinstance(error, TimeoutError) else f"{error}"
        raise HostError(
            f"it does not reach the emulator at {host}:{port}: {why}.", "see that no firewall is in between."
        ) from error
    return answerer


def _packed(value: Any) -> bytes:
    body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


def _told(error: Exception) -> str:
    if isinstance(error, SlslabError):
        return error.message.rstrip(".")
    text = str(error).partition("\n")[0].rstrip(".")
    return text if isinstance(error, OSError) and text else f"{type(error).__name__}: {text}"
