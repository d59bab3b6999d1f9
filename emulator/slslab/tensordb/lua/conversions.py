"""Replies of commands as values of Lua, and results of scripts as replies.

Source: redis.io/docs/latest/develop/programmability/lua-api, "Data type conversion".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from slslab.tensordb.lua.arguments import Value
from slslab.tensordb.replies import CommandError, NullArray, Reply, Simple

SMALLEST, LARGEST = -(1 << 63), (1 << 63) - 1


def measure(reply: Reply) -> tuple[int, int]:
    """Return the number of a reply's values, itself included, and the bytes of its strings."""
    if isinstance(reply, (bytes, memoryview, str)):
        return 1, len(reply)
    if isinstance(reply, Mapping):
        return measure(list(chain.from_iterable(reply.items())))
    if isinstance(reply, (Sequence, frozenset)):
        measured = [measure(element) for element in reply]
        return 1 + sum(count for count, _ in measured), sum(size for _, size in measured)
    return 1, 0


def to_lua(reply: Reply, protocol: int, table: Callable[[Any], Value]) -> Value:
    """Return a reply as a script sees it; `protocol` is RESP's version, `table` makes a Lua table of a list or dict."""

    def convert(element: Reply) -> Value:
        if isinstance(element, (bytes, int)):
            return element
        if isinstance(element, memoryview):
            return bytes(element)
        if isinstance(element, str):
            return element.encode()
        if element is None or isinstance(element, NullArray):
            return False if protocol == 2 else None
        if isinstance(element, Simple):
            return table({b"ok": element.text.encode()})
        if isinstance(element, CommandError):
            return table({b"err": str(element).encode()})
        if isinstance(element, float):
            return b"%.17g" % element if protocol == 2 else table({b"double": element})
        if protocol == 3 and isinstance(element, Mapping):
            return table({b"map": table({key: convert(value) for key, value in element.items()})})
        if protocol == 3 and isinstance(element, frozenset):
            return table({b"set": table(dict.fromkeys(element, True))})
        members = chain.from_iterable(element.items()) if isinstance(element, Mapping) else element
        return table([convert(member) for member in members])

    return convert(reply)


def from_lua(result: Value) -> Reply:
    """Return a script's result as a reply; a table comes as the tokens of sandbox.lua."""
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
        case "string" | "big_number" | "verbatim_string":
            return bytes(value)
        case "number":
            # As C casts a double, which it does to the smallest number for what has no place in 64 bits.
            return int(value) if SMALLEST <= value <= LARGEST and int(value) <= LARGEST else SMALLEST
        case "boolean":
            return 1 if value else None
        case "double":
            return float(value)
        case "err":
            return CommandError(value.decode(errors="replace"))
        case "ok":
            return Simple(value.replace(b"\r", b" ").replace(b"\n", b" ").decode(errors="replace"))
        case "list":
            return [following() for _ in range(value)]
        case "map":
            return {_name(following()): following() for _ in range(value)}
        case "set":
            return frozenset(_name(following()) for _ in range(value))
    return None


def _name(reply: Reply) -> bytes:
    return reply if isinstance(reply, bytes) else str(reply).encode()
