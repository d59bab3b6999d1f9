"""Markdown of built pages: paragraphs of the documentation's width, and tables."""

import re
import textwrap
from collections.abc import Sequence

from slslab.report.page import Table

WIDTH = 120
_CODE = re.compile(r"`[^`]+`")
_SPACE = "\0"


def paragraph(text: str) -> str:
    """Return the text in lines of the documentation's width; code isn't broken."""
    kept = _CODE.sub(lambda match: match[0].replace(" ", _SPACE), text)
    return textwrap.fill(kept, WIDTH, break_long_words=False, break_on_hyphens=False).replace(_SPACE, " ")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a table; columns of these numbers are aligned to the right. A bar in a cell is escaped."""
    rules = ["---:" if number in numbers else "---" for number in range(len(headings))]
    lines = [headings, rules, *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def render(shown: Table) -> str:
    """Return a table, with its columns of numbers aligned to the right."""
    rows = [[cell if isinstance(cell, str) else cell.text for cell in row] for row in (*shown.rows, *shown.totals)]
    return table(shown.columns, rows, [number for number in range(len(shown.columns)) if number not in shown.words])


def insert(page: str, begin: str, end: str, text: str) -> str:
    """Return a page with this text between two marks, each on its own line; ValueError if the page lacks them."""
    before, mark, rest = page.partition(f"{begin}\n")
    _, closing, after = rest.partition(f"{end}\n")
    if not (mark and closing):
        raise ValueError(f"the page lacks the marks {begin} and {end}")
    return f"{before}{mark}\n{text}\n\n{closing}{after}"


def code(text: str) -> str:
    """Return the text as code; empty for an empty text."""
    return f"`{text}`" if text else ""
