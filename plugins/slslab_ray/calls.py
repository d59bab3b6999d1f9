"""Call the methods of a node, over one mutual TLS connection per node on which both ends send values in order.

Ray starts the actor that holds a node's environments (`slslab_ray.node`) and gives it the key. The node then connects
to the emulator, which calls it; calls through Ray itself would take milliseconds longer
(`benchmarks/remote_invoke.py`). A value is pickled and sent after its length. Only a holder of the key can connect.
"""

import asyncio
import pickle
import ssl
import struct
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import count
from pathlib import Path
from typing import Any, cast

from slslab.errors import HostError, SlslabError
from slslab.stack.mutual_tls import mutual_context

LENGTH = struct.Struct("!Q")
# A host that is up answers sooner; a firewall doesn't answer at all.
CONNECT_S = 10.0
# Reports from a node within this time are sent together.
TOGETHER_S = 0.02

# Reports from a node: an environment's id with a trace record by the node's clock, or with bytes of its log.
Happened = Sequence[tuple[str, dict[str, Any] | bytes]]


class CallError(Exception):
    """A method has failed; the text says why."""


class Tasks(set[asyncio.Task[Any]]):
    """Running tasks that are not awaited. Without a reference to them, they might be collected as garbage."""

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine as a task."""
        task = asyncio.ensure_future(coroutine)
        self.add(task)
        task.add_done_callback(self.discard)


class Connection(asyncio.Protocol):
    """One end: sends values, and calls `take` with each arriving value."""

    def __init__(self) -> None:
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for sending."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take the values that have arrived completely."""
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
        """Process a value from the other end."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection at once, dropping unsent data."""
        self._transport.abort()


class Caller(Connection):
    """The emulator's end; `arrived` is called with it and the node's expected name.

    `happened` receives all reports of the node before the answers that follow them. `ended` is called with the reason
    when the connection has ended.
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
        """Take the node's name, a report, or an answer; the caller of that may have given up."""
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
        """End the running calls."""
        self._why = f"its connection has ended: {error}" if error else "its connection has ended"
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionError(self._why))
        self.ended(self._why)


class Listener:
    """The address of this host where nodes connect, with its port once it is open."""

    def __init__(self, host: str, key: Path) -> None:
        self.address = (host, 0)
        self._key = key
        self._expected: dict[str, asyncio.Future[Caller]] = {}
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen; HostError if the address isn't available."""
        context = mutual_context(self._key, ssl.PROTOCOL_TLS_SERVER)
        host, _ = self.address
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: Caller(self._arrived), host, 0, ssl=context
            )
        except OSError as error:
            hint = "start Ray on this machine with an address of its own (`ray start --node-ip-address`)."
            raise HostError(f"Nodes can't connect to {host}: {error.strerror}.", hint) from error
        self.address = (host, self._server.sockets[0].getsockname()[1])

    def expect(self, name: str) -> asyncio.Future[Caller]:
        """Return a future for the connection of the node with this name."""
        self._expected[name] = asyncio.get_running_loop().create_future()
        return self._expected[name]

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    def _arrived(self, caller: Caller, name: str) -> None:
        expected = self._expected.pop(name, None)
        if expected is None or expected.done():
            caller.close()
        else:
            expected.set_result(caller)


class Answerer(Connection):
    """A node's end, which answers with its methods' results."""

    def __init__(self, name: str, methods: object) -> None:
        super().__init__()
        self._name = name
        self._methods = methods
        self._happened: list[tuple[str, dict[str, Any] | bytes]] = []
        self._answering = Tasks()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send this node's name."""
        super().connection_made(transport)
        self._transport.write(_packed(self._name))

    def happen(self, environment: str, what: dict[str, Any] | bytes) -> None:
        """Report an event within TOGETHER_S, together with further events until then."""
        if not self._happened:
            asyncio.get_running_loop().call_later(TOGETHER_S, self._tell)
        self._happened.append((environment, what))

    def take(self, value: Any) -> None:
        """Start the requested call."""
        self._answering.start(self._answer(*value))

    async def _answer(self, number: int, method: str, arguments: Sequence[Any]) -> None:
        try:
            called: Awaitable[Any] = getattr(self._methods, method)(*arguments)
            answer = _packed((number, "", await called))
        except Exception as error:
            answer = _packed((number, _told(error), None))
        self._tell()  # reports go before the answer
        self._transport.write(answer)

    def _tell(self) -> None:
        if self._happened:
            self._transport.write(_packed(self._happened))
            self._happened = []


async def answer(address: tuple[str, int], key: Path, name: str, methods: object) -> Answerer:
    """Connect to an emulator's address and answer its calls with these methods; HostError if it can't be reached."""
    context = mutual_context(key, ssl.PROTOCOL_TLS_CLIENT)
    host, port = address
    connecting = asyncio.get_running_loop().create_connection(lambda: Answerer(name, methods), host, port, ssl=context)
    try:
        _, answerer = await asyncio.wait_for(connecting, CONNECT_S)
    except (TimeoutError, OSError) as error:
        why = f"no answer within {CONNECT_S:.0f} s" if isinstance(error, TimeoutError) else f"{error}"
        raise HostError(
            f"it can't reach the emulator at {host}:{port}: {why}.", "check for a firewall in between."
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
