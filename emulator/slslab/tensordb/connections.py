# ruff: noqa: ARG001 (all handlers have one signature)
"""Implement commands about the connection and the server: HELLO, AUTH, CLIENT, INFO, MULTI, SHUTDOWN, …"""

import hmac
import os
import time
from pathlib import Path

from slslab.installation import __version__
from slslab.tensordb import session as table
from slslab.tensordb.globs import matches
from slslab.tensordb.replies import NULL_ARRAY, OK, CommandError, Reply, Simple, Verbatim, shown
from slslab.tensordb.resp import MAX_BULK
from slslab.tensordb.session import SYNTAX, Session, command, whole, wrong_arity
from slslab.tensordb.store import Waiter

# The server with the reference replies: tests compare with it, where it is installed.
REDIS_VERSION = "7.0.15"
STARTED = time.monotonic()
SECTIONS = (
    "Server Clients Memory Persistence Stats Replication CPU Modules Commandstats Errorstats Latencystats Cluster "
    "Keyspace"
).split()
# Shown only on request.
QUIET = {"commandstats", "latencystats"}


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
            case [word, name, *rest] if word.upper() == b"SETNAME":
                _set_name(session, name)
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


@command("reset", 1, stranger=True, immediate=True, unlocked=True)
def _reset(session: Session, args: list[bytes]) -> Reply:
    session.transaction, session.transaction_failed = None, False
    session.protocol, session.name = 2, b""
    session.authenticated = session.context.password is None
    return Simple("RESET")


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


def _set_name(session: Session, name: bytes) -> None:
    if not _printable(name):
        raise CommandError("ERR Client names cannot contain spaces, newlines or special characters.")
    session.name = name


def _printable(word: bytes) -> bool:
    return all(33 <= character <= 126 for character in word)


@command("client|id", 2)
def _client_id(session: Session, args: list[bytes]) -> Reply:
    return session.id


@command("client|getname", 2)
def _client_getname(session: Session, args: list[bytes]) -> Reply:
    return session.name or None


@command("client|setname", 3)
def _client_setname(session: Session, args: list[bytes]) -> Reply:
    _set_name(session, args[0])
    return OK


@command("client|setinfo", 4)
def _client_setinfo(session: Session, args: list[bytes]) -> Reply:
    """Accept the information that newer clients send when they connect (Redis 7.2 and later)."""
    if args[0].upper() not in (b"LIB-NAME", b"LIB-VER"):
        raise CommandError(f"ERR Unrecognized option '{shown(args[0])}'")
    if not _printable(args[1]):
        raise CommandError(f"ERR {shown(args[0]).lower()} cannot contain spaces, newlines or special characters.")
    return OK


@command("client|list", 2)
def _client_list(session: Session, args: list[bytes]) -> Reply:
    lines = (
        b"id=%d addr=%s name=%s db=0 resp=%d\n" % (client.id, client.address.encode(), client.name, client.protocol)
        for client in list(session.context.clients.values())
    )
    return Verbatim(b"".join(lines))


@command("info", -1)
def _info(session: Session, args: list[bytes]) -> Reply:
    sections = _facts(session)
    names = {arg.decode(errors="replace").lower() for arg in args} or {"default"}
    if names & {"all", "everything"}:
        names = {name.lower() for name in SECTIONS}
    elif "default" in names:
        names |= {name.lower() for name in SECTIONS} - QUIET
    return Verbatim(
        "\r\n".join(
            f"# {name}\r\n" + "".join(f"{field}:{value}\r\n" for field, value in sections.get(name, {}).items())
            for name in SECTIONS
            if name.lower() in names
        ).encode()
    )


def _facts(session: Session) -> dict[str, dict[str, object]]:
    """Return INFO's sections that have fields: the ones in Redis's INFO that clients and monitors read."""
    store, times = session.store, os.times()
    uptime = int(time.monotonic() - STARTED)
    with session.context.counting:
        calls = sorted(session.context.calls.items())
    scripts_s = session.context.lua.cpu_ns / 1e9
    keys, expiring = len(store.table), sum(entry.expires is not None for entry in store.table.values())
    return {
        "Server": {
            "redis_version": REDIS_VERSION,
            "tensordb_version": __version__,
            "redis_mode": "standalone",
            "arch_bits": 64,
            "process_id": os.getpid(),
            "run_id": store.id,
            "tcp_port": session.context.port,
            "server_time_usec": time.time_ns() // 1000,
            "uptime_in_seconds": uptime,
            "uptime_in_days": uptime // 86400,
        },
        "Clients": {"connected_clients": len(session.context.clients), "blocked_clients": store.blocked},
        "Memory": {
            "used_memory": store.used + store.reserved,
            "used_memory_rss": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
            "used_memory_peak": store.peak,
            "maxmemory": store.maxmemory,
            "maxmemory_policy": "noeviction",
        },
        "Persistence": {"loading": 0, "rdb_bgsave_in_progress": 0, "aof_enabled": 0},
        "Replication": {"role": "master", "connected_slaves": 0},
        "CPU": {"used_cpu_sys": f"{times.system:.6f}", "used_cpu_user": f"{times.user + scripts_s:.6f}"},
        "Commandstats": {f"cmdstat_{name}": f"calls={number}" for name, number in calls},
        "Cluster": {"cluster_enabled": 0},
        "Keyspace": {"db0": f"keys={keys},expires={expiring},avg_ttl=0"} if keys else {},
    }


@command("command|docs", -2)
def _command_docs(session: Session, args: list[bytes]) -> Reply:
    """Answer redis-cli's request for documentation when it connects: we have no texts."""
    return {}


@command("config|get", -3)
def _config_get(session: Session, args: list[bytes]) -> Reply:
    values: dict[bytes, Reply] = {
        b"maxmemory": str(session.store.maxmemory),
        b"maxmemory-policy": "noeviction",
        b"proto-max-bulk-len": str(MAX_BULK),
        b"databases": "1",
        b"save": "",
        b"appendonly": "no",
    }
    return {name: value for name, value in values.items() if any(matches(arg.lower(), name) for arg in args)}


@command("memory|usage", 3)
def _memory_usage(session: Session, args: list[bytes]) -> Reply:
    entry = session.store.table.get(args[0])
    return None if entry is None else entry.size


@command("time", 1)
def _time(session: Session, args: list[bytes]) -> Reply:
    seconds, rest = divmod(time.time_ns() // 1000, 1_000_000)
    return [str(seconds), str(rest)]


@command("multi", 1, immediate=True, unlocked=True)
def _multi(session: Session, args: list[bytes]) -> Reply:
    if session.transaction is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    session.transaction, session.transaction_failed = [], False
    return OK


@command("discard", 1, immediate=True, unlocked=True)
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
