"""Redis's patterns for keys: `*`, `?`, `[abc]`, `[^a-z]`, and `\\` before a character that means itself."""

import re
from functools import lru_cache


def matches(pattern: bytes, text: bytes) -> bool:
    """Whether the whole of a text has a pattern's form."""
    return _compiled(pattern).fullmatch(text) is not None


@lru_cache(maxsize=64)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    pieces: list[bytes] = []  # between the stars
    piece = b""
    at = 0
    while at < len(pattern):
        if pattern[at : at + 1] == b"*":
            pieces.append(piece)
            piece = b""
            at += 1
        else:
            one, at = _one(pattern, at)
            piece += one
    if not pieces:
        return re.compile(piece, re.DOTALL)
    # After a star its piece may be taken where it first fits, for good: otherwise many stars take for ever.
    middle = b"".join(b"(?>.*?%s)" % between for between in pieces[1:] if between)
    return re.compile(b"%s%s.*%s" % (pieces[0], middle, piece), re.DOTALL)


def _one(pattern: bytes, at: int) -> tuple[bytes, int]:
    """The expression for one character of a text, and where the pattern goes on."""
    character = pattern[at : at + 1]
    if character == b"?":
        return b".", at + 1
    if character == b"\\" and at + 1 < len(pattern):
        return re.escape(pattern[at + 1 : at + 2]), at + 2
    if character == b"[":
        return _choice(pattern, at + 1)
    return re.escape(character), at + 1


def _choice(pattern: bytes, at: int) -> tuple[bytes, int]:
    inverted = pattern[at : at + 1] == b"^"
    at += inverted
    members = b""
    while at < len(pattern) and pattern[at : at + 1] != b"]":
        if pattern[at : at + 1] == b"\\" and at + 1 < len(pattern):
            at += 1
            members += re.escape(pattern[at : at + 1])
            at += 1
        elif pattern[at + 1 : at + 2] == b"-" and at + 2 < len(pattern):
            low, high = sorted((pattern[at : at + 1], pattern[at + 2 : at + 3]))
            members += b"%s-%s" % (re.escape(low), re.escape(high))
            at += 3
        else:
            members += re.escape(pattern[at : at + 1])
            at += 1
    if not members:
        return (b"." if inverted else b"(?!)"), at + 1
    return b"[%s%s]" % (b"^" if inverted else b"", members), at + 1
