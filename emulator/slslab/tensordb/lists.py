"""Implement commands for lists, including blocking ones: LPUSH, BRPOP, LMOVE, …"""

import re
from collections import deque
from collections.abc import Callable
from itertools import islice
from math import ceil

from slslab.tensordb.replies import CommandError, Reply
from slslab.tensordb.session import SYNTAX, Session, command, whole
from slslab.tensordb.store import ENTRY_BYTES, Store, Waiter

SECONDS = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]?inf(?:inity)?", re.IGNORECASE)
LEFT, RIGHT = {"left": True}, {"left": False}


def _push(store: Store, key: bytes, elements: list[bytes], left: bool) -> int:
    items = store.collection(key, deque)
    (items.extendleft if left else items.extend)(elements)
    store.settle(key, sum(len(element) + ENTRY_BYTES for element in elements))
    store.signal(key)
    return len(items)


def _pop(store: Store, key: bytes, left: bool) -> bytes | None:
    items = store.elements(key, deque)
    if not items:
        return None
    element = items.popleft() if left else items.pop()
    store.settle(key, -len(element) - ENTRY_BYTES)
    return element


@command("lpush", -3, grows=True, bound=LEFT)
@command("rpush", -3, grows=True, bound=RIGHT)
def _push_command(session: Session, args: list[bytes], left: bool) -> Reply:
    return _push(session.store, args[0], args[1:], left)


@command("lpop", 2, bound=LEFT)
@command("rpop", 2, bound=RIGHT)
def _pop_command(session: Session, args: list[bytes], left: bool) -> Reply:
    return _pop(session.store, args[0], left)


@command("lindex", 3)
def _lindex(session: Session, args: list[bytes]) -> Reply:
    items = session.store.elements(args[0], deque)
    if not items:
        return None
    index = whole(args[1])
    return items[index] if -len(items) <= index < len(items) else None


@command("lrange", 4)
def _lrange(session: Session, args: list[bytes]) -> Reply:
    """Return the elements between two of Redis's indices, which are inclusive, negative from the end."""
    first, last = (whole(arg) for arg in args[1:])
    items = session.store.elements(args[0], deque)
    length = len(items)
    first = max(0, first + length if first < 0 else first)
    last = last + length if last < 0 else last
    return list(islice(items, first, max(first, min(last + 1, length))))


@command("lrem", 4)
def _lrem(session: Session, args: list[bytes]) -> Reply:
    count = whole(args[1])
    items = session.store.elements(args[0], deque)
    positions = [position for position, item in enumerate(items) if item == args[2]]
    removed = set(positions[count:] if count < 0 else positions[: count or None])
    if removed:
        left = [item for position, item in enumerate(items) if position not in removed]
        items.clear()
        items.extend(left)
        session.store.settle(args[0], -len(removed) * (len(args[2]) + ENTRY_BYTES))
    return len(removed)


def _lefts(words: list[bytes]) -> list[bool]:
    """Return for each word whether it is LEFT; CommandError if one is neither LEFT nor RIGHT."""
    sides = [word.upper() for word in words]
    if not {b"LEFT", b"RIGHT"}.issuperset(sides):
        raise CommandError(SYNTAX)
    return [side == b"LEFT" for side in sides]


def _move(store: Store, source: bytes, target: bytes, from_left: bool, to_left: bool) -> bytes | None:
    if not store.elements(source, deque):
        return None
    items = store.elements(target, deque)  # fails before anything is taken
    if source == target:
        # Never empty meanwhile, so that the key keeps its expiry.
        moved = items.popleft() if from_left else items.pop()
        (items.appendleft if to_left else items.append)(moved)
        store.signal(target)
        return moved
    element = _pop(store, source, from_left)
    assert element is not None
    _push(store, target, [element], to_left)
    return element


@command("lmove", 5, grows=True)
@command("rpoplpush", 3, grows=True)
def _move_command(session: Session, args: list[bytes]) -> Reply:
    return _move(session.store, args[0], args[1], *_lefts(args[2:] or [b"RIGHT", b"LEFT"]))


def _timeout(argument: bytes) -> float:
    """Parse a timeout in seconds; 0 waits without limit."""
    if not SECONDS.fullmatch(argument):
        raise CommandError("ERR timeout is not a float or out of range")
    milliseconds = float(argument) * 1000
    if not 0 <= milliseconds < 1 << 63:
        raise CommandError("ERR timeout is negative")
    return ceil(milliseconds) / 1000


def _block(session: Session, keys: list[bytes], timeout_s: float, take: Callable[[bytes], Reply]) -> "Reply | Waiter":
    """Take from the first key that has an element, or wait for one."""
    for key in keys:
        taken = take(key)
        if taken is not None:
            return taken
    waiter = Waiter(keys, take, timeout_s)
    if not session.executing:
        session.store.wait(waiter)
    return waiter


@command("blpop", -3, bound=LEFT)
@command("brpop", -3, bound=RIGHT)
def _blocking_pop(session: Session, args: list[bytes], left: bool) -> "Reply | Waiter":
    def take(key: bytes) -> Reply:
        element = _pop(session.store, key, left)
        return None if element is None else [key, element]

    return _block(session, args[:-1], _timeout(args[-1]), take)


@command("blmove", 6, grows=True)
@command("brpoplpush", 4, grows=True)
def _blocking_move(session: Session, args: list[bytes]) -> "Reply | Waiter":
    lefts = _lefts(args[2:-1] or [b"RIGHT", b"LEFT"])
    reply = _block(session, args[:1], _timeout(args[-1]), lambda key: _move(session.store, key, args[1], *lefts))
    # In a transaction this is a null, whereas a pop's timeout returns a null array.
    return None if session.executing and isinstance(reply, Waiter) else reply
