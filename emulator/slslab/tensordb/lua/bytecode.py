"""Remove tail calls from compiled Lua 5.1.

A tail call replaces its caller's frame. Redis's own functions are in C, which runs in another frame; ours are in Lua,
so `return redis.call(…)` would lose the line that an error names. The instruction after a tail call returns whatever
the call left on the stack, so a plain call in its place does the same.

Source: lundump.c and lopcodes.h of Lua 5.1, on a 64-bit little-endian host.
"""

import struct

HEADER = b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00"
CALL, TAIL_CALL, OPCODE = 28, 29, 0x3F
NIL, BOOLEAN, NUMBER, STRING = 0, 1, 3, 4


def without_tail_calls(code: bytes) -> bytes:
    """Return the result of `string.dump` with each tail call replaced by a plain call."""
    if not code.startswith(HEADER):
        raise ValueError("This is not Lua 5.1's code of a 64-bit little-endian host.")
    patched = bytearray(code)
    end = _function(patched, len(HEADER))
    assert end == len(patched)
    return bytes(patched)


def _function(code: bytearray, at: int) -> int:
    """Patch the function that begins there, and the functions inside it; return where it ends."""
    at = _string(code, at) + 12  # two line numbers and four bytes
    count, at = _count(code, at)
    for place in range(at, at + 4 * count, 4):
        if code[place] & OPCODE == TAIL_CALL:
            code[place] = code[place] & ~OPCODE | CALL
    count, at = _count(code, at + 4 * count)
    for _ in range(count):
        kind, at = code[at], at + 1
        at = _string(code, at) if kind == STRING else at + {NIL: 0, BOOLEAN: 1, NUMBER: 8}[kind]
    count, at = _count(code, at)
    for _ in range(count):
        at = _function(code, at)
    count, at = _count(code, at)
    count, at = _count(code, at + 4 * count)
    for _ in range(count):
        at = _string(code, at) + 8
    count, at = _count(code, at)
    for _ in range(count):
        at = _string(code, at)
    return at


def _count(code: bytearray, at: int) -> tuple[int, int]:
    return struct.unpack_from("<i", code, at)[0], at + 4


def _string(code: bytearray, at: int) -> int:
    return at + 8 + int(struct.unpack_from("<Q", code, at)[0])
