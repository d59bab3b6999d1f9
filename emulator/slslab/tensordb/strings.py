"""Implement commands for strings and counters: GET, SET, INCR, …"""

from slslab.tensordb.generic import deadline
from slslab.tensordb.replies import OK, Blob, CommandError, Reply
from slslab.tensordb.session import NOT_INTEGER, SYNTAX, Session, added, command, whole, wrong_arity
from slslab.tensordb.store import STRING, Store


def _set(store: Store, key: bytes, value: Blob, expires: int | None = None) -> None:
    store.put(key, value.toreadonly() if isinstance(value, memoryview) else value, len(value), expires)


@command("get", 2)
def _get(session: Session, args: list[bytes]) -> Reply:
    value: Blob | None = session.store.value(args[0], STRING)
    return value


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
    if unit and whole(duration) <= 0:
        raise CommandError("ERR invalid expire time in 'set' command")
    return condition, deadline(duration, 1000 if unit == b"EX" else 1, "set") if unit else None


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
    store, key = session.store, args[0]
    old: Blob | None = store.value(key, STRING)
    number = added(old, increment, NOT_INTEGER)
    _set(store, key, b"%d" % number, None if old is None else store.table[key].expires)
    return number
