"""Convert between Lua's values and Python's: strings are bytes, numbers int or float, and nil is None.

Functions may also return lists and dicts, which become tables.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeAlias


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


NAMES: Mapping[type, str] = {type(None): "nil", bool: "boolean", int: "number", float: "number", bytes: "string"}


def type_name(value: Value) -> str:
    """Return Lua's name of a value's type."""
    return NAMES.get(type(value), "table" if type(value).__name__ == "_LuaTable" else "function")


def bad(position: int, name: str, complaint: str) -> LuaError:
    """Return the error for an argument, counted from 1."""
    return LuaError(f"bad argument #{position} to '{name}' ({complaint})")


def number(arguments: tuple[Value, ...], position: int, name: str, absent: str = "no value") -> int | float:
    """Return a number, which may be a string; LuaError if it isn't one, `absent` if it is missing."""
    value = arguments[position - 1] if position <= len(arguments) else None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    if isinstance(value, bytes):
        with suppress(ValueError):
            return float(value)
    raise bad(position, name, f"number expected, got {absent if position > len(arguments) else type_name(value)}")


def text(arguments: tuple[Value, ...], position: int, name: str, absent: str = "no value") -> bytes:
    """Return a string, or a number as a string; LuaError if it is neither, `absent` if it is missing."""
    value = arguments[position - 1] if position <= len(arguments) else None
    if isinstance(value, bytes):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return b"%.14g" % value
    raise bad(position, name, f"string expected, got {absent if position > len(arguments) else type_name(value)}")
