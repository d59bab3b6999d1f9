"""What `slslab reproduce` prints: published, recomputed, measured and modelled figures side by side."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slslab.report.terminal.tables import plain_table
from slslab_lab.pages.grids import Document, Grid, grids, notes, reasons
from slslab_lab.pages.verdicts import agreement


def reproduction(document: Document) -> RenderableType:
    """Return a reproduced table or figure of a paper, made from its document."""
    title = f"{document['table']['title']} ({document['table']['source']} of {document['paper']['published']})"
    parts: list[RenderableType] = [
        Text(title, "bold"),
        *(Text(sentence, "bold") for sentence in agreement(document)),
        *map(_table, grids(document)),
    ]
    if differing := reasons(document):
        parts.append(Text("Why they differ:\n" + "\n".join(differing)))
    return Group(*parts, Text("\n".join(notes(document)), "dim"))


def _table(grid: Grid) -> Table:
    # Long headings are broken at their spaces.
    headings = (heading.replace(", ", "\n") for heading in grid.headings[1:])
    table = plain_table((grid.headings[0], *headings), grid.rows, title=grid.title, words=grid.words)
    for column in table.columns[1 : grid.names]:
        column.justify = "left"
    if grid.caption:
        table.caption, table.caption_justify = grid.caption, "left"
    return table
