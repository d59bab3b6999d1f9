# ruff: noqa: ARG001 (all handlers have one signature)
"""Implement commands for values of any type: DEL, EXPIRE, SCAN, …"""

from slslab.tensordb.globs import matches
from slslab.tensordb.replies import OK, CommandError, Reply, Simple
from slslab.tensordb.session import SYNTAX, Session, command, whole
from slslab.tensordb.store import TYPE_NAMES, milliseconds


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


@command("flushdb", 1)
@command("flushall", 1)
def _flush(session: Session, args: list[bytes]) -> Reply:
    session.store.clear()
    return OK


@command("scan", -2)
def _scan(session: Session, args: list[bytes]) -> Reply:
    """Return all keys at once: COUNT is a hint in Redis, too. A cursor other than 0 continues after all of them."""
    try:
        cursor = whole(args[0])
    except CommandError:
        raise CommandError("ERR invalid cursor") from None
    pattern: bytes | None = None
    rest = args[1:]
    while rest:
        match [rest[0].upper(), *rest[1:]]:
            case [b"MATCH", pattern, *rest]:
                pass
            case [b"COUNT", word, *rest] if whole(word) > 0:
                pass
            case _:
                raise CommandError(SYNTAX)
    keys: list[Reply] = [key for key in session.store.table if pattern is None or matches(pattern, key)]
    return ["0", [] if cursor else keys]


def deadline(argument: bytes, unit_ms: int, name: str) -> int:
    """Return when a duration ends, ms since the epoch; CommandError if Redis's 64 bits can't hold it."""
    duration = whole(argument) * unit_ms
    when = milliseconds() + duration
    if duration < -(1 << 63) or when >= 1 << 63:
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
