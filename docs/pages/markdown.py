"""Parts of pages as Markdown: paragraphs of the documentation's width, lists, and tables."""

import re
import textwrap

from slslab.report.page import Card, Note, Parts, Row, Table

WIDTH = 120
# Before and after the part of a page that is built.
BEGIN, END = "<!-- {}: `python -m docs.build` writes it -->", "<!-- end of {} -->"
_CODE = re.compile(r"`[^`]+`")
_SPACE = "\0"


def render(shown: Parts) -> str:
    """Return one or several parts: a text of several lines is a list, and of one a paragraph or a heading."""
    match shown:
        case str():
            several = shown.splitlines()
            return "\n".join(f"- {line}" for line in several) if len(several) > 1 else paragraph(shown)
        case Note():
            return render(shown.text)
        case Table():
            caption = f"**{shown.caption}**\n\n" if shown.caption else ""
            note = f"\n\n{paragraph(shown.note)}" if shown.note else ""
            rules = ["---" if number in shown.words else "---:" for number in range(len(shown.columns))]
            return caption + "\n".join(map(_line, (shown.columns, rules, *shown.rows, *shown.totals))) + note
        case Card():
            return render((f"### {shown.title}", *shown.tables, *shown.notes))
    return "\n\n".join(map(render, shown))


def paragraph(text: str) -> str:
    """Return the text in lines of the documentation's width; code and headings aren't broken."""
    if text.startswith("#"):
        return text
    kept = _CODE.sub(lambda match: match[0].replace(" ", _SPACE), text)
    return textwrap.fill(kept, WIDTH, break_long_words=False, break_on_hyphens=False).replace(_SPACE, " ")


def _line(row: Row) -> str:
    """Return a line of a table. Bars in cells are escaped."""
    texts = (cell if isinstance(cell, str) else cell.text for cell in row)
    return f"| {' | '.join(text.replace('|', chr(92) + '|').replace(chr(10), '<br>') for text in texts)} |"


def insert(page: str, name: str, shown: Parts) -> str:
    """Return a page with these parts between the marks of `name`, each on its own line; ValueError without marks."""
    begin, end = BEGIN.format(name), END.format(name)
    before, mark, rest = page.partition(f"{begin}\n")
    _, closing, after = rest.partition(f"{end}\n")
    if not (mark and closing):
        raise ValueError(f"the page lacks the marks {begin} and {end}")
    return f"{before}{mark}\n{render(shown)}\n\n{closing}{after}"


def code(text: str) -> str:
    """Return the text as code; empty for an empty text."""
    return f"`{text}`" if text else ""
