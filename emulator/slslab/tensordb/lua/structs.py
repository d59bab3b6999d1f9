"""Implement Lua's `struct`: values as bytes in a given format."""

import ctypes
import re
import struct
from collections.abc import Callable, Iterator, Mapping

from slslab.tensordb.lua.arguments import LuaError, Value, bad, number, text

OPTION = re.compile(r"[!iIc][0-9]{0,9}|.", re.DOTALL)
# The codes of Python's struct. A string that a zero ends has no size of its own.
CODES = {option: option for option in "bBhHiIfdx"} | {"l": "q", "L": "Q", "c": "s", "s": ""}
CODES |= {"i1": "b", "I1": "B", "i2": "h", "I2": "H", "i4": "i", "I4": "I", "i8": "q", "I8": "Q"}


def _options(form: bytes, name: str) -> Iterator[tuple[str, str]]:
    """Yield the letter of each option of a format, and its format in Python's struct."""
    order = "<"
    for found in OPTION.finditer(form.decode("latin-1")):
        option = found[0]
        if option in "<>=":
            order = ">" if option == ">" else "<"
        elif option in CODES:
            yield option[0], order + CODES[option]
        elif option[0] == "c" and int(option[1:]) > 0:
            yield "c", f"{order}{option[1:]}s"
        elif option != " ":
            raise bad(1, name, f"invalid format option '{option}'")


def _pack(*arguments: Value) -> bytes:
    packed, position = bytearray(), 2
    for option, code in _options(text(arguments, 1, "pack"), "pack"):
        if option == "x":
            packed += b"\0"
            continue
        if option == "s":
            packed += text(arguments, position, "pack", "nil") + b"\0"
        elif option == "c":
            body = text(arguments, position, "pack", "nil")
            if len(body) < struct.calcsize(code):
                raise bad(position + 1, "pack", "string too short")
            packed += struct.pack(code, body)
        else:
            packed += _number(number(arguments, position, "pack", "nil"), option, code)
        position += 1
    return bytes(packed)


def _number(value: int | float, option: str, code: str) -> bytes:
    """Return a number's bytes, after C's cast of a double to its type."""
    if option in "fd":
        return struct.pack(code, ctypes.c_float(value).value if option == "f" else value)
    integer = int(value) if -(2.0**63) <= value < 2.0**64 else -(1 << 63)
    return struct.pack(code.upper(), integer & (1 << 8 * struct.calcsize(code)) - 1)


def _unpack(*arguments: Value) -> tuple[Value, ...]:
    form, data = text(arguments, 1, "unpack"), text(arguments, 2, "unpack")
    start = int(number(arguments, 3, "unpack")) if len(arguments) > 2 else 1
    if start == 0:
        raise bad(3, "unpack", "offset must be 1 or greater")
    at = start - 1
    found: list[Value] = []
    for option, code in _options(form, "unpack"):
        if at < 0 or at + struct.calcsize(code) > len(data):
            raise bad(2, "unpack", "data string too short")
        if option == "s":
            end = data.find(b"\0", at)
            if end < 0:
                raise LuaError("unfinished string in data")
            code = f"{end - at}sx"
        found += struct.unpack_from(code, data, at)
        at += struct.calcsize(code)
    return (*found, at + 1)


def _size(*arguments: Value) -> int:
    size = 0
    for option, code in _options(text(arguments, 1, "size"), "size"):
        if option == "s":
            raise bad(1, "size", "option 's' has no fixed size")
        size += struct.calcsize(code)
    return size


FUNCTIONS: Mapping[str, Callable[..., Value]] = {"pack": _pack, "unpack": _unpack, "size": _size}
