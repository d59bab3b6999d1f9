"""Run a peer's scripts in a process of their own, so that one that never ends or exhausts memory harms nothing else.

`python -m slslab.tensordb.lua_process DESCRIPTOR` is such a process; it ends when its socket closes.
redis.io/docs/latest/develop/programmability/lua-api, "Data type conversion", says what replies become in Lua, and back.
"""

import os
import pickle
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from multiprocessing.connection import Connection
from typing import Any, NoReturn, cast

from slslab.host.connected_process import ConnectedProcess
from slslab.tensordb.executions import LIMIT_S
from slslab.tensordb.lua.arguments import OutOfMemory, ScriptError, Value
from slslab.tensordb.replies import LINE_BREAKS, CommandError, NullArray, Reply, Simple

LOOK_S = 0.1
# assumed: the most a script may send at once, its reply or a command's words.
MESSAGE_BYTES = 2 * 1024**3
SMALLEST, LARGEST = -(1 << 63), (1 << 63) - 1


@dataclass
class Run:
    """A running script. `call` executes its commands, `given` counts their replies' bytes, `cpu_ns` is Lua's CPU
    time."""

    call: Callable[[Sequence[bytes]], Reply]
    started: float = field(default_factory=time.monotonic)
    ended: threading.Event = field(default_factory=threading.Event)
    wrote: bool = False
    given: int = 0
    cpu_ns: int = 0
    reason: str | None = None

    def execute(self, words: Sequence[bytes]) -> tuple[bool, Value]:
        """Execute a command; return whether it succeeded and its reply as Lua's value, or the text of its error."""
        reply = self.call(words)
        if isinstance(reply, CommandError):
            return False, str(reply).strip("\r\n").encode(errors="surrogateescape").translate(LINE_BREAKS)
        return True, to_lua(reply)

    def over(self) -> str | None:
        """Return why the script must end, or None."""
        if self.reason is None and time.monotonic() - self.started > LIMIT_S:
            remains = "; its writes remain" if self.wrote else ""
            self.reason = f"the script ran longer than {LIMIT_S:g} s{remains}"
        return self.reason


def to_lua(reply: Reply) -> Value:
    """Return a reply as a script sees it, by RESP2, with tables as lists and dicts."""
    if isinstance(reply, (bytes, int)):
        return reply
    if isinstance(reply, memoryview):
        return bytes(reply)
    if isinstance(reply, str):
        return reply.encode()
    if reply is None or isinstance(reply, NullArray):
        return False
    if isinstance(reply, Simple):
        return {b"ok": reply.text.encode()}
    if isinstance(reply, CommandError):
        return {b"err": str(reply).encode()}
    if isinstance(reply, float):
        return b"%.17g" % reply
    members = chain.from_iterable(reply.items()) if isinstance(reply, Mapping) else reply
    return [to_lua(member) for member in members]


def from_lua(tokens: Iterator[Value]) -> Reply:
    """Return a script's result as a reply; it arrives as sandbox.lua's tokens."""
    kind, value = next(tokens).decode(), next(tokens)
    match kind:
        case "string":
            return bytes(value)
        case "number":
            # As C casts a double: numbers that don't fit into 64 bits become the smallest integer.
            return int(value) if SMALLEST <= value <= LARGEST and int(value) <= LARGEST else SMALLEST
        case "boolean":
            return 1 if value else None
        case "err":
            return CommandError(value.decode(errors="surrogateescape"))
        case "ok":
            return Simple(value.translate(LINE_BREAKS).decode(errors="replace"))
        case "list":
            return [from_lua(tokens) for _ in range(value)]
    return None


class ScriptProcess(ConnectedProcess):
    """The process of a peer's scripts, which runs them one at a time; `memory` is Lua's limit, bytes."""

    def __init__(self, memory: int) -> None:
        super().__init__(__name__)
        self._arrival = select.poll()  # Connection.poll makes one on each call
        self._arrival.register(self.connection.fileno(), select.POLLIN)
        self._compiled: set[str] = set()
        self._send(memory)

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self.connection.closed

    def compile(self, sha: str, body: bytes) -> None:
        """Compile a script if necessary; ScriptError if it isn't valid, OutOfMemory."""
        if sha not in self._compiled:
            self._send("compile", sha, body)
            (problem,) = self._receive()
            if problem is not None:
                raise ScriptError(problem)
            self._compiled.add(sha)

    def run(self, sha: str, keys: Sequence[bytes], arguments: Sequence[bytes], run: Run) -> Reply:
        """Run a compiled script; return its reply. ScriptError or OutOfMemory if it fails.

        The process ends with a script that must end: no script can prevent that.
        """
        self._send("run", sha, keys, arguments)
        while True:
            if self._arrival.poll(LOOK_S * 1000):
                match self._receive():
                    case "call", words:
                        self._answer(run, words)
                    case "failed", text:
                        raise ScriptError(text)
                    case "done", reply, given, cpu_ns:
                        run.given, run.cpu_ns = given, cpu_ns
                        return cast(Reply, reply)
            if (reason := run.over()) is not None:
                self.close()
                raise ScriptError(f"ERR {reason} script: {sha}")

    def _answer(self, run: Run, words: Sequence[bytes]) -> None:
        try:
            answer = run.execute(words)
        except BaseException:  # the peer has closed, and the script waits for an answer
            self.close()
            raise
        self._send(*answer)

    def _send(self, *message: Any) -> None:
        try:
            self.connection.send_bytes(pickle.dumps(message))
        except OSError:
            self._fail()

    def _receive(self) -> Any:
        try:
            return pickle.loads(self.connection.recv_bytes(MESSAGE_BYTES))
        except (EOFError, OSError):
            self._fail()

    def _fail(self) -> NoReturn:
        self.close()
        raise OutOfMemory


def main() -> None:
    """Compile and run scripts until the socket closes, or a script runs out of memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the database handles Ctrl-C
    connection = Connection(int(sys.argv[1]))
    threading.Thread(target=_end_with_peer, args=(connection.fileno(),), daemon=True).start()
    with suppress(EOFError, OSError, MemoryError, OutOfMemory):
        _serve(connection, *pickle.loads(connection.recv_bytes()))


def _end_with_peer(descriptor: int) -> None:
    """End the process when the peer closes the socket, also inside a script."""
    hang_up = select.poll()
    hang_up.register(descriptor, 0)
    hang_up.poll()
    os._exit(1)


def _serve(connection: Connection, memory: int) -> None:
    from slslab.tensordb.lua.runtime import Runtime

    def send(*message: Any) -> None:
        connection.send_bytes(pickle.dumps(message))

    def call(words: Sequence[bytes]) -> tuple[bool, Value]:
        """Let the peer execute a command for a script."""
        try:
            send("call", words)
            ok, value = pickle.loads(connection.recv_bytes())
        except BaseException:  # it would reach the script as a Python object
            os._exit(1)
        return ok, value

    # Lua enforces its own limit; a message is also in Python's memory, as values and as bytes.
    resource.setrlimit(resource.RLIMIT_AS, (memory + 2 * MESSAGE_BYTES, resource.RLIM_INFINITY))
    runtime = Runtime(call, memory)
    functions: dict[str, Any] = {}
    while True:
        match pickle.loads(connection.recv_bytes()):
            case "compile", sha, body:
                try:
                    functions[sha], problem = runtime.compile(body), None
                except ScriptError as error:
                    problem = str(error)
                send(problem)
            case "run", sha, keys, arguments:
                began_ns = time.process_time_ns()
                try:
                    reply = from_lua(iter(runtime.run(functions[sha], sha, keys, arguments)))
                except ScriptError as error:
                    send("failed", str(error))
                    continue
                send("done", reply, runtime.given, time.process_time_ns() - began_ns)


if __name__ == "__main__":
    main()
