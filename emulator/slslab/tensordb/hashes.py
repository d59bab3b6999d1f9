"""Implement commands for hashes and sets (HSET, SADD, …), and what they share with lists."""

from collections import deque
from collections.abc import Callable
from typing import Any

from slslab.tensordb.replies import Reply
from slslab.tensordb.session import Session, added, command, whole, wrong_arity
from slslab.tensordb.store import ENTRY_BYTES, Store


def _fill(store: Store, key: bytes, pairs: dict[bytes, bytes]) -> int:
    """Set fields; return how many are new."""
    fields = store.collection(key, dict)
    before = len(fields)
    change = 0
    for field, value in pairs.items():
        change += len(value) - len(fields[field]) if field in fields else len(field) + len(value) + ENTRY_BYTES
        fields[field] = value
    store.settle(key, change)
    return len(fields) - before


@command("hset", -4, grows=True)
def _hset(session: Session, args: list[bytes]) -> Reply:
    if len(args) % 2 == 0:
        raise wrong_arity("hset")
    return _fill(session.store, args[0], dict(zip(args[1::2], args[2::2], strict=True)))


@command("hsetnx", 4, grows=True)
def _hsetnx(session: Session, args: list[bytes]) -> Reply:
    if args[1] in session.store.elements(args[0], dict):
        return 0
    return _fill(session.store, args[0], {args[1]: args[2]})


@command("hget", 3)
def _hget(session: Session, args: list[bytes]) -> Reply:
    return session.store.elements(args[0], dict).get(args[1])


@command("hmget", -3)
def _hmget(session: Session, args: list[bytes]) -> Reply:
    fields = session.store.elements(args[0], dict)
    return [fields.get(field) for field in args[1:]]


@command("hgetall", 2, bound={"kind": dict, "answer": dict})
@command("hkeys", 2, bound={"kind": dict, "answer": list})
@command("hvals", 2, bound={"kind": dict, "answer": lambda fields: list(fields.values())})
@command("smembers", 2, bound={"kind": set, "answer": frozenset})
@command("hlen", 2, bound={"kind": dict, "answer": len})
@command("scard", 2, bound={"kind": set, "answer": len})
@command("llen", 2, bound={"kind": deque, "answer": len})
def _all(session: Session, args: list[bytes], kind: type[Any], answer: Callable[[Any], Reply]) -> Reply:
    return answer(session.store.elements(args[0], kind))


@command("hexists", 3, bound={"kind": dict})
@command("sismember", 3, bound={"kind": set})
def _contains(session: Session, args: list[bytes], kind: type[Any]) -> Reply:
    return int(args[1] in session.store.elements(args[0], kind))


@command("hdel", -3)
def _hdel(session: Session, args: list[bytes]) -> Reply:
    fields = session.store.elements(args[0], dict)
    removed = [(field, fields.pop(field)) for field in args[1:] if field in fields]
    if removed:
        session.store.settle(args[0], -sum(len(field) + len(value) + ENTRY_BYTES for field, value in removed))
    return len(removed)


@command("hincrby", 4, grows=True)
def _hincrby(session: Session, args: list[bytes]) -> Reply:
    increment = whole(args[2])
    old = session.store.elements(args[0], dict).get(args[1])
    number = added(old, increment, "ERR hash value is not an integer")
    _fill(session.store, args[0], {args[1]: b"%d" % number})
    return number


@command("sadd", -3, grows=True)
def _sadd(session: Session, args: list[bytes]) -> Reply:
    members = session.store.collection(args[0], set)
    new = set(args[1:]) - members
    members |= new
    session.store.settle(args[0], sum(len(member) + ENTRY_BYTES for member in new))
    return len(new)


@command("srem", -3)
def _srem(session: Session, args: list[bytes]) -> Reply:
    members = session.store.elements(args[0], set)
    removed = members & set(args[1:])
    members -= removed
    if removed:
        session.store.settle(args[0], -sum(len(member) + ENTRY_BYTES for member in removed))
    return len(removed)
