"""Scripts, and what redis-server 7 answers to them. Recorded by `python -m tests.emulator.tensordb.lua.recorded`."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.emulator.tensordb.plain_redis import plain_redis
from tests.emulator.tensordb.wire import Wire, WireError, encode

HERE = Path(__file__).parent
REPLIES = HERE / "replies.json"
DECODE = (
    "local ok, r = pcall(cjson.decode, ARGV[1]) if not ok then return r end "
    "if type(r) == 'number' then return tostring(r) end return {type(r), cjson.encode(r)}"
)
NUMBERS = f"[{','.join(['-0.0,1.5,2e-7,-3'] * 40)}]"
RESP3 = (
    "return {true, false, 1.9}",
    "redis.call('HSET', 'h', 'a', 'b') return redis.call('HGETALL', 'h')",
    "return redis.call('HGETALL', 'absent')",
    "return redis.call('GET', 'absent')",
)
Command = tuple[Any, ...]


def _script(name: str, *steps: Command) -> list[Command]:
    """The commands that run a script: of each step, the number of keys, the keys and the arguments; or a command."""
    text = (HERE / "scripts" / f"{name}.lua").read_text()
    return [("EVAL", text, *step) if isinstance(step[0], int) else step for step in steps]


SCRIPTS: dict[str, list[Command]] = {
    "fixed_window": _script("fixed_window", *[(1, "limit", 2, 100)] * 3, ("TTL", "limit")),
    "sliding_log": _script(
        "sliding_log", *[(1, "log", at, 1000, 2) for at in (5000, 5400, 5800, 6000, 6001)], ("LRANGE", "log", 0, -1)
    ),
    "token_bucket": _script(
        "token_bucket",
        *[(1, "bucket", 10, "0.5", at, asked) for at, asked in ((100, 7), (101, 4), (102.2, 4), (200, 11))],
        ("HGET", "bucket", "at"),
    ),
    "lock_release": _script(
        "lock_release", ("SET", "lock", "me"), (1, "lock", "other"), (1, "lock", "me"), (1, "lock", "me")
    ),
    "lock_extend": _script(
        "lock_extend",
        *[("SET", "lock", "me"), (1, "lock", "me", 5000, 0), ("SET", "lock", "me", "PX", 100000)],
        *[(1, "lock", "me", 5000, 1), (1, "lock", "other", 5000, 1), (1, "absent", "me", 5000, 1), ("TTL", "lock")],
    ),
    "queue_take": _script(
        "queue_take",
        ("LPUSH", "jobs", '{"id":"a","payload":{"n":[1,2.5]}}', '{"id":"b"}', "{bad", '{"id":"c","payload":"é/"}'),
        *[(3, "jobs", "mine", "attempts", 3), (3, "jobs", "mine", "attempts", 3), (3, "jobs", "mine", "attempts", 1)],
        ("LRANGE", "mine", 0, -1),
        ("HGET", "attempts", "a"),
    ),
    "enqueue_once": _script("enqueue_once", (2, "q", "seen", "x", "y", "x"), (2, "q", "seen"), ("LRANGE", "q", 0, -1)),
    "reserve": _script(
        "reserve",
        ("HSET", "stock", "bolt", 5, "nut", 2),
        (1, "stock", '{"nut": 1, "bolt": 4}'),
        (1, "stock", '{"nut": 1, "bolt": 4}'),
        (1, "stock", '{"nut": 1,}'),
        (1, "stock", '{"gear": 1}'),
        ("HGETALL", "stock"),
    ),
    "average_json": _script(
        "average_json",
        ("RPUSH", "g", "[1, 2.5, -0.0, 1e-7]", "[2, 0.1, -0.0, 3]", "[0.3, 1e300, -0.0, 7]"),
        *[(1, "g", 3, 0), (1, "g", 2, 1), ("GET", "averaged_gradient_0"), (1, "absent", 2, 1), (1, "g", "x", 1)],
        *[("RPUSH", "g", "oops"), (1, "g", 4, 0)],
    ),
    "average_layers": _script(
        "average_layers",
        (
            *("RPUSH", "u", '{"weight": 1, "layers": {"w": [1, 2], "b": null}}', '{"skip": true}'),
            '{"weight": 3, "layers": {"w": [3, 4.5], "b": [0.1]}}',
        ),
        *[(2, "u", "mean"), ("HGET", "mean", "w"), ("RPUSH", "u", '{"layers": {"w": [1]}}'), (2, "u", "mean")],
    ),
    "average_floats": _script(
        "average_floats",
        *[(2, "v", "mean", 2, struct.pack("<3f", *vector)) for vector in ((1, 2, 3), (0.5, -7, 1e30))],
        *[("EXISTS", "v"), (2, "v", "mean", 1, b"12345")],
    ),
}


def commands() -> Iterator[tuple[str, Command]]:
    """All commands in their order, with the name of their group; the first of each is FLUSHALL."""
    for name, steps in SCRIPTS.items():
        yield name, ("FLUSHALL",)
        yield from ((name, step) for step in steps)
    yield "statements", ("FLUSHALL",)
    yield "statements", ("SET", "str", "abc")
    for statement in (HERE / "statements.txt").read_text().splitlines():
        yield "statements", ("EVAL", statement.replace("⏎", "\n"), 0)
    yield "json", ("FLUSHALL",)
    for text in json.loads((HERE / "json_texts.json").read_text()):
        yield "json", ("EVAL", DECODE, 0, text.replace("NUMBERS", NUMBERS[1:-1]).encode("utf-8", "surrogateescape"))
    yield "resp3", ("FLUSHALL",)
    for statement in RESP3:
        yield "resp3", ("EVAL", statement, 0)
    yield "commands", ("FLUSHALL",)
    for command in json.loads((HERE / "commands.json").read_text()):
        yield "commands", tuple(command)


def plain(reply: Any) -> Any:
    """A reply as JSON can tell it."""
    if isinstance(reply, bytes):
        return {"bulk": reply.decode("latin-1")}
    if isinstance(reply, WireError):
        return {"error": str(reply)}
    if isinstance(reply, dict):
        return {"map": [[plain(name), plain(value)] for name, value in reply.items()]}
    if isinstance(reply, frozenset):
        return {"set": sorted(element.decode() for element in reply)}
    return [plain(element) for element in reply] if isinstance(reply, list) else reply


def replies(url: str) -> list[list[Any]]:
    """What a server answers to all commands: group, command and reply."""
    found = []
    with Wire(url) as wire:
        for group, command in commands():
            if command == ("FLUSHALL",):
                wire("HELLO", 3 if group == "resp3" else 2)
            wire.send(encode(*command))
            found.append([group, " ".join(map(str, command))[:200], plain(wire.read())])
    return found


def main() -> None:
    """Record the replies of the host's redis-server."""
    with plain_redis() as url:
        lines = ",\n".join(json.dumps(entry) for entry in replies(url))
    REPLIES.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
