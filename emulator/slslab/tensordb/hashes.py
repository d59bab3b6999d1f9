"""Commands about hashes and sets: HSET, SADD, …"""

from slslab.tensordb.replies import CommandError, Reply
from slslab.tensordb.resp import integer
from slslab.tensordb.session import Session, command, whole, wrong_arity
from slslab.tensordb.store import ENTRY_BYTES, Store


def _hash(store: Store, key: bytes) -> dict[bytes, bytes]:
    """The hash of a key, an empty one if there is none."""
    found: dict[bytes, bytes] | None = store.value(key, dict)
    return {} if found is None else found


def _fill(store: Store, key: bytes, pairs: dict[bytes, bytes]) -> int:
    """Set fields; how many are new."""
    fields, entry = store.collection(key, dict)
    before = len(fields)
    change = 0
    for field, value in pairs.items():
        change += len(value) - len(fields[field]) if field in fields else len(field) + len(value) + ENTRY_BYTES
        fields[field] = value
    store.settle(key, entry, change)
    return len(fields) - before


@command("hset", -4, grows=True)
def _hset(session: Session, args: list[bytes]) -> Reply:
    if len(args) % 2 == 0:
        raise wrong_arity("hset")
    return _fill(session.store, args[0], dict(zip(args[1::2], args[2::2], strict=True)))


@command("hsetnx", 4, grows=True)
def _hsetnx(session: Session, args: list[bytes]) -> Reply:
    if args[1] in _hash(session.store, args[0]):
        return 0
    return _fill(session.store, args[0], {args[1]: args[2]})


@command("hget", 3)
def _hget(session: Session, args: list[bytes]) -> Reply:
    return _hash(session.store, args[0]).get(args[1])


@command("hmget", -3)
def _hmget(session: Session, args: list[bytes]) -> Reply:
    fields = _hash(session.store, args[0])
    return [fields.get(field) for field in args[1:]]


@command("hgetall", 2)
def _hgetall(session: Session, args: list[bytes]) -> Reply:
    return dict(_hash(session.store, args[0]))


@command("hkeys", 2)
def _hkeys(session: Session, args: list[bytes]) -> Reply:
    return list(_hash(session.store, args[0]))


@command("hvals", 2)
def _hvals(session: Session, args: list[bytes]) -> Reply:
    return list(_hash(session.store, args[0]).values())


@command("hlen", 2)
def _hlen(session: Session, args: list[bytes]) -> Reply:
    return len(_hash(session.store, args[0]))


@command("hexists", 3)
def _hexists(session: Session, args: list[bytes]) -> Reply:
    return int(args[1] in _hash(session.store, args[0]))


@command("hdel", -3)
def _hdel(session: Session, args: list[bytes]) -> Reply:
    entry = session.store.entry(args[0], dict)
    if entry is None:
        return 0
    fields = _hash(session.store, args[0])
    removed = [(field, fields.pop(field)) for field in args[1:] if field in fields]
    session.store.settle(args[0], entry, -sum(len(field) + len(value) + ENTRY_BYTES for field, value in removed))
    return len(removed)


@command("hincrby", 4, grows=True)
def _hincrby(session: Session, args: list[bytes]) -> Reply:
    increment = whole(args[2])
    try:
        number = integer(_hash(session.store, args[0]).get(args[1], b"0")) + increment
    except ValueError:
        raise CommandError("ERR hash value is not an integer") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise CommandError("ERR increment or decrement would overflow")
    _fill(session.store, args[0], {args[1]: b"%d" % number})
    return number


def _set(store: Store, key: bytes) -> set[bytes]:
    """The set of a key, an empty one if there is none."""
    found: set[bytes] | None = store.value(key, set)
    return set() if found is None else found


@command("sadd", -3, grows=True)
def _sadd(session: Session, args: list[bytes]) -> Reply:
    members, entry = session.store.collection(args[0], set)
    new = set(args[1:]) - members
    members |= new
    session.store.settle(args[0], entry, sum(len(member) + ENTRY_BYTES for member in new))
    return len(new)


@command("srem", -3)
def _srem(session: Session, args: list[bytes]) -> Reply:
    entry = session.store.entry(args[0], set)
    if entry is None:
        return 0
    members = _set(session.store, args[0])
    removed = members & set(args[1:])
    members -= removed
    session.store.settle(args[0], entry, -sum(len(member) + ENTRY_BYTES for member in removed))
    return len(removed)


@command("smembers", 2)
def _smembers(session: Session, args: list[bytes]) -> Reply:
    return frozenset(_set(session.store, args[0]))


@command("sismember", 3)
def _sismember(session: Session, args: list[bytes]) -> Reply:
    return int(args[1] in _set(session.store, args[0]))


@command("scard", 2)
def _scard(session: Session, args: list[bytes]) -> Reply:
    return len(_set(session.store, args[0]))
