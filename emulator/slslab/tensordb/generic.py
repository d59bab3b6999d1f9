# ruff: noqa: ARG001 (all handlers have one signature)
"""Implement commands for values of any type: DEL, EXPIRE, SCAN, …"""

import re

from slslab.tensordb.globs import matches
from slslab.tensordb.replies import OK, CommandError, Reply, Simple
from slslab.tensordb.session import SYNTAX, Session, command, whole
from slslab.tensordb.store import TYPE_NAMES, milliseconds

# The text that strtoul accepts completely.
CURSOR = re.compile(rb"([-+]?\d{1,4000})?(?:\0.*)?", re.DOTALL)


@command("del", -2)
@command("unlink", -2)
def _del(session: Session, args: list[bytes]) -> Reply:
    return sum([session.store.drop(key) for key in args])


@command("exists", -2)
def _exists(session: Session, args: list[bytes]) -> Reply:
    return sum(key in session.store.table for key in args)


@command("type", 2)
def _type(session: Session, args: list[bytes]) -> Reply:
    entry = session.store.table.get(args[0])
    return Simple("none" if entry is None else TYPE_NAMES[type(entry.value)])


@command("keys", 2)
def _keys(session: Session, args: list[bytes]) -> Reply:
    return [key for key in session.store.table if matches(args[0], key)]


@command("dbsize", 1)
def _dbsize(session: Session, args: list[bytes]) -> Reply:
    return len(session.store.table)


@command("flushdb", -1)
@command("flushall", -1)
def _flush(session: Session, args: list[bytes]) -> Reply:
    if len(args) > 1 or any(arg.upper() not in (b"SYNC", b"ASYNC") for arg in args):
        raise CommandError(SYNTAX)
    session.store.clear()
    return OK


@command("scan", -2)
def _scan(session: Session, args: list[bytes]) -> Reply:
    """Return all keys at once: COUNT is a hint in Redis, too. A cursor other than 0 continues after all of them."""
    cursor, pattern, kind = _scan_options(args)
    keys: list[Reply] = [
        key
        for key, entry in session.store.table.items()
        if (pattern is None or matches(pattern, key))
        and (kind is None or TYPE_NAMES[type(entry.value)].lower().encode() == kind)
    ]
    return ["0", [] if cursor else keys]


def _scan_options(args: list[bytes]) -> tuple[int, bytes | None, bytes | None]:
    cursor = CURSOR.fullmatch(args[0])
    if cursor is None or abs(int(cursor[1] or 0)) >= 1 << 64:
        raise CommandError("ERR invalid cursor")
    pattern: bytes | None = None
    kind: bytes | None = None
    rest = args[1:]
    while rest:
        match [rest[0].upper(), *rest[1:]]:
            case [b"MATCH", pattern, *rest]:
                pass
            case [b"COUNT", word, *rest]:
                if whole(word) < 1:
                    raise CommandError(SYNTAX)
            case [b"TYPE", word, *rest]:
                kind = word.partition(b"\0")[0].lower()
            case _:
                raise CommandError(SYNTAX)
    return int(cursor[1] or 0) % (1 << 64), pattern, kind


def deadline(argument: bytes, unit_ms: int, name: str, since: int | None = None) -> int:
    """Return the time of an expiry argument, ms since the epoch; it counts from `since`, by default now."""
    when = whole(argument) * unit_ms
    if -(1 << 63) <= when < 1 << 63:
        when += milliseconds() if since is None else since
    if not -(1 << 63) <= when < 1 << 63:
        raise CommandError(f"ERR invalid expire time in '{name}' command")
    return when


@command("expire", 3, bound={"name": "expire", "unit_ms": 1000})
@command("pexpire", 3, bound={"name": "pexpire", "unit_ms": 1})
def _expire(session: Session, args: list[bytes], name: str, unit_ms: int) -> Reply:
    store, key = session.store, args[0]
    when = deadline(args[1], unit_ms, name)
    if key not in store.table:
        return 0
    if when <= milliseconds():
        store.drop(key)
    else:
        store.expire(key, when)
    return 1


@command("ttl", 2, bound={"unit_ms": 1000})
@command("pttl", 2, bound={"unit_ms": 1})
def _ttl(session: Session, args: list[bytes], unit_ms: int) -> Reply:
    """Return the time until a key expires; -1 if never, -2 if the key doesn't exist."""
    entry = session.store.table.get(args[0])
    if entry is None:
        return -2
    return -1 if entry.expires is None else (max(0, entry.expires - milliseconds()) + unit_ms // 2) // unit_ms


@command("persist", 2)
def _persist(session: Session, args: list[bytes]) -> Reply:
    entry = session.store.table.get(args[0])
    if entry is None or entry.expires is None:
        return 0
    entry.expires = None
    return 1
