"""Lua's `cmsgpack`: MessagePack, as far as lua-cmsgpack knows it."""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from slslab.tensordb.lua.arguments import LuaError, Value, bad, number, text, type_name

DEEPEST = 16
UNSIGNED = ((1 << 8, 0xCC, ">B"), (1 << 16, 0xCD, ">H"), (1 << 32, 0xCE, ">I"), (1 << 64, 0xCF, ">Q"))
SIGNED = ((1 << 7, 0xD0, ">b"), (1 << 15, 0xD1, ">h"), (1 << 31, 0xD2, ">i"), (1 << 63, 0xD3, ">q"))
# By the first byte: numbers, then the formats of lengths of strings, arrays and maps.
NUMBERS = {first: form for _, first, form in UNSIGNED + SIGNED} | {0xCA: ">f", 0xCB: ">d"}
STRINGS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xC4: ">B", 0xC5: ">H", 0xC6: ">I"}
ARRAYS = {0xDC: ">H", 0xDD: ">I"}
MAPS = {0xDE: ">H", 0xDF: ">I"}
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def _pack(*arguments: Value) -> bytes:
    if not arguments:
        raise bad(0, "pack", "MessagePack pack needs input.")
    return b"".join(part for value in arguments for part in _parts(value, 0))


def _parts(value: Value, depth: int) -> Iterator[bytes]:
    kind = type_name(value)
    if kind == "string":
        yield _head(len(value), 0xA0, 32, ((1 << 8, 0xD9, ">B"), (1 << 16, 0xDA, ">H"), (1 << 32, 0xDB, ">I")))
        yield value
    elif kind == "boolean":
        yield b"\xc3" if value else b"\xc2"
    elif kind == "number":
        yield _number(value)
    elif kind == "table" and depth < DEEPEST:
        items = dict(value.items())
        lengths = ((1 << 16, 0xDC, ">H"), (1 << 32, 0xDD, ">I"))
        if all(isinstance(place, int) and 0 < place <= len(items) for place in items):
            yield _head(len(items), 0x90, 16, lengths)
            for place in range(1, len(items) + 1):
                yield from _parts(items[place], depth + 1)
        else:
            yield _head(len(items), 0x80, 16, tuple((most, first + 2, form) for most, first, form in lengths))
            for name, member in items.items():
                yield from _parts(name, depth + 1)
                yield from _parts(member, depth + 1)
    else:
        yield b"\xc0"


def _head(length: int, first: int, short: int, forms: tuple[tuple[int, int, str], ...]) -> bytes:
    if length < short:
        return bytes([first | length])
    return next(bytes([code]) + struct.pack(form, length) for most, code, form in forms if length < most)


def _number(value: int | float) -> bytes:
    if isinstance(value, float):
        try:
            if struct.unpack(">f", short := struct.pack(">f", value))[0] == value:
                return b"\xca" + short
        except OverflowError:
            pass
        return b"\xcb" + struct.pack(">d", value)
    if 0 <= value < 128 or -32 <= value < 0:
        return struct.pack(">b", value)
    if value >= 0:
        return next(bytes([code]) + struct.pack(form, value) for most, code, form in UNSIGNED if value < most)
    return next(bytes([code]) + struct.pack(form, value) for most, code, form in SIGNED if value >= -most)


class _Reader:
    def __init__(self, data: bytes, at: int, table: Callable[[Any], Value]) -> None:
        self._data = data
        self._table = table
        self.at = at

    def value(self) -> Value:
        first = self._take(1)[0]
        if first < 0x80 or first >= 0xE0:
            return first - (256 if first >= 0xE0 else 0)
        if first in CONSTANTS:
            return CONSTANTS[first]
        if first in NUMBERS:
            return float(self._number(NUMBERS[first]))
        if 0xA0 <= first < 0xC0 or first in STRINGS:
            return self._take(self._number(STRINGS[first]) if first in STRINGS else first & 31)
        if 0x90 <= first < 0xA0 or first in ARRAYS:
            count = self._number(ARRAYS[first]) if first in ARRAYS else first & 15
            return self._table([self.value() for _ in range(count)])
        if 0x80 <= first < 0x90 or first in MAPS:
            count = self._number(MAPS[first]) if first in MAPS else first & 15
            return self._table({self._key(): self.value() for _ in range(count)})
        raise LuaError("Bad data format in input.")

    def _key(self) -> Value:
        key = self.value()
        # Lua itself, called for it from Python, would not come back.
        if key is None or key != key:
            raise LuaError(f"table index is {'nil' if key is None else 'NaN'}")
        return key

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _take(self, count: int) -> bytes:
        if self.at + count > len(self._data):
            raise LuaError("Missing bytes in input.")
        self.at += count
        return self._data[self.at - count : self.at]


def functions(table: Callable[[Any], Value]) -> Mapping[str, Callable[..., Value]]:
    """Return the library's functions; `table` makes a Lua table of a list or dict."""

    def unpack(arguments: tuple[Value, ...], name: str, limit: int, offset: int) -> tuple[Value, ...]:
        data = text(arguments, 1, name)
        if offset < 0 or limit < 0:
            raise LuaError(f"Invalid request to unpack with offset of {offset} and limit of {len(data)}.")
        if offset > len(data):
            raise LuaError(f"Start offset {offset} greater than input length {len(data)}.")
        reader = _Reader(data, offset, table)
        found: list[Value] = []
        while reader.at < len(data) and (limit == 0 or len(found) < limit):
            found.append(reader.value())
        if name == "unpack":
            return tuple(found)
        return (reader.at if reader.at < len(data) else -1, *found)

    def optional(arguments: tuple[Value, ...], place: int, name: str, otherwise: int) -> int:
        return int(number(arguments, place, name)) if len(arguments) >= place else otherwise

    def unpack_one(*arguments: Value) -> tuple[Value, ...]:
        return unpack(arguments, "unpack_one", 1, optional(arguments, 2, "unpack_one", 0))

    def unpack_limit(*arguments: Value) -> tuple[Value, ...]:
        limit = int(number(arguments, 2, "unpack_limit"))
        return unpack(arguments, "unpack_limit", limit, optional(arguments, 3, "unpack_limit", 0))

    return {
        "pack": _pack,
        "unpack": lambda *arguments: unpack(arguments, "unpack", 0, 0),
        "unpack_one": unpack_one,
        "unpack_limit": unpack_limit,
    }
