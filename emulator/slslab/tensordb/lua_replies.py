"""Convert replies of commands to Lua values, and results of scripts to replies.

Source: redis.io/docs/latest/develop/programmability/lua-api, "Data type conversion".
"""

from collections.abc import Iterator, Mapping
from itertools import chain

from slslab.tensordb.lua.arguments import Value
from slslab.tensordb.replies import CommandError, NullArray, Reply, Simple

SMALLEST, LARGEST = -(1 << 63), (1 << 63) - 1


def to_lua(reply: Reply) -> Value:
    """Return a reply as a script sees it, by RESP2, with tables as lists and dicts."""
    if isinstance(reply, (bytes, int)):
        return reply
    if isinstance(reply, memoryview):
        return bytes(reply)
    if isinstance(reply, str):
        return reply.encode()
    if reply is None or isinstance(reply, NullArray):
        return False
    if isinstance(reply, Simple):
        return {b"ok": reply.text.encode()}
    if isinstance(reply, CommandError):
        return {b"err": str(reply).encode()}
    if isinstance(reply, float):
        return b"%.17g" % reply
    members = chain.from_iterable(reply.items()) if isinstance(reply, Mapping) else reply
    return [to_lua(member) for member in members]


def from_lua(result: Value) -> Reply:
    """Return a script's result as a reply; a table arrives as sandbox.lua's tokens."""
    if isinstance(result, list):
        kinds_and_values = iter(result)
        return _reply(next(kinds_and_values).decode(), next(kinds_and_values), kinds_and_values)
    if isinstance(result, bytes):
        return result
    if isinstance(result, bool):
        return _reply("boolean", result, iter(()))
    if isinstance(result, (int, float)):
        return _reply("number", result, iter(()))
    return None


def _reply(kind: str, value: Value, rest: Iterator[Value]) -> Reply:
    def following() -> Reply:
        return _reply(next(rest).decode(), next(rest), rest)

    match kind:
        case "string":
            return bytes(value)
        case "number":
            # As C casts a double: numbers that don't fit into 64 bits become the smallest integer.
            return int(value) if SMALLEST <= value <= LARGEST and int(value) <= LARGEST else SMALLEST
        case "boolean":
            return 1 if value else None
        case "err":
            return CommandError(value.decode(errors="surrogateescape"))
        case "ok":
            return Simple(value.replace(b"\r", b" ").replace(b"\n", b" ").decode(errors="replace"))
        case "list":
            return [following() for _ in range(value)]
    return None
