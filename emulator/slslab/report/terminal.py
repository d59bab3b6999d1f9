"""Render cards, tables and notes for a terminal, with Rich."""

from collections.abc import Iterator
from dataclasses import replace

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from slslab.report import page

STYLES = {"answer": "bold", "muted": "dim", "good": "green", "warn": "yellow", "bad": "red"}


def render(shown: page.Parts) -> RenderableType:
    """Return one or several parts as something that Rich prints."""
    match shown:
        case str():
            return Text(shown)
        case page.Note():
            return _text(shown)
        case page.Table():
            return _table(shown) if shown.dispensable is None else FittingTable(shown)
        case page.Card():
            tables = [each if each.caption else replace(each, caption=shown.title) for each in shown.tables]
            facts = (
                [page.Table((shown.title, ""), shown.facts, words=page.WORDS, dispensable=())] if shown.facts else []
            )
            return render((*facts, *tables, *shown.notes))
    return Group(*(render(part) for part in shown))


def _text(shown: str | page.Note | page.Cell) -> Text:
    if isinstance(shown, str):
        return Text(shown)
    return Text(shown.text, " ".join(STYLES[mood] for mood in shown.mood.split()))


class FittingTable:
    """A table that avoids breaking words on a narrow terminal.

    It wraps names and headings. If that isn't enough, it swaps rows and columns, or else omits columns in the order of
    `dispensable` and says so below the table. Only if all that fails does it break words.
    """

    def __init__(self, shown: page.Table) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table's first form that fits."""
        for form in self._forms():
            table = _table(form)
            if _fit(table, console, options):
                break
        else:
            for column in table.columns:
                column.width, column.no_wrap, column.overflow = None, False, "fold"
        yield table

    def _forms(self) -> Iterator[page.Table]:
        shown = self._shown
        yield shown
        names, *others = zip(shown.columns, *shown.rows, *shown.totals, strict=True)
        yield replace(shown, columns=[str(_text(name)) for name in names], rows=others, totals=(), words=(0,))
        dispensable = shown.dispensable or ()
        for number in range(1, len(dispensable) + 1):
            out = dispensable[:number]
            kept = [place for place, heading in enumerate(shown.columns) if heading not in out]
            note = "\n".join(filter(None, (shown.note, f"Not shown at this width: {', '.join(out)}.")))
            yield replace(shown.with_columns(kept), note=note)


def _fit(table: Table, console: Console, options: ConsoleOptions) -> bool:
    """Set column widths so that no word is broken; return whether the table fits."""
    measured = [
        [Measurement.get(console, options, cell) for cell in (column.header, *column.cells)] for column in table.columns
    ]
    least = [max(cell.minimum for cell in cells) for cells in measured]
    widths = [max(cell.maximum for cell in cells) for cells in measured]
    # Each cell has a space on both sides; cells are separated, and the table edged, by another one.
    room = options.max_width - 3 * len(least) - 1
    while sum(widths) > room and widths != least:
        widest = max(range(len(least)), key=lambda number: (widths[number] > least[number], widths[number]))
        widths[widest] -= 1
    for column, width in zip(table.columns, widths, strict=True):
        column.width, column.no_wrap = width, False
    return sum(widths) <= room


def _table(shown: page.Table) -> Table:
    """Return a table with a line before its totals."""
    table = Table(box=box.SIMPLE_HEAD, title=shown.caption, title_justify="left", title_style="bold")
    table.caption, table.caption_justify = shown.note, "left"
    for number, heading in enumerate(shown.columns):
        words = not number or number in shown.words
        table.add_column(heading, justify="left" if words else "right", no_wrap=not number)
    for row in shown.rows:
        table.add_row(*map(_text, row))
    table.add_section()
    for row in shown.totals:
        table.add_row(*map(_text, row))
    return table
