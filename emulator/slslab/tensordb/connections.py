# ruff: noqa: ARG001 (all handlers have one signature)
"""Implement commands about the connection and the server: HELLO, AUTH, CLIENT, INFO, MULTI, SHUTDOWN, …"""

import hmac
import os
from pathlib import Path

from slslab.installation import __version__
from slslab.tensordb import session as table
from slslab.tensordb.replies import NULL_ARRAY, OK, CommandError, Reply, Simple, shown
from slslab.tensordb.session import SYNTAX, Session, command, whole, wrong_arity
from slslab.tensordb.store import Waiter

# The server with the reference replies: tests compare with it, where it is installed.
REDIS_VERSION = "7.0.15"


def _authenticate(session: Session, user: bytes, password: bytes) -> None:
    expected = session.context.password
    # Without a configured password, any is accepted.
    if user != b"default" or (expected is not None and not hmac.compare_digest(password, expected)):
        raise CommandError("WRONGPASS invalid username-password pair or user is disabled.")
    session.authenticated = True


@command("auth", -2, stranger=True, unlocked=True)
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


@command("hello", -1, stranger=True, unlocked=True)
def _hello(session: Session, args: list[bytes]) -> Reply:
    protocol = session.protocol
    options = list(args)
    if options:
        try:
            protocol = whole(options.pop(0))
        except CommandError:
            raise CommandError("ERR Protocol version is not an integer or out of range") from None
        if protocol not in (2, 3):
            raise CommandError("NOPROTO unsupported protocol version")
    while options:
        match options:
            case [word, user, password, *rest] if word.upper() == b"AUTH":
                _authenticate(session, user, password)
                options = rest
            case [word, *_]:
                raise CommandError(f"ERR Syntax error in HELLO option '{shown(word, len(word))}'")
    if not session.authenticated:
        raise CommandError(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH "
            "<user> <pass> option can be used to authenticate the client and select the RESP protocol version at the "
            "same time"
        )
    session.protocol = protocol
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
    number = whole(args[0])
    if not -(1 << 31) <= number < 1 << 31:
        raise CommandError(f"ERR value is out of range, value must between {-(1 << 31)} and {(1 << 31) - 1}")
    if number != 0:
        raise CommandError("ERR DB index is out of range")
    return OK


@command("quit", -1, stranger=True, immediate=True, unlocked=True)
def _quit(session: Session, args: list[bytes]) -> Reply:
    session.leaving = True
    return OK


@command("shutdown", -1, immediate=True, unlocked=True)
def _shutdown(session: Session, args: list[bytes]) -> Reply:
    if session.transaction is not None:
        session.transaction_failed = True
        raise CommandError("ERR Command not allowed inside a transaction")
    if any(arg.upper() not in (b"NOSAVE", b"SAVE", b"NOW", b"FORCE") for arg in args):
        raise CommandError(SYNTAX)
    session.leaving = True
    session.context.shut_down()
    return None


@command("client|id", 2)
def _client_id(session: Session, args: list[bytes]) -> Reply:
    return session.id


@command("client|setname", 3)
def _client_setname(session: Session, args: list[bytes]) -> Reply:
    if not all(33 <= character <= 126 for character in args[0]):
        raise CommandError("ERR Client names cannot contain spaces, newlines or special characters.")
    session.name = args[0]
    return OK


@command("client|setinfo", 4)
def _client_setinfo(session: Session, args: list[bytes]) -> Reply:
    """Accept the information that newer clients send when they connect (Redis 7.2 and later)."""
    return OK


@command("client|list", 2)
def _client_list(session: Session, args: list[bytes]) -> Reply:
    lines = (
        b"id=%d addr=%s name=%s db=0 resp=%d\n" % (client.id, client.address.encode(), client.name, client.protocol)
        for client in list(session.context.clients.values())
    )
    return b"".join(lines)


@command("info", -1)
def _info(session: Session, args: list[bytes]) -> Reply:
    names = {arg.decode(errors="replace").lower() for arg in args} or {"default"}
    shown_by_default = "default" in names
    sections = {
        name: fields
        for name, fields in _facts(session).items()
        if name.lower() in names or names & {"all", "everything"} or (shown_by_default and name != "Commandstats")
    }
    return "\r\n".join(
        f"# {name}\r\n" + "".join(f"{field}:{value}\r\n" for field, value in fields.items())
        for name, fields in sections.items()
    )


def _facts(session: Session) -> dict[str, dict[str, object]]:
    """Return INFO's sections: the fields that our programs and redis-py's tests read, and what memory is used for."""
    store, times = session.store, os.times()
    with session.context.counting:
        calls = sorted(session.context.calls.items())
    scripts_s = session.context.lua.cpu_ns / 1e9
    keys, expiring = len(store.table), sum(entry.expires is not None for entry in store.table.values())
    return {
        "Server": {
            "redis_version": REDIS_VERSION,
            "tensordb_version": __version__,
            "arch_bits": 64,
            "run_id": store.id,
        },
        "Clients": {"connected_clients": len(session.context.clients), "blocked_clients": store.blocked},
        "Memory": {
            "used_memory": store.used + store.reserved,
            "used_memory_rss": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
            "used_memory_peak": store.peak,
            "maxmemory": store.maxmemory,
        },
        "CPU": {"used_cpu_sys": f"{times.system:.6f}", "used_cpu_user": f"{times.user + scripts_s:.6f}"},
        "Commandstats": {f"cmdstat_{name}": f"calls={number}" for name, number in calls},
        "Cluster": {"cluster_enabled": 0},
        "Keyspace": {"db0": f"keys={keys},expires={expiring},avg_ttl=0"} if keys else {},
    }


@command("multi", 1, immediate=True, unlocked=True)
def _multi(session: Session, args: list[bytes]) -> Reply:
    if session.transaction is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    session.transaction, session.transaction_failed = [], False
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
