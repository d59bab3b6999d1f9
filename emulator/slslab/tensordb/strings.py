"""Implement commands for strings and counters: GET, SET, INCR, …"""

from slslab.tensordb.generic import deadline
from slslab.tensordb.replies import OK, Blob, CommandError, Reply
from slslab.tensordb.resp import MAX_BULK
from slslab.tensordb.session import NOT_INTEGER, SYNTAX, Session, added, command, whole, wrong_arity
from slslab.tensordb.store import STRING, Store


def _text(store: Store, key: bytes) -> Blob | None:
    value: Blob | None = store.value(key, STRING)
    return value


def _set(store: Store, key: bytes, value: Blob, expires: int | None = None) -> None:
    store.put(key, value.toreadonly() if isinstance(value, memoryview) else value, len(value), expires)


@command("get", 2)
def _get(session: Session, args: list[bytes]) -> Reply:
    return _text(session.store, args[0])


@command("set", -3, grows=True, raw=True)
def _set_command(session: Session, args: list[Blob]) -> Reply:
    condition, expires = _options([bytes(arg) for arg in args[2:]])
    key = bytes(args[0])
    if condition and (key in session.store.table) != (condition == b"XX"):
        return None
    _set(session.store, key, args[1], expires)
    return OK


def _options(args: list[bytes]) -> tuple[bytes, int | None]:
    """Return SET's condition (NX, XX or none) and when the key expires, ms since the epoch.

    As in Redis, an option's value is read after all words are known to be options, and the last one counts.
    """
    condition = unit = duration = b""
    rest = [arg.upper() for arg in args]
    while rest:
        word = rest.pop(0)
        if word in (b"NX", b"XX") and condition in (b"", word):
            condition = word
        elif word in (b"EX", b"PX") and rest and unit in (b"", word):
            unit, duration = word, rest.pop(0)
        else:
            raise CommandError(SYNTAX)
    return condition, _expires(duration, 1000 if unit == b"EX" else 1, "set") if unit else None


def _expires(argument: bytes, unit_ms: int, name: str) -> int:
    if whole(argument) <= 0:
        raise CommandError(f"ERR invalid expire time in '{name}' command")
    return deadline(argument, unit_ms, name)


@command("setnx", 3, grows=True, raw=True)
def _setnx(session: Session, args: list[Blob]) -> Reply:
    key = bytes(args[0])
    if key in session.store.table:
        return 0
    _set(session.store, key, args[1])
    return 1


@command("setex", 4, grows=True)
def _setex(session: Session, args: list[bytes]) -> Reply:
    _set(session.store, args[0], args[2], _expires(args[1], 1000, "setex"))
    return OK


def _rewrite(store: Store, key: bytes, value: bytes) -> None:
    """Set a value and keep its expiry."""
    entry = store.table.get(key)
    _set(store, key, value, None if entry is None else entry.expires)


@command("append", 3, grows=True)
def _append(session: Session, args: list[bytes]) -> Reply:
    old = _text(session.store, args[0]) or b""
    if len(old) + len(args[1]) > MAX_BULK:
        raise CommandError("ERR string exceeds maximum allowed size (512MB)")
    _rewrite(session.store, args[0], bytes(old) + args[1])
    return len(old) + len(args[1])


@command("strlen", 2)
def _strlen(session: Session, args: list[bytes]) -> Reply:
    return len(_text(session.store, args[0]) or b"")


@command("mget", -2)
def _mget(session: Session, args: list[bytes]) -> Reply:
    values = [entry.value if (entry := session.store.table.get(key)) else None for key in args]
    return [value if isinstance(value, STRING) else None for value in values]


@command("mset", -3, grows=True)
def _mset(session: Session, args: list[bytes]) -> Reply:
    if len(args) % 2:
        raise wrong_arity("mset")
    for key, value in zip(args[::2], args[1::2], strict=True):
        _set(session.store, key, value)
    return OK


@command("incr", 2, grows=True, bound={"sign": 1})
@command("incrby", 3, grows=True, bound={"sign": 1})
@command("decr", 2, grows=True, bound={"sign": -1})
@command("decrby", 3, grows=True, bound={"sign": -1})
def _add(session: Session, args: list[bytes], sign: int) -> Reply:
    increment = sign * whole(args[1]) if len(args) > 1 else sign
    if increment == 1 << 63:
        raise CommandError("ERR decrement would overflow")
    number = added(_text(session.store, args[0]), increment, NOT_INTEGER)
    _rewrite(session.store, args[0], b"%d" % number)
    return number
