"""Hold a client's session and the table of commands; check and execute requests."""

import socket
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from slslab.installation import lacking
from slslab.tensordb.executions import Report
from slslab.tensordb.lua_engine import Engine
from slslab.tensordb.replies import QUEUED, Blob, CommandError, Reply, shown
from slslab.tensordb.resp import Request, integer
from slslab.tensordb.store import PeerClosed, Store, Waiter

NOT_INTEGER = "ERR value is not an integer or out of range"
SYNTAX = "ERR syntax error"
LONGEST_NAME = 64
MOST_SHOWN = 128
AI = b"ai."


@dataclass(frozen=True)
class Context:
    """State shared by a peer's sessions.

    `report` is called for every script execution with its name and usage. `calls` counts executed commands by name, for
    `INFO commandstats`; `counting` guards it.
    """

    store: Store
    peer: int
    password: bytes | None
    lua: Engine
    report: Report
    clients: "dict[int, Session]"
    shut_down: Callable[[], None]
    calls: Counter[str] = field(default_factory=Counter)
    counting: threading.Lock = field(default_factory=threading.Lock)


class Session:
    """One connection's state."""

    def __init__(self, context: Context, number: int, connection: socket.socket, address: str) -> None:
        self.context = context
        self.socket = connection
        self.store = context.store
        self.id = number
        self.address = address
        self.name = b""
        self.protocol = 2
        self.authenticated = context.password is None
        self.transaction: list[tuple[Command, list[Any]]] | None = None
        self.transaction_failed = False
        self.executing = False  # a transaction, in which nothing blocks
        self.leaving = False  # the connection ends after the reply


# A client may have to wait instead of getting a reply.
Handler = Callable[..., "Reply | Waiter"]


@dataclass(frozen=True)
class Command:
    """An entry of the table; `arity` counts the name and is negative for a minimum, as in Redis.

    `handler` takes the session and the arguments. grows: refused when memory is full. raw: takes large arguments as
    memoryview instead of bytes. stranger: allowed before AUTH. unlocked: locks the store itself, and only where
    necessary. immediate: not queued by MULTI. `subcommands` holds the entries of a command such as CLIENT; a subcommand
    is named `client|id`, and its arguments follow its two `words`.
    """

    name: str
    arity: int
    handler: Handler
    grows: bool = False
    raw: bool = False
    stranger: bool = False
    unlocked: bool = False
    immediate: bool = False
    subcommands: "dict[bytes, Command]" = field(default_factory=dict)
    words: int = 1


TABLE: dict[bytes, Command] = {}


def command(
    name: str, arity: int, *, bound: Mapping[str, Any] | None = None, **properties: Any
) -> Callable[[Handler], Handler]:
    """Register a handler in the table under a name; `bound` are further arguments for the handler under this name."""

    def enter(handler: Handler) -> Handler:
        container, _, subcommand = name.encode().partition(b"|")
        words = 2 if subcommand else 1
        entry = Command(name, arity, partial(handler, **(bound or {})), words=words, **properties)
        if subcommand:
            TABLE.setdefault(container, Command(container.decode(), -2, _never)).subcommands[subcommand] = entry
        else:
            TABLE[container] = entry
        return handler

    return enter


def _never(_session: Session, _args: list[bytes]) -> Reply:
    raise AssertionError("a command of subcommands is never executed itself")


def wrong_arity(name: str) -> CommandError:
    """Return Redis's error for too few or too many arguments."""
    return CommandError(f"ERR wrong number of arguments for '{name}' command")


def whole(argument: Blob) -> int:
    """Parse an integer argument; Redis's CommandError if it isn't one."""
    try:
        return integer(argument)
    except ValueError:
        raise CommandError(NOT_INTEGER) from None


def added(old: Blob | None, increment: int, complaint: str) -> int:
    """Return the integer in a value (None: 0) plus an increment; CommandError on overflow, or for another value."""
    try:
        number = (0 if old is None else integer(old)) + increment
    except ValueError:
        raise CommandError(complaint) from None
    if not -(1 << 63) <= number < 1 << 63:
        raise CommandError("ERR increment or decrement would overflow")
    return number


def execute(session: Session, request: Request) -> "Reply | Waiter":
    """Check a request, and execute or queue it; an error becomes the reply."""
    try:
        release(session.store, request)
        entry = _checked(session, request)
        session.context.lua.wait(entry.name)
    except CommandError as error:
        session.transaction_failed = True
        if bytes(request.arguments[0][:LONGEST_NAME]).lower() == b"exec":
            session.transaction = None
            return CommandError(f"EXECABORT Transaction discarded because of: {str(error).removeprefix('ERR ')}")
        return CommandError(str(error))
    arguments = request.arguments[entry.words :]
    if session.transaction is not None and not entry.immediate:
        session.transaction.append((entry, arguments))
        return QUEUED
    return call(session, entry, arguments)


def call(session: Session, entry: Command, arguments: list[Any]) -> "Reply | Waiter":
    """Execute a checked command; an error becomes the reply.

    The reply is a new error, because the original's traceback would keep the arguments alive in a reference cycle.
    """
    with session.context.counting:
        session.context.calls[entry.name] += 1
    try:
        if not entry.raw:
            arguments = [bytes(argument) for argument in arguments]
        if entry.unlocked:
            return entry.handler(session, arguments)
        session.context.lua.lock(session.store, entry.name)
        try:
            with session.store:
                if entry.grows:
                    session.store.require(sum(map(len, arguments)))
                return entry.handler(session, arguments)
        finally:
            session.store.lock.release()
    except CommandError as error:
        return CommandError(str(error))
    except PeerClosed:
        raise
    except MemoryError:
        return CommandError("OOM the host has no memory for this")
    except Exception:
        # A defect of ours must not cost the other clients their data.
        traceback.print_exc(file=sys.stderr)
        return CommandError(f"ERR internal error in '{entry.name}'")


def admit(session: Session, request: Request, length: int) -> None:
    """Reserve memory for a large argument before it is received; CommandError if there is too little."""
    arguments = request.arguments
    entry = TABLE.get(bytes(arguments[0]).lower()) if arguments else None
    if entry is not None and entry.grows:
        with session.store as store:
            store.reserve(length)
            request.reserved += length


def release(store: Store, request: Request) -> None:
    """Release the memory that `admit` has reserved, if any."""
    if request.reserved:
        with store:
            store.reserve(-request.reserved)
            request.reserved = 0


def find(request: Sequence[Blob]) -> Command:
    """Return the command of a request; CommandError for an unknown one or the wrong number of arguments."""
    entry = TABLE.get(bytes(request[0]).lower())
    if entry is None:
        raise _unknown(request)
    count = len(request)
    if entry.subcommands and count > 1:
        entry = entry.subcommands.get(bytes(request[1][:LONGEST_NAME]).lower())
        if entry is None:
            name = bytes(request[0]).decode().upper()
            raise CommandError(f"ERR unknown subcommand '{shown(request[1])}'. Try {name} HELP.")
    if count != entry.arity if entry.arity > 0 else count < -entry.arity:
        raise wrong_arity(entry.name)
    return entry


def _checked(session: Session, request: Request) -> Command:
    words = request.arguments
    # A refused request has kept only its name, which is known.
    entry = find(words) if request.refusal is None else TABLE[bytes(words[0]).lower()]
    if not session.authenticated and not entry.stranger:
        raise CommandError("NOAUTH Authentication required.")
    if request.refusal is not None:
        raise request.refusal
    return entry


def _unknown(request: Sequence[Blob]) -> CommandError:
    name = bytes(request[0][:LONGEST_NAME]).lower()
    if name.startswith(AI) and not any(known.startswith(AI) for known in TABLE):
        return CommandError(f"ERR RedisAI's commands need numpy and torch: {lacking('torch').hint}")
    args = b""
    for argument in request[1:]:
        if len(args) >= MOST_SHOWN:
            break
        args += b"'%s' " % bytes(argument[: MOST_SHOWN - len(args)]).partition(b"\0")[0]
    beginning = args.decode(errors="surrogateescape")
    return CommandError(f"ERR unknown command '{shown(request[0])}', with args beginning with: {beginning}")
