"""What all tables on the terminal share."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from decimal import Decimal

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table

Cells = Sequence[RenderableType]


class FittingTable(Table):
    """A table of which no word is cut where it is wider than the terminal.

    Its names and headings are wrapped; if that is not enough, it is turned, or else columns are left out in the order
    of `dispensable`, which a line below it tells. Words are broken only where nothing of that is enough.
    """

    dispensable: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the first of its forms that fits."""
        for table in self._forms():
            if table.fit(console, options):
                break
        else:
            for column in table.columns:
                column.width, column.no_wrap, column.overflow = None, False, "fold"
        yield from Table.__rich_console__(table, console, options)

    def fit(self, console: Console, options: ConsoleOptions) -> bool:
        """Set the widths of columns so that no word is broken; return whether there is room for them."""
        measured = [
            [Measurement.get(console, options, cell) for cell in (column.header, *column.cells)]
            for column in self.columns
        ]
        least = [max(cell.minimum for cell in cells) for cells in measured]
        # A space at both sides of each cell, one between two cells, and one at both edges.
        spare = options.max_width - sum(least) - 3 * len(least) - 1
        for column, width, cells in zip(self.columns, least, measured, strict=True):
            more = max(0, min(spare, max(cell.maximum for cell in cells) - width))
            column.width, column.no_wrap = width + more, False
            spare -= more
        return spare >= 0

    def _forms(self) -> "Iterator[FittingTable]":
        yield self
        names, *others = ((column.header, *column.cells) for column in self.columns)
        turned = FittingTable(box=self.box, title=self.title, title_justify="left", title_style="bold")
        turned.caption, turned.caption_justify = self.caption, self.caption_justify
        for number, name in enumerate(names):
            turned.add_column(name, justify="right" if number else "left")
        for cells in others:
            turned.add_row(*cells)
        yield turned
        for number in range(1, len(self.dispensable) + 1):
            out = self.dispensable[:number]
            table = copy(self)
            table.columns = [copy(column) for column in self.columns if column.header not in out]
            notes = (self.caption, f"Not shown at this width: {', '.join(out)}.")
            table.caption, table.caption_justify = "\n".join(str(note) for note in notes if note), "left"
            yield table


def plain_table(
    headings: Sequence[str],
    rows: Iterable[Cells] = (),
    totals: Iterable[Cells] = (),
    *,
    title: str | None = None,
    words: bool = False,
    dispensable: Sequence[str] | None = None,
) -> Table:
    """Return a table whose first column holds names and whose others hold numbers, or words; a line precedes totals.

    With `dispensable`, the headings of columns that may be left out, it is a FittingTable.
    """
    kind = Table if dispensable is None else FittingTable
    table = kind(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    if isinstance(table, FittingTable):
        table.dispensable = dispensable or ()
    table.add_column(headings[0], no_wrap=True)
    for heading in headings[1:]:
        table.add_column(heading, justify="left" if words else "right")
    for row in rows:
        table.add_row(*row)
    table.add_section()
    for row in totals:
        table.add_row(*row)
    return table


def money(amount: str) -> str:
    """Return an amount of money with six decimals."""
    return f"{Decimal(amount):.6f}"
