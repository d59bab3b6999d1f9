"""Commands about lists, also those that wait: LPUSH, BRPOP, LMOVE, …"""

import math
from collections import deque
from collections.abc import Callable
from itertools import islice

from slslab.tensordb.replies import NULL_ARRAY, OK, CommandError, Reply
from slslab.tensordb.session import SYNTAX, Blocked, Session, command, whole
from slslab.tensordb.store import ENTRY_BYTES, Store, Waiter


def contents(store: Store, key: bytes) -> deque[bytes]:
    """The list of a key, an empty one if there is none."""
    found: deque[bytes] | None = store.value(key, deque)
    return deque() if found is None else found


def _push(store: Store, key: bytes, elements: list[bytes], left: bool) -> int:
    items, entry = store.collection(key, deque)
    (items.extendleft if left else items.extend)(elements)
    store.settle(key, entry, sum(len(element) + ENTRY_BYTES for element in elements))
    store.signal(key)
    return len(items)


def _pop(store: Store, key: bytes, left: bool) -> bytes | None:
    entry = store.entry(key, deque)
    if entry is None:
        return None
    items: deque[bytes] = store.value(key, deque)
    element = items.popleft() if left else items.pop()
    store.settle(key, entry, -len(element) - ENTRY_BYTES)
    return element


def _replace(store: Store, key: bytes, items: list[bytes]) -> None:
    """Keep these elements of a list and no others."""
    entry = store.entry(key, deque)
    assert entry is not None
    before = contents(store, key)
    change = _size(items) - _size(before)
    before.clear()
    before.extend(items)
    store.settle(key, entry, change)


def _size(items: list[bytes] | deque[bytes]) -> int:
    return sum(len(item) + ENTRY_BYTES for item in items)


@command("lpush", -3, grows=True)
def _lpush(session: Session, args: list[bytes]) -> Reply:
    return _push(session.store, args[0], args[1:], left=True)


@command("rpush", -3, grows=True)
def _rpush(session: Session, args: list[bytes]) -> Reply:
    return _push(session.store, args[0], args[1:], left=False)


@command("lpushx", -3, grows=True)
def _lpushx(session: Session, args: list[bytes]) -> Reply:
    return _push(session.store, args[0], args[1:], left=True) if contents(session.store, args[0]) else 0


@command("rpushx", -3, grows=True)
def _rpushx(session: Session, args: list[bytes]) -> Reply:
    return _push(session.store, args[0], args[1:], left=False) if contents(session.store, args[0]) else 0


@command("lpop", -2)
def _lpop(session: Session, args: list[bytes]) -> Reply:
    return _pop_command(session, args, left=True)


@command("rpop", -2)
def _rpop(session: Session, args: list[bytes]) -> Reply:
    return _pop_command(session, args, left=False)


def _pop_command(session: Session, args: list[bytes], left: bool) -> Reply:
    store, key = session.store, args[0]
    if len(args) > 2:
        raise CommandError(SYNTAX)
    if len(args) == 1:
        return _pop(store, key, left)
    count = whole(args[1])
    if count < 0:
        raise CommandError("ERR value is out of range, must be positive")
    present = len(contents(store, key))
    if not present:
        return NULL_ARRAY
    return [_pop(store, key, left) for _ in range(min(count, present))]


@command("llen", 2)
def _llen(session: Session, args: list[bytes]) -> Reply:
    return len(contents(session.store, args[0]))


@command("lindex", 3)
def _lindex(session: Session, args: list[bytes]) -> Reply:
    items, index = contents(session.store, args[0]), whole(args[1])
    return items[index] if -len(items) <= index < len(items) else None


def _span(args: list[bytes], length: int) -> tuple[int, int]:
    """First and behind-last of a range in Redis's words: both inclusive, negative from the end."""
    first, last = (whole(arg) for arg in args)
    first = max(0, first + length if first < 0 else first)
    last = last + length if last < 0 else last
    return first, max(first, min(last + 1, length))


@command("lrange", 4)
def _lrange(session: Session, args: list[bytes]) -> Reply:
    items = contents(session.store, args[0])
    first, end = _span(args[1:], len(items))
    return [] if first >= len(items) else list(islice(items, first, end))


@command("ltrim", 4)
def _ltrim(session: Session, args: list[bytes]) -> Reply:
    items = contents(session.store, args[0])
    first, end = _span(args[1:], len(items))
    if items:
        _replace(session.store, args[0], [] if first >= len(items) else list(islice(items, first, end)))
    return OK


@command("lset", 4, grows=True)
def _lset(session: Session, args: list[bytes]) -> Reply:
    items, index = contents(session.store, args[0]), whole(args[1])
    if not items:
        raise CommandError("ERR no such key")
    if not -len(items) <= index < len(items):
        raise CommandError("ERR index out of range")
    _replace(
        session.store,
        args[0],
        [*islice(items, index % len(items)), args[2], *islice(items, index % len(items) + 1, None)],
    )
    return OK


@command("lrem", 4)
def _lrem(session: Session, args: list[bytes]) -> Reply:
    items, count = list(contents(session.store, args[0])), whole(args[1])
    if not items:
        return 0
    if count < 0:
        items.reverse()
    kept: list[bytes] = []
    removed = 0
    for item in items:
        if item == args[2] and (count == 0 or removed < abs(count)):
            removed += 1
        else:
            kept.append(item)
    if count < 0:
        kept.reverse()
    _replace(session.store, args[0], kept)
    return removed


def _side(word: bytes) -> bool:
    """Whether a word is LEFT; CommandError if it is not RIGHT either."""
    if word.upper() not in (b"LEFT", b"RIGHT"):
        raise CommandError(SYNTAX)
    return word.upper() == b"LEFT"


def _move(store: Store, source: bytes, target: bytes, from_left: bool, to_left: bool) -> bytes | None:
    if not contents(store, source):
        return None
    contents(store, target)  # an error before anything is taken
    element = _pop(store, source, from_left)
    assert element is not None
    _push(store, target, [element], to_left)
    return element


@command("lmove", 5, grows=True)
def _lmove(session: Session, args: list[bytes]) -> Reply:
    return _move(session.store, args[0], args[1], _side(args[2]), _side(args[3]))


@command("rpoplpush", 3, grows=True)
def _rpoplpush(session: Session, args: list[bytes]) -> Reply:
    return _move(session.store, args[0], args[1], from_left=False, to_left=True)


def _timeout(argument: bytes) -> float:
    """Seconds; 0 is for ever."""
    try:
        seconds = float(argument)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or seconds > (1 << 53):
        raise CommandError("ERR timeout is not a float or out of range")
    if seconds < 0:
        raise CommandError("ERR timeout is negative")
    return seconds


def _block(session: Session, keys: list[bytes], timeout: float, take: Callable[[bytes], Reply]) -> "Reply | Blocked":
    """Take from the first key that has something, or wait for one."""
    for key in keys:
        taken = take(key)
        if taken is not None:
            return taken
    waiter = Waiter(keys, take)
    if not session.executing:
        session.store.wait(waiter)
    return Blocked(waiter, timeout)


def _pop_from(store: Store, left: bool) -> Callable[[bytes], Reply]:
    def take(key: bytes) -> Reply:
        element = _pop(store, key, left)
        return None if element is None else [key, element]

    return take


@command("blpop", -3)
def _blpop(session: Session, args: list[bytes]) -> "Reply | Blocked":
    return _block(session, args[:-1], _timeout(args[-1]), _pop_from(session.store, left=True))


@command("brpop", -3)
def _brpop(session: Session, args: list[bytes]) -> "Reply | Blocked":
    return _block(session, args[:-1], _timeout(args[-1]), _pop_from(session.store, left=False))


@command("blmove", 6, grows=True)
def _blmove(session: Session, args: list[bytes]) -> "Reply | Blocked":
    from_left, to_left = _side(args[2]), _side(args[3])

    def take(key: bytes) -> Reply:
        return _move(session.store, key, args[1], from_left, to_left)

    return _block(session, [args[0]], _timeout(args[4]), take)


@command("brpoplpush", 4, grows=True)
def _brpoplpush(session: Session, args: list[bytes]) -> "Reply | Blocked":
    def take(key: bytes) -> Reply:
        return _move(session.store, key, args[1], from_left=False, to_left=True)

    return _block(session, [args[0]], _timeout(args[2]), take)
