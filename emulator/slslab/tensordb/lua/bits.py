"""Lua's `bit`: operations on 32-bit integers."""

from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_, or_, xor

from slslab.tensordb.lua.arguments import Value, number

MASK = 0xFFFF_FFFF


def _unsigned(arguments: tuple[Value, ...], place: int, name: str) -> int:
    value = number(arguments, place, name)
    # Half-way cases to the even number, as the processor rounds; no bits of what is not finite.
    return round(value) & MASK if -(2.0**63) <= value < 2.0**63 else 0


def _signed(value: int) -> int:
    value &= MASK
    return value - (1 << 32) if value >> 31 else value


def _fold(name: str, combine: Callable[[int, int], int]) -> Callable[..., int]:
    def fold(*arguments: Value) -> int:
        return _signed(reduce(combine, (_unsigned(arguments, i, name) for i in range(1, max(1, len(arguments)) + 1))))

    return fold


def _shift(name: str, move: Callable[[int, int], int]) -> Callable[..., int]:
    def shift(*arguments: Value) -> int:
        return _signed(move(_unsigned(arguments, 1, name), _unsigned(arguments, 2, name) & 31))

    return shift


def _single(name: str, change: Callable[[int], int]) -> Callable[..., int]:
    return lambda *arguments: _signed(change(_unsigned(arguments, 1, name)))


def _tohex(*arguments: Value) -> bytes:
    value = _unsigned(arguments, 1, "tohex")
    digits = _signed(_unsigned(arguments, 2, "tohex")) if len(arguments) > 1 else 8
    written = b"%08X" % value if digits < 0 else b"%08x" % value
    return written[8 - min(8, abs(digits)) :]


FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "tobit": _single("tobit", lambda value: value),
    "bnot": _single("bnot", lambda value: ~value),
    "bswap": _single("bswap", lambda value: int.from_bytes(value.to_bytes(4, "little"), "big")),
    "band": _fold("band", and_),
    "bor": _fold("bor", or_),
    "bxor": _fold("bxor", xor),
    "lshift": _shift("lshift", lambda value, by: value << by),
    "rshift": _shift("rshift", lambda value, by: value >> by),
    "arshift": _shift("arshift", lambda value, by: _signed(value) >> by),
    "rol": _shift("rol", lambda value, by: value << by | value >> (32 - by)),
    "ror": _shift("ror", lambda value, by: value >> by | value << (32 - by)),
    "tohex": _tohex,
}
