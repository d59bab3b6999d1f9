"""Requests made up at random, by a seed: valid ones, and hostile ones."""

import random
import re
from collections.abc import Iterator

# Capitals of one letter are keys: S of strings, N of numbers, L of lists, H of hashes, M of sets, K of anything. Small
# letters: v value, w field, i integer, f float, x index, p pattern, t and T (which is no key) a duration in
# seconds and milliseconds, o an option of SET; the others are options or names of their command. `+` is
# one to three times, `*` none to three. What stands between semicolons is sent one after the other.
GRAMMAR = """
GET S|SET S v|SET S v o*|SET N i|MGET S+
MSET S v S v|MSET S v|INCR N|INCRBY N i|DECR N|DECRBY N i|SET N f
LPUSH L v+|RPUSH L v+|RPUSH L v v v|LPOP L|RPOP L|LLEN L|LINDEX L x
LRANGE L x x|LRANGE L 0 -1|LREM L x v|LMOVE L L s s|RPOPLPUSH L L
MULTI;BLPOP L+ t;BRPOP L+ t;BLMOVE L L s s t;BRPOPLPUSH L L t;EXEC
HSET H w v|HSET H w v w v|HSETNX H w v|HGET H w|HMGET H w+|HGETALL H|HKEYS H|HVALS H|HLEN H|HEXISTS H w|HDEL H w+
HINCRBY H w i|HSET H w i|SADD M v+|SREM M v+|SMEMBERS M|SISMEMBER M v|SCARD M
DEL K|DEL K+|UNLINK K+|EXISTS K+|TYPE K|KEYS p|DBSIZE|FLUSHDB|FLUSHALL
SCAN 0 COUNT 1000|SCAN 0 MATCH p COUNT 1000|SCAN i
EXPIRE K t|PEXPIRE K T|TTL K|PTTL K
PING|PING v|ECHO v|SELECT 0|CLIENT SETNAME w|CLIENT ID|CLIENT LIST|CLIENT SETINFO a w
INFO g|INFO|HELLO 2|HELLO 3|HELLO|AUTH v|AUTH default v
MULTI;GET S;INCR N;RPUSH L v;LMOVE L L s s;EXEC|EXEC|z v*
"""
TEMPLATES = [[line.split() for line in choice.split(";")] for choice in GRAMMAR.strip().replace("\n", "|").split("|")]
KEYS = {kind: [f"{kind.lower()}{number}".encode() for number in (1, 2)] for kind in "SNLHM"}
ALL_KEYS = [key for keys in KEYS.values() for key in keys]
ROUND = 40
CHOICES: dict[str, list[bytes]] = {
    **KEYS,
    "K": [*ALL_KEYS, b"absent"],
    "v": [b"", b"a", b"b", b"word", b"1", b"-7", b"2.5", b"\x00\xff\r\n", b"x" * 70, b"y" * 5000, b"z" * 40_000],
    "w": [b"a", b"b", b"field"],
    "i": [b"0", b"1", b"-1", b"5", b"77", b"-1000000", b"9223372036854775807", b"-9223372036854775808"],
    "f": [b"0", b"0.1", b"-1.5", b"3", b"1e3", b"1e-7", b"10.10", b"5.0e3", b"1e17", b"123456789.123456789", b"3.14"],
    "x": [b"0", b"1", b"-1", b"2", b"-2", b"5", b"-9"],
    "p": [b"*", b"s?", b"[ls]*", b"[^a-m]1", b"*1", b"n2", b"\\s1", b"[a-", b"[\\"],
    "s": [b"LEFT", b"RIGHT"],
    "a": [b"LIB-NAME", b"LIB-VER"],
    "g": [b"server", b"clients", b"memory", b"stats", b"replication", b"cpu", b"keyspace", b"nonsense", b"all"],
    "z": [b"NONSENSE", b"client|id", b"GET\x00", b"", b"\xff", b"x" * 200, b"y" * 40_000],
}
OPTIONS = [option.split("_") for option in "NX XX EX_t PX_T".split()]
# Separated by commas: what looks like a number, then words of options, then what is special in patterns or replies.
HOSTILE = (
    (
        ", , 1,1 ,-0,+1,01,1_0,1e3,1.0,--1,-,+,1\x00,\n1,\xff,-1,0,2,10,99999999999999,18446744073709551615,"
        "18446744073709551616,9223372036854775807,9223372036854775808,-9223372036854775808,-9223372036854775809,"
        "9223372036854775,1e400,1e-400,nan,-nan,inf,-inf,+inf,Infinity,.5,5.,1e,"
        "1.5e+2,0.1,-0.0001,1e17,1.7976931348623157e309," + 30 * "1" + "," + 300 * "1" + ","
        "NX,XX,EX,PX,GT,LT,LEFT,RIGHT,left,MATCH,COUNT,AUTH,LIB-NAME,HELP,INFO,ID,normal,"
        "*,?,[,[^,[a-,\\,[z-a]*," + 40 * "*" + "b,a b,',\",it's\r\n," + 300 * "x" + "," + 40_000 * "y" + ",\x00"
    )
    .encode("latin-1")
    .split(b",")
)
DURATIONS = {b"expire", b"pexpire", b"ex", b"px"}
# The most words of commands with options that tensordb lacks.
LONGEST = {b"EXPIRE": 3, b"PEXPIRE": 3, b"CLIENT LIST": 2, b"LPOP": 2, b"RPOP": 2, b"FLUSHDB": 1, b"FLUSHALL": 1}
SHORT = re.compile(rb"[1-9][0-9]{0,4}")

Request = list[bytes]


def rounds(seed: int, hostile: bool) -> Iterator[list[Request]]:
    """Rounds of requests without end; what blocks stands in a transaction, where it does not."""
    order = random.Random(seed)
    while True:
        sent: list[Request] = []
        while len(sent) < ROUND:
            sent += _chosen(order, hostile)
        yield sent


def _chosen(order: random.Random, hostile: bool) -> Iterator[Request]:
    for template in order.choice(TEMPLATES):
        request = _filled(order, template)
        # What is hostile meets values that ordinary requests have left.
        if hostile and request != [b"MULTI"] and order.random() < 0.6:
            request = _spoiled(order, request)
        if hostile and order.random() < 0.3:
            request[0] = request[0].lower()
        names = b" ".join(request[:2]).upper(), request[0].upper()
        if all(len(request) <= LONGEST.get(name, len(request)) for name in names):
            yield _lasting(order, request)


def _filled(order: random.Random, template: list[str]) -> Request:
    request = []
    for word in template:
        symbol = word.rstrip("+*")
        times = 1 if word == symbol else order.randint(int(word[-1] == "+"), 3)
        for _ in range(times):
            if symbol in ("t", "T"):
                request.append(_duration(order))
            elif symbol == "o":
                request += _filled(order, order.choice(OPTIONS))
            else:
                request.append(order.choice(CHOICES.get(symbol, [symbol.encode()])))
    return request


def _spoiled(order: random.Random, request: Request) -> Request:
    request = list(request)
    for _ in range(order.choice((1, 1, 2))):
        place = order.randrange(1, len(request)) if len(request) > 1 else 1
        match order.randrange(7):
            case 0 if place < len(request):
                del request[place]
            case 1:
                request.insert(order.randint(1, len(request)), order.choice(HOSTILE))
            case 2 if place < len(request):
                request.insert(place, request[place])
            case 3 if place < len(request):
                request[place] = order.choice(ALL_KEYS)
            case 4 if place < len(request):
                request[place] = request[place].swapcase()
            case _:
                request[place : place + 1] = [order.choice(HOSTILE)]
    return request


def _lasting(order: random.Random, request: Request) -> Request:
    """The request with a duration so long that nothing expires while the answers are compared."""
    if not DURATIONS & {word.lower() for word in request}:
        return request
    return [_duration(order) if SHORT.fullmatch(word) else word for word in request]


def _duration(order: random.Random) -> bytes:
    """Return milliseconds or seconds, hardly ever the same twice."""
    return b"%d" % order.randrange(10**5, 10**9)
