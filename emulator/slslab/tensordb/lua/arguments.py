"""Convert between Lua's values and Python's: strings are bytes, numbers int or float, and nil is None.

Functions may also return lists and dicts, which become tables. Replies of commands become Lua values, and results of
scripts replies: redis.io/docs/latest/develop/programmability/lua-api, "Data type conversion".
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias

from slslab.tensordb.replies import CommandError, NullArray, Reply, Simple

SMALLEST, LARGEST = -(1 << 63), (1 << 63) - 1


class ScriptError(Exception):
    """A script isn't valid, or ended with an error; the text is Lua's, with the line if it is known."""


class OutOfMemory(Exception):
    """The script needs more memory than its limit; the runtime must not be used again."""


Value: TypeAlias = Any


def measure(value: Value) -> tuple[int, int]:
    """Return the number of values in a value (itself, and all in its lists and dicts), and the bytes of its strings."""
    if isinstance(value, bytes):
        return 1, len(value)
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list):
        measured = [measure(element) for element in value]
        return 1 + sum(count for count, _ in measured), sum(size for _, size in measured)
    return 1, 0


class LuaError(Exception):
    """An error in the words of Lua's library, to be raised where the script made the call."""


def type_name(value: Value) -> str:
    """Return Lua's name of a value's type."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, bytes):
        return "string"
    return "table" if type(value).__name__ == "_LuaTable" else "function"


def bad(position: int, name: str, complaint: str) -> LuaError:
    """Return the error for an argument, counted from 1."""
    return LuaError(f"bad argument #{position} to '{name}' ({complaint})")


def number(arguments: tuple[Value, ...], position: int, name: str, absent: str = "no value") -> int | float:
    """Return a number, which may be a string; LuaError if it isn't one, `absent` if it is missing."""
    value = arguments[position - 1] if position <= len(arguments) else None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    if isinstance(value, bytes):
        try:
            return float(value)
        except ValueError:
            pass
    raise bad(position, name, f"number expected, got {absent if position > len(arguments) else type_name(value)}")


def text(arguments: tuple[Value, ...], position: int, name: str, absent: str = "no value") -> bytes:
    """Return a string, or a number as a string; LuaError if it is neither, `absent` if it is missing."""
    value = arguments[position - 1] if position <= len(arguments) else None
    if isinstance(value, bytes):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return b"%.14g" % value
    raise bad(position, name, f"string expected, got {absent if position > len(arguments) else type_name(value)}")


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
