r"""Match keys against Redis's patterns: `*`, `?`, `[abc]`, `[^a-z]`, and `\` before a literal character."""

import re
from functools import lru_cache

from slslab.tensordb.replies import CommandError

# The closing bracket may be missing, and a range may end with one.
TOKEN = re.compile(rb"\[(\^?)((?:\\.|[^\]]-.|[^\]])*+)\]?|\\.|.", re.DOTALL)
# Longer patterns would take seconds, while other clients wait.
LONGEST = 64 * 1024
MEMBER = re.compile(rb"\\.|(.)-(.)|.", re.DOTALL)


def matches(pattern: bytes, text: bytes) -> bool:
    """Return whether the whole text matches a pattern."""
    if not text:
        return pattern in (b"", b"*")  # as in Redis, which compares only while text remains
    return _compiled(pattern).fullmatch(text) is not None


@lru_cache(maxsize=64)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    if len(pattern) > LONGEST:
        raise CommandError(f"ERR slslab takes patterns of at most {LONGEST} bytes")
    parts: list[list[bytes]] = [[]]  # between the stars
    for token in TOKEN.finditer(pattern):
        if token[0] == b"*":
            parts.append([])
        elif token[0] == b"?":
            parts[-1].append(b".")
        elif token[2] is not None:
            parts[-1].append(_choice(token[1], token[2]))
        else:
            parts[-1].append(re.escape(token[0][-1:]))
    first, *middle = map(b"".join, parts)
    if middle:
        last = middle.pop()
        # After a star, take a piece where it first fits and never go back; otherwise time is exponential in stars.
        between = b"".join(b"(?>.*?%s)" % piece for piece in middle if piece)
        first = b"%s%s.*%s" % (first, between, last)
    compiled = re.compile(first, re.DOTALL)
    re.purge()  # its own cache keeps five hundred, which may be large
    return compiled


def _choice(inverted: bytes, members: bytes) -> bytes:
    """Return the expression for one character from a bracket's members, or for any other character."""
    if not members:
        return b"." if inverted else b"(?!)"
    parts = []
    for member in MEMBER.finditer(members):
        ends = sorted(member.groups()) if member[1] else [member[0][-1:]]
        parts.append(b"-".join(map(re.escape, ends)))
    return b"[%s%s]" % (inverted, b"".join(parts))
