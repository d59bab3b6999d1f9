"""A client's session, the table of commands, and how a request is checked and executed."""

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slslab.tensordb.replies import QUEUED, Blob, CommandError, Reply
from slslab.tensordb.resp import Request, integer
from slslab.tensordb.scripts import Settings, Usage
from slslab.tensordb.store import PeerClosed, Store, Waiter
from slslab.tensordb.tensors import parse_header

NOT_INTEGER = "ERR value is not an integer or out of range"
SYNTAX = "ERR syntax error"


@dataclass(frozen=True)
class Blocked:
    """Instead of a reply: the client waits, `timeout_s` at most (0: for ever)."""

    waiter: Waiter
    timeout_s: float


@dataclass(frozen=True)
class Context:
    """What all sessions of a peer share. `report` is told of every execution of a script: what and how much."""

    store: Store
    peer: int
    port: int
    password: bytes | None
    scripts: Settings
    report: Callable[[int, str, Usage], None]
    clients: "dict[int, Session]"
    shut_down: Callable[[], None]


class Session:
    """One connection's state."""

    def __init__(self, context: Context, number: int, address: str) -> None:
        self.context = context
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


Handler = Callable[[Session, list[Any]], "Reply | Blocked"]


@dataclass(frozen=True)
class Command:
    """An entry of the table; `arity` counts the name and is negative for a minimum, as in Redis.

    grows: refused when memory is full. raw: takes large arguments as memoryview instead of bytes. stranger: allowed
    before AUTH. unlocked: locks the store itself, and only where it must. immediate: not queued by MULTI.
    """

    name: str
    arity: int
    handler: Handler
    grows: bool = False
    raw: bool = False
    stranger: bool = False
    unlocked: bool = False
    immediate: bool = False


TABLE: dict[bytes, Command] = {}


def command(name: str, arity: int, **properties: bool) -> Callable[[Handler], Handler]:
    """Enter a handler into the table under a name."""

    def enter(handler: Handler) -> Handler:
        TABLE[name.encode()] = Command(name, arity, handler, **properties)
        return handler

    return enter


def wrong_arity(name: str) -> CommandError:
    """Redis's error for too few or too many arguments."""
    return CommandError(f"ERR wrong number of arguments for '{name}' command")


def whole(argument: Blob) -> int:
    """An integer argument; Redis's error if it is none."""
    try:
        return integer(argument)
    except ValueError:
        raise CommandError(NOT_INTEGER) from None


def execute(session: Session, request: Request) -> "Reply | Blocked":
    """Check a request and execute or queue it; its error is the reply."""
    try:
        if request.reserved:
            release(session.store, request)
        found = _find(session, request)
        if session.transaction is not None and not found.immediate:
            session.transaction.append((found, request.arguments[1:]))
            return QUEUED
        return call(session, found, request.arguments[1:])
    except CommandError as error:
        return error


def call(session: Session, found: Command, arguments: list[Any]) -> "Reply | Blocked":
    """Execute a command that has been checked; its error is the reply."""
    try:
        if not found.raw:
            arguments = [bytes(argument) for argument in arguments]
        if found.unlocked:
            return found.handler(session, arguments)
        with session.store:
            if found.grows:
                session.store.require(sum(map(len, arguments)))
            return found.handler(session, arguments)
    except CommandError as error:
        return error
    except PeerClosed:
        raise
    except MemoryError:
        return CommandError("OOM the host has no memory for this")
    except Exception:
        # A fault of ours must not take the other clients' data with it.
        traceback.print_exc(file=sys.stderr)
        return CommandError(f"ERR internal error in '{found.name}'")


def admit(session: Session, request: Request, count: int, length: int) -> None:
    """Check a request of which a large argument is about to be received, and set the memory for it aside.

    Raises CommandError if it will not be accepted anyhow; then no memory is taken for it.
    """
    given = request.arguments
    found = TABLE.get(bytes(given[0]).lower()) if given else None
    if found is None or not found.grows:
        return
    if found.name == "ai.tensorset" and len(given) == count - 1 >= 4:
        header = parse_header(given[1:])
        if header.format == "BLOB" and header.rest == len(given) - 1 and header.bytes != length:
            raise CommandError("ERR data length does not match tensor shape and type")
    with session.store as store:
        store.reserve(length)
        request.reserved += length


def release(store: Store, request: Request) -> None:
    """Give back what `admit` has set aside."""
    with store:
        store.reserve(-request.reserved)
        request.reserved = 0


def _find(session: Session, request: Request) -> Command:
    name = bytes(request.arguments[0])
    found = TABLE.get(name.lower())
    try:
        if found is None:
            raise _unknown(name, request.arguments[1:])
        count = len(request.arguments)
        if request.refusal is None and (count != found.arity if found.arity > 0 else count < -found.arity):
            raise wrong_arity(found.name)
        if not session.authenticated and not found.stranger:
            raise CommandError("NOAUTH Authentication required.")
        if request.refusal is not None:
            raise request.refusal
    except CommandError:
        session.transaction_failed = True
        raise
    return found


def _unknown(name: bytes, arguments: Sequence[Blob]) -> CommandError:
    shown = "".join(f"'{bytes(argument[:128]).decode(errors='replace')}' " for argument in arguments[:20])[:160]
    return CommandError(
        f"ERR unknown command '{name[:128].decode(errors='replace')}', with args beginning with: {shown}"
    )
