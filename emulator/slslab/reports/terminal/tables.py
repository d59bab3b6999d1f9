"""What all tables on the terminal share."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

from rich import box
from rich.console import RenderableType
from rich.table import Table

Cells = Sequence[RenderableType]


def plain_table(
    headings: Sequence[str],
    rows: Iterable[Cells] = (),
    totals: Iterable[Cells] = (),
    *,
    title: str | None = None,
    words: bool = False,
) -> Table:
    """Return a table whose first column holds names and whose others hold numbers, or words; a line precedes totals."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
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
