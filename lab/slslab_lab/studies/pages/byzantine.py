"""What was found of Byzantine workers, for docs/byzantine.md: findings and tables of `slslab reproduce byzantine`."""

from pathlib import Path

from slslab_lab.pages.grids import grids
from slslab_lab.studies.catalogue import STUDIES
from slslab_lab.studies.pages.markdown import insert, paragraph, render

BEGIN, END = "<!-- byzantine: `python docs/build.py` writes what was found -->", "<!-- end of byzantine -->"


def insert_findings(page: Path) -> str:
    """Return a page with findings, tables and notes between its marks; ValueError if it has none."""
    document = STUDIES["byzantine"].replay()
    parts = [*map(paragraph, document["findings"])]
    for table in grids(document):
        parts += [f"**{table.caption}**", render(table)]
    return insert(page, BEGIN, END, "\n\n".join((*parts, *map(paragraph, document["notes"]))))
