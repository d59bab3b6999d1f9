"""What was found of Byzantine workers, for docs/byzantine.md: findings and tables of `slslab reproduce byzantine`."""

from pathlib import Path

from slslab.report.page import Document
from slslab.run.bill import DEFAULT_BOOK, load_book
from slslab_lab.pages.grids import grids
from slslab_lab.papers.paper import load_paper
from slslab_lab.studies import byzantine
from slslab_lab.studies.pages.markdown import insert, paragraph, render

BEGIN, END = "<!-- byzantine: `python docs/build.py` writes what was found -->", "<!-- end of byzantine -->"


def byzantine_document() -> Document:
    """Return the reproduction from the committed accuracies."""
    found, book = byzantine.read(byzantine.committed()), load_book(DEFAULT_BOOK)
    return byzantine.build(load_paper(byzantine.PAPER), found, book, "replayed")


def insert_findings(page: Path) -> str:
    """Return a page with findings, tables and notes between its marks; ValueError if it has none."""
    document = byzantine_document()
    parts = [*map(paragraph, document["findings"])]
    for table in grids(document):
        parts += [f"**{table.caption}**", render(table)]
    return insert(page, BEGIN, END, "\n\n".join((*parts, *map(paragraph, document["notes"]))))
