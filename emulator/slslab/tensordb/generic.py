# ruff: noqa: ARG001 (all handlers have one signature)
"""Implement commands for values of any type: DEL, EXPIRE, SCAN, …"""

import heapq
import re

from slslab.tensordb.globs import matches
from slslab.tensordb.replies import OK, CommandError, Reply, Simple, shown
from slslab.tensordb.session import SYNTAX, Session, command, whole
from slslab.tensordb.store import TYPE_NAMES, milliseconds

SCAN_COUNT = 10
# The text that strtoul accepts completely.
CURSOR = re.compile(rb"([-+]?\d{1,4000})?(?:\0.*)?", re.DOTALL)


@command("del", -2)
@command("unlink", -2)
def _del(session: Session, args: list[bytes]) -> Reply:
    return sum([session.store.drop(key) for key in args])


@command("exists", -2)
@command("touch", -2)
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


@command("rename", 3)
def _rename(session: Session, args: list[bytes]) -> Reply:
    if not session.store.rename(args[0], args[1]):
        raise CommandError("ERR no such key")
    return OK


@command("scan", -2)
def _scan(session: Session, args: list[bytes]) -> Reply:
    cursor, pattern, count, kind = _scan_options(args)
    table = session.store.table
    # The cursor is a place in the order of the keys' hashes, so that a key that exists throughout is never missed, even
    # if other keys come and go. Keys with the same hash are returned together.
    rest = [key for key in table if _place(key) >= cursor]
    page = heapq.nsmallest(count, rest, key=_place)
    if len(page) < count:
        following = 0
    else:
        last = _place(page[-1])
        taken = set(page)
        page += [key for key in rest if _place(key) == last and key not in taken]
        following = last + 1 if len(page) < len(rest) else 0
    keys: list[Reply] = [
        key
        for key in page
        if (pattern is None or matches(pattern, key))
        and (kind is None or TYPE_NAMES[type(table[key].value)].lower().encode() == kind)
    ]
    return [str(following), keys]


def _place(key: bytes) -> int:
    return (hash(key) & 0xFFFF_FFFF_FFFF) + 1


def _scan_options(args: list[bytes]) -> tuple[int, bytes | None, int, bytes | None]:
    cursor = CURSOR.fullmatch(args[0])
    if cursor is None or abs(int(cursor[1] or 0)) >= 1 << 64:
        raise CommandError("ERR invalid cursor")
    pattern: bytes | None = None
    kind: bytes | None = None
    count = SCAN_COUNT
    rest = args[1:]
    while rest:
        match [rest[0].upper(), *rest[1:]]:
            case [b"MATCH", pattern, *rest]:
                pass
            case [b"COUNT", word, *rest]:
                count = whole(word)
                if count < 1:
                    raise CommandError(SYNTAX)
            case [b"TYPE", word, *rest]:
                kind = word.partition(b"\0")[0].lower()
            case _:
                raise CommandError(SYNTAX)
    return int(cursor[1] or 0) % (1 << 64), pattern, count, kind


def deadline(argument: bytes, unit_ms: int, name: str, since: int | None = None) -> int:
    """Return the time of an expiry argument, ms since the epoch; it counts from `since`, by default now."""
    when = whole(argument) * unit_ms
    if -(1 << 63) <= when < 1 << 63:
        when += milliseconds() if since is None else since
    if not -(1 << 63) <= when < 1 << 63:
        raise CommandError(f"ERR invalid expire time in '{name}' command")
    return when


def _conditions(args: list[bytes]) -> set[bytes]:
    conditions = {arg.upper() for arg in args}
    for arg in args:
        if arg.upper() not in (b"NX", b"XX", b"GT", b"LT"):
            raise CommandError(f"ERR Unsupported option {shown(arg, len(arg))}")
    if b"NX" in conditions and len(conditions) > 1:
        raise CommandError("ERR NX and XX, GT or LT options at the same time are not compatible")
    if conditions >= {b"GT", b"LT"}:
        raise CommandError("ERR GT and LT options at the same time are not compatible")
    return conditions


def _holds(condition: bytes, now: int | None, when: int) -> bool:
    """Return whether an expiry may be changed to `when`; None means never, which is later than any time."""
    match condition:
        case b"NX":
            return now is None
        case b"XX":
            return now is not None
        case b"GT":
            return now is not None and when > now
    return now is None or when < now


@command("expire", -3, bound={"name": "expire", "unit_ms": 1000})
@command("pexpire", -3, bound={"name": "pexpire", "unit_ms": 1})
@command("expireat", -3, bound={"name": "expireat", "unit_ms": 1000, "since": 0})
@command("pexpireat", -3, bound={"name": "pexpireat", "unit_ms": 1, "since": 0})
def _expire(session: Session, args: list[bytes], name: str, unit_ms: int, since: int | None = None) -> Reply:
    store, key = session.store, args[0]
    conditions = _conditions(args[2:])
    when = deadline(args[1], unit_ms, name, since)
    entry = store.table.get(key)
    if entry is None or not all(_holds(condition, entry.expires, when) for condition in conditions):
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
