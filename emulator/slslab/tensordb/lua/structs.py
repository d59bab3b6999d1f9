"""Implement Lua's `struct`: values as bytes in a given format."""

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from slslab.tensordb.lua.arguments import LuaError, Value, bad, number, text

SIZES = {"b": 1, "h": 2, "l": 8, "t": 8, "i": 4, "f": 4, "d": 8, "x": 1}
LARGEST = 32
MOST_DIGITS = 9
FORMATS = {4: "f", 8: "d"}


@dataclass
class _Item:
    """One option of a format: its letter, its size, and the zeros before it."""

    option: str
    size: int
    padding: int
    order: str  # as in Python's struct and int.to_bytes
    sign: str


def _items(form: str, name: str, offset: int = 0) -> Iterator[_Item]:
    """Yield a format's options; if the caller changes an option's size, it affects the next one's alignment."""
    order, sign, align, at = "little", "<", 1, 0
    while at < len(form):
        option, at = form[at], at + 1
        digits = ""
        while at < len(form) and form[at] in "0123456789" and option in "!iIc":
            digits, at = digits + form[at], at + 1
        if len(digits) > MOST_DIGITS:
            raise LuaError("integral size overflow")
        if option in "<>=":
            order, sign = ("big", ">") if option == ">" else ("little", "<")
        elif option == "!":
            align = int(digits or 8)
            if align == 0 or align & (align - 1):
                raise LuaError(f"alignment {align} is not a power of 2")
        elif option.lower() in SIZES and option not in "FDX":
            size = int(digits) if digits else SIZES[option.lower()]
            if size > LARGEST:
                raise LuaError(f"integral size {size} is larger than limit of {LARGEST}")
            unit = min(align, size)
            padding = 0
            if option != "x" and unit > 1:
                if unit & (unit - 1):
                    raise bad(1, name, f"invalid alignment {unit}")
                padding = -offset % unit
            item = _Item(option, size, padding, order, sign)
            yield item
            offset += padding + item.size
        elif option in "sc":
            item = _Item(option, int(digits) if digits else 1 if option == "c" else 0, 0, order, sign)
            yield item
            offset += item.size
        elif option != " ":
            raise bad(1, name, f"invalid format option '{option}'")


def _pack(*arguments: Value) -> bytes:
    packed, place = bytearray(), 2
    for item in _items(text(arguments, 1, "pack").decode("latin-1"), "pack"):
        packed += bytes(item.padding)
        if item.option == "x":
            packed += b"\0"
            continue
        if item.option in "sc":
            body = text(arguments, place, "pack", "nil")
            if len(body) < item.size:
                raise bad(place + 1, "pack", "string too short")
            item.size = item.size or len(body)
            packed += body[: item.size]
            if item.option == "s":
                packed += b"\0"
                item.size += 1
        else:
            value = number(arguments, place, "pack", "nil")
            if item.option in "fd":
                packed += _float(value, item)
            else:
                # As C casts a double to 64 bits.
                integer = int(value) if -(2.0**63) <= value < 2.0**64 else -(1 << 63)
                packed += (integer & (1 << 8 * item.size) - 1).to_bytes(item.size, item.order)  # type: ignore[arg-type]
        place += 1
    return bytes(packed)


def _float(value: int | float, item: _Item) -> bytes:
    try:
        return struct.pack(item.sign + FORMATS[item.size], value)
    except OverflowError:
        return struct.pack(item.sign + FORMATS[item.size], math.copysign(math.inf, value))


def _unpack(*arguments: Value) -> tuple[Value, ...]:
    form = text(arguments, 1, "unpack").decode("latin-1")
    data = text(arguments, 2, "unpack")
    start = int(number(arguments, 3, "unpack")) if len(arguments) > 2 else 1
    if start == 0:
        raise bad(3, "unpack", "offset must be 1 or greater")
    at = start - 1
    found: list[Value] = []
    for item in _items(form, "unpack", max(0, at)):
        if item.option == "c" and item.size == 0:
            if not found or not isinstance(found[-1], (int, float)):
                raise LuaError("format 'c0' needs a previous size")
            item.size = int(found.pop())
        at += item.padding
        if at < 0 or item.size < 0 or at + item.size > len(data):
            raise bad(2, "unpack", "data string too short")
        body = data[at : at + item.size]
        if item.option == "s":
            end = data.find(b"\0", at)
            if end < 0:
                raise LuaError("unfinished string in data")
            found.append(data[at:end])
            item.size = end + 1 - at
        elif item.option == "c":
            found.append(body)
        elif item.option in "fd":
            found.append(struct.unpack(item.sign + FORMATS[item.size], body)[0])
        elif item.option != "x":
            # C holds it in 64 bits.
            integer = int.from_bytes(body, item.order) & (1 << 64) - 1  # type: ignore[arg-type]
            bits = min(64, 8 * item.size)
            found.append(integer - (1 << bits) if item.option.islower() and integer >> (bits - 1) else integer)
        at += item.size
    return (*found, at + 1)


def _size(*arguments: Value) -> int:
    size = 0
    for item in _items(text(arguments, 1, "size").decode("latin-1"), "size"):
        if item.option in "sc" and item.size == 0:
            shown = "s" if item.option == "s" else "c0"
            raise bad(1, "size", f"option '{shown}' has no fixed size")
        size += item.padding + item.size
    return size


FUNCTIONS: Mapping[str, Callable[..., Value]] = {"pack": _pack, "unpack": _unpack, "size": _size}
