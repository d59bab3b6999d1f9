"""What Redis answers, tensordb answers: requests made up at random are sent to both."""

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.emulator.tensordb.plain_redis import PROGRAM, plain_redis
from tests.emulator.tensordb.requests import Request, rounds
from tests.emulator.tensordb.wire import Wire, WireError, encode

from slslab.tensordb import server  # noqa: F401 (it fills the table)
from slslab.tensordb.session import TABLE

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(PROGRAM is None, reason="no redis-server is installed (tests/machines/redis/install)"),
]
REQUESTS = 20_000
# Whose replies are each server's own; errors are compared.
OWN = [
    [b"CLIENT", b"ID"],
    [b"CLIENT", b"LIST"],
    # Redis counts keys that have expired, until it removes them.
    [b"DBSIZE"],
    [b"INFO"],
]
UNORDERED = {b"KEYS", b"SMEMBERS", b"HGETALL", b"HKEYS", b"HVALS", b"EXEC", b"SCAN"}
# Those of scripts are a matter of their own.
SCRIPTING = b"eval evalsha fcall fcall_ro function script".split()
COMMANDS = [name for name in TABLE if not name.startswith(b"ai.") and name not in SCRIPTING]
WHOLE = re.compile(rb"0|-?[1-9][0-9]{0,17}")
LOOKS = {"string": "GET", "list": "LRANGE", "hash": "HGETALL", "set": "SMEMBERS"}


class Remaining:
    """A time to live in seconds, negative if unlimited: equal on both servers within moments."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Remaining):
            return NotImplemented
        return abs(self.seconds - other.seconds) < (30 if min(self.seconds, other.seconds) > 0 else 0.5)

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    """A Redis with one database, as tensordb has."""
    with plain_redis("--databases", "1") as url:
        yield url


@pytest.fixture
def pair(wire: Wire, redis: str) -> Iterator[tuple[Wire, Wire]]:
    """A connection to tensordb and one to Redis."""
    with Wire(redis) as other:
        yield wire, other


def comparable(request: Request, reply: Any) -> Any:
    """A reply without what may differ."""
    name, *args = [word.upper() for word in request]
    if name == b"SCAN" and args and not WHOLE.fullmatch(args[0]):
        return None  # tensordb's cursors are integers as everywhere else
    if isinstance(reply, WireError):
        # Redis, of 80 bits, says of other numbers than tensordb that they are out of range, or negative.
        return re.sub("^(ERR timeout) is .*", r"\1", str(reply))
    if reply == "QUEUED":
        return reply
    if [name] in OWN or [name, *args[:1]] in OWN:
        return None
    if name in (b"TTL", b"PTTL"):
        return Remaining(reply if name == b"TTL" or reply < 0 else reply / 1000)
    if name == b"SCAN" and (args[0] != b"0" or b"1000" not in args):
        return None  # the order is each server's own
    if name == b"HELLO":
        return {field: value for field, value in pairs(reply) if field != b"id"}
    return unordered(reply) if name in UNORDERED else reply


def pairs(reply: Any) -> list[tuple[Any, Any]]:
    """The fields and values of a map, in RESP2 or RESP3."""
    return list(reply.items()) if isinstance(reply, dict) else list(zip(reply[::2], reply[1::2], strict=True))


def unordered(reply: Any) -> Any:
    """Return a reply with sorted arrays, sets and maps."""
    match reply:
        case WireError():
            return str(reply)
        case list() | frozenset():
            return sorted(map(unordered, reply), key=repr)
        case dict():
            return sorted(reply.items())
    return reply


def explained(request: Request, ours: Any) -> bool:
    """Whether the difference is one that is meant to be."""
    words = [word.upper() for word in request[:2]]
    lacking = isinstance(ours, str) and ours.startswith("ERR unknown subcommand") and words[0].lower() in TABLE
    newer = words == [b"CLIENT", b"SETINFO"]  # Redis 7.2's, sent by clients when they connect
    return lacking or newer


def answers(wire: Wire, sent: list[Request]) -> list[Any]:
    """The replies to requests that are sent all at once, beginning with an empty database."""
    fresh(wire)
    wire("FLUSHALL")
    wire.send(b"".join(encode(*request) for request in sent))
    return [wire.read() for _ in sent]


def fresh(wire: Wire) -> None:
    """End a transaction, and speak RESP2 again."""
    wire.send(encode("EXEC"))
    wire.read()
    wire("HELLO", 2)


def left(wire: Wire) -> dict[bytes, Any]:
    """What the database holds: of every key the type, the time to live and the value."""
    fresh(wire)
    found = {}
    for key in wire("KEYS", "*"):
        kind = wire("TYPE", key)
        value = wire(LOOKS[kind], key, *([0, -1] if kind == "list" else []))
        found[key] = (kind, Remaining(wire("TTL", key)), value if kind == "list" else unordered(value))
    return found


@pytest.mark.parametrize("hostile", [False, True], ids=["valid", "hostile"])
def test_replies_and_what_is_left_are_those_of_redis(pair: tuple[Wire, Wire], hostile: bool) -> None:
    count = 0
    for sent in rounds(1, hostile):
        for request, ours, theirs in zip(sent, *(answers(wire, sent) for wire in pair), strict=True):
            one, other = comparable(request, ours), comparable(request, theirs)
            assert one == other or explained(request, one), (request, sent)
        assert left(pair[0]) == left(pair[1]), sent
        count += len(sent)
        if count >= REQUESTS:
            break


def test_patterns_match_what_they_match_in_redis(pair: tuple[Wire, Wire]) -> None:
    order = random.Random(1)
    patterns = [bytes(order.choices(b"aabc**?[]]^--\\", k=order.randint(0, 8))) for _ in range(10_000)]
    found = []
    for wire in pair:
        wire("FLUSHALL")
        for key in ("", "ab", "abc", "a-b", "a]b", *"ab[]^*-\\\n"):
            wire("SET", key, 1)
        wire.send(b"".join(encode("KEYS", pattern) for pattern in patterns))
        found.append([sorted(wire.read()) for _ in patterns])
    assert found[0] == found[1]


def test_the_fields_of_info_are_those_of_redis(pair: tuple[Wire, Wire]) -> None:
    """Under the same names, in the same sections, as numbers where Redis has numbers."""
    found = []
    for wire in pair:
        wire("SET", "k", "v")
        wire("SCRIPT", "EXISTS", "0")
        wire("INFO")  # it counts itself from the next one on
        sections: dict[str, dict[str, bool]] = {}
        for line in wire("INFO", "everything").decode().splitlines():
            if line.startswith("#"):
                fields = sections.setdefault(line, {})
            elif line:
                name, _, value = line.partition(":")
                fields[name] = value.replace(".", "").isdigit()
        found.append(sections)
    ours, theirs = found
    del ours["# Server"]["tensordb_version"]
    # Other tests may have sent only one of them other commands.
    sent = ("cmdstat_set", "cmdstat_script|exists", "cmdstat_info")
    ours["# Commandstats"] = {name: ours["# Commandstats"][name] for name in sent}
    for section, fields in ours.items():
        assert fields.items() <= theirs[section].items()
