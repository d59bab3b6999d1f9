# ruff: noqa: ARG001 (all handlers have one signature)
"""Commands about the connection and the server: HELLO, AUTH, CLIENT, INFO, MULTI, SHUTDOWN, …"""

import hmac
import os
import time

from slslab.tensordb import session as table
from slslab.tensordb.globs import matches
from slslab.tensordb.replies import NULL_ARRAY, OK, CommandError, Reply, Simple
from slslab.tensordb.resp import MAX_BULK
from slslab.tensordb.session import SYNTAX, Session, command, whole, wrong_arity
from slslab.tensordb.store import Waiter
from slslab.version import __version__

# The version in RedisAI's last image, whose commands and replies are implemented here.
REDIS_VERSION = "6.2.7"
STARTED = time.monotonic()


def _authenticate(session: Session, user: bytes, password: bytes) -> None:
    expected = session.context.password
    # Without a password configured, any is accepted.
    if user != b"default" or (expected is not None and not hmac.compare_digest(password, expected)):
        raise CommandError("WRONGPASS invalid username-password pair or user is disabled.")
    session.authenticated = True


@command("auth", -2, stranger=True)
def _auth(session: Session, args: list[bytes]) -> Reply:
    if len(args) > 2:
        raise CommandError(SYNTAX)
    if len(args) == 1 and session.context.password is None:
        raise CommandError(
            "ERR AUTH <password> called without any password configured for the default user. "
            "Are you sure your configuration is correct?"
        )
    _authenticate(session, *(args if len(args) == 2 else (b"default", args[0])))
    return OK


@command("hello", -1, stranger=True)
def _hello(session: Session, args: list[bytes]) -> Reply:
    protocol, name = session.protocol, session.name
    options = list(args)
    if options:
        try:
            protocol = whole(options.pop(0))
        except CommandError:
            raise CommandError("ERR Protocol version is not an integer or out of range") from None
        if protocol not in (2, 3):
            raise CommandError("NOPROTO unsupported protocol version")
    while options:
        # A pattern binds its names even if its guard then fails, so the rest has a name of its own.
        match options:
            case [word, user, password, *rest] if word.upper() == b"AUTH":
                _authenticate(session, user, password)
            case [word, name, *rest] if word.upper() == b"SETNAME":
                _check_name(name)
            case _:
                raise CommandError(f"ERR Syntax error in HELLO option '{options[0].decode(errors='replace')}'")
        options = rest
    if not session.authenticated:
        raise CommandError(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH "
            "<user> <pass> option can be used to authenticate the client and select the RESP protocol version at the "
            "same time"
        )
    session.protocol, session.name = protocol, name
    return {
        b"server": "redis",
        b"version": REDIS_VERSION,
        b"proto": protocol,
        b"id": session.id,
        b"mode": "standalone",
        b"role": "master",
        b"modules": [],
    }


@command("ping", -1)
def _ping(session: Session, args: list[bytes]) -> Reply:
    if len(args) > 1:
        raise wrong_arity("ping")
    return args[0] if args else Simple("PONG")


@command("echo", 2)
def _echo(session: Session, args: list[bytes]) -> Reply:
    return args[0]


@command("select", 2)
def _select(session: Session, args: list[bytes]) -> Reply:
    if whole(args[0]) != 0:
        raise CommandError("ERR DB index is out of range")
    return OK


@command("quit", -1, stranger=True, immediate=True)
def _quit(session: Session, args: list[bytes]) -> Reply:
    session.leaving = True
    return OK


@command("reset", 1, stranger=True, immediate=True)
def _reset(session: Session, args: list[bytes]) -> Reply:
    session.transaction, session.transaction_failed = None, False
    session.protocol, session.name = 2, b""
    session.authenticated = session.context.password is None
    return Simple("RESET")


@command("shutdown", -1, immediate=True, unlocked=True)
def _shutdown(session: Session, args: list[bytes]) -> Reply:
    if any(arg.upper() not in (b"NOSAVE", b"SAVE", b"NOW", b"FORCE") for arg in args):
        raise CommandError(SYNTAX)
    session.leaving = True
    session.context.shut_down()
    return None


def _check_name(name: bytes) -> None:
    if any(not 33 <= character <= 126 for character in name):
        raise CommandError("ERR Client names cannot contain spaces, newlines or special characters.")


@command("client", -2)
def _client(session: Session, args: list[bytes]) -> Reply:
    match [args[0].upper(), *args[1:]]:
        case [b"ID"]:
            return session.id
        case [b"GETNAME"]:
            return session.name or None
        case [b"SETNAME", name]:
            _check_name(name)
            session.name = name
            return OK
        case [b"SETINFO", attribute, value]:
            if attribute.upper() not in (b"LIB-NAME", b"LIB-VER"):
                raise CommandError(f"ERR Unrecognized option '{attribute.decode(errors='replace')}'")
            _check_name(value)
            return OK
        case [b"INFO"]:
            return _describe(session)
        case [b"LIST"]:
            return b"".join(_describe(client) for client in list(session.context.clients.values()))
    raise _unknown_subcommand("client", args[0])


def _describe(session: Session) -> bytes:
    return b"id=%d addr=%s name=%s db=0 resp=%d\n" % (
        session.id,
        session.address.encode(),
        session.name,
        session.protocol,
    )


def _unknown_subcommand(name: str, subcommand: bytes) -> CommandError:
    return CommandError(
        f"ERR Unknown subcommand or wrong number of arguments for '{subcommand[:128].decode(errors='replace')}'. "
        f"Try {name.upper()} HELP."
    )


@command("info", -1)
def _info(session: Session, args: list[bytes]) -> Reply:
    store = session.store
    sections: dict[str, dict[str, object]] = {
        "server": {
            "redis_version": REDIS_VERSION,
            "tensordb_version": __version__,
            "process_id": os.getpid(),
            "run_id": store.id,
            "tcp_port": session.context.port,
            "uptime_in_seconds": int(time.monotonic() - STARTED),
        },
        "clients": {"connected_clients": len(session.context.clients), "blocked_clients": store.blocked},
        "memory": {
            "used_memory": store.used + store.reserved,
            "used_memory_peak": store.peak,
            "maxmemory": store.maxmemory,
            "maxmemory_policy": "noeviction",
        },
        "keyspace": {
            "db0": f"keys={len(store.table)},expires={sum(e.expires is not None for e in store.table.values())}"
        },
    }
    names = {arg.decode(errors="replace").lower() for arg in args}
    if not store.table:
        sections["keyspace"] = {}
    default = set(sections)
    with session.context.counting:
        calls = sorted(session.context.calls.items())
    sections["commandstats"] = {f"cmdstat_{name}": f"calls={number}" for name, number in calls}
    if names & {"all", "everything"}:
        names = set(sections)
    elif not names or "default" in names:
        names |= default
    return "\r\n".join(
        f"# {name.capitalize()}\r\n" + "".join(f"{field}:{value}\r\n" for field, value in fields.items())
        for name, fields in sections.items()
        if name in names
    )


@command("command", -1)
def _command(session: Session, args: list[bytes]) -> Reply:
    match [arg.upper() for arg in args]:
        case []:
            return [_row(entry) for entry in table.TABLE.values()]
        case [b"COUNT", *_]:
            return len(table.TABLE)
        case [b"DOCS", *_]:
            return {}
        case [b"INFO", *_]:
            return [_row(table.TABLE.get(name.lower())) for name in args[1:]]
    raise _unknown_subcommand("command", args[0])


def _row(entry: table.Command | None) -> Reply:
    """Return name, arity, flags, and the places of keys, which are not given; None for an unknown command."""
    return None if entry is None else [entry.name, entry.arity, [Simple("denyoom")] if entry.grows else [], 0, 0, 0]


@command("config", -2)
def _config(session: Session, args: list[bytes]) -> Reply:
    if args[0].upper() != b"GET" or len(args) < 2:
        raise _unknown_subcommand("config", args[0])
    values: dict[bytes, Reply] = {
        b"maxmemory": str(session.store.maxmemory),
        b"maxmemory-policy": "noeviction",
        b"proto-max-bulk-len": str(MAX_BULK),
        b"databases": "1",
        b"save": "",
        b"appendonly": "no",
    }
    return {
        name: value for name, value in values.items() if any(matches(pattern.lower(), name) for pattern in args[1:])
    }


@command("memory", -2)
def _memory(session: Session, args: list[bytes]) -> Reply:
    if args[0].upper() != b"USAGE" or len(args) < 2:
        raise _unknown_subcommand("memory", args[0])
    entry = session.store.table.get(args[1])
    return None if entry is None else entry.size


@command("time", 1)
def _time(session: Session, args: list[bytes]) -> Reply:
    seconds, rest = divmod(time.time_ns() // 1000, 1_000_000)
    return [str(seconds), str(rest)]


@command("multi", 1, immediate=True)
def _multi(session: Session, args: list[bytes]) -> Reply:
    if session.transaction is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    session.transaction, session.transaction_failed = [], False
    return OK


@command("discard", 1, immediate=True)
def _discard(session: Session, args: list[bytes]) -> Reply:
    if session.transaction is None:
        raise CommandError("ERR DISCARD without MULTI")
    session.transaction = None
    return OK


@command("exec", 1, immediate=True)
def _exec(session: Session, args: list[bytes]) -> Reply:
    queued, session.transaction = session.transaction, None
    if queued is None:
        raise CommandError("ERR EXEC without MULTI")
    if session.transaction_failed:
        raise CommandError("EXECABORT Transaction discarded because of previous errors.")
    session.executing = True
    try:
        replies = [table.call(session, entry, arguments) for entry, arguments in queued]
    finally:
        session.executing = False
    return [NULL_ARRAY if isinstance(reply, Waiter) else reply for reply in replies]
