"""Redis's patterns for keys: `*`, `?`, `[abc]`, `[^a-z]`, and `\\` before a character that stands for itself."""

import re
from functools import lru_cache

# Of a bracket the closing one may be missing, and the end of a range may be one itself.
TOKEN = re.compile(rb"\[(\^?)((?:\\.|[^\]]-.|[^\]])*+)\]?|\\.|.", re.DOTALL)
MEMBER = re.compile(rb"\\.|(.)-(.)|.", re.DOTALL)


def matches(pattern: bytes, text: bytes) -> bool:
    """Return whether the whole text matches a pattern."""
    if not text:
        return pattern in (b"", b"*")  # as in Redis, which compares while there is text
    return _compiled(pattern).fullmatch(text) is not None


@lru_cache(maxsize=64)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    pieces = [b""]  # between the stars
    for token in TOKEN.finditer(pattern):
        if token[0] == b"*":
            pieces.append(b"")
        elif token[0] == b"?":
            pieces[-1] += b"."
        elif token[2] is not None:
            pieces[-1] += _choice(token[1], token[2])
        else:
            pieces[-1] += re.escape(token[0][-1:])
    first, *middle = pieces
    if not middle:
        return re.compile(first, re.DOTALL)
    last = middle.pop()
    # After a star its piece may be taken where it first fits, for good: otherwise time grows exponentially in stars.
    between = b"".join(b"(?>.*?%s)" % piece for piece in middle if piece)
    return re.compile(b"%s%s.*%s" % (first, between, last), re.DOTALL)


def _choice(inverted: bytes, members: bytes) -> bytes:
    """Return the expression for one character of a bracket's members, or of all others."""
    if not members:
        return b"." if inverted else b"(?!)"
    parts = []
    for member in MEMBER.finditer(members):
        ends = sorted(member.groups()) if member[1] else [member[0][-1:]]
        parts.append(b"-".join(map(re.escape, ends)))
    return b"[%s%s]" % (inverted, b"".join(parts))
