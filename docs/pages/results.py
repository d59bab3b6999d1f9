"""docs/results.md: the project's own results for the papers' tables and figures. It is built only from `results/` and
`papers/`: recordings are replayed, nothing is run."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from docs.pages.markdown import insert, paragraph, render

from slslab.report.page import Document
from slslab_lab.pages.reproduction import model_errors, notes, reasons, tables
from slslab_lab.studies.catalogue import STUDIES

TITLE = "# Results"
# The marks of a page's part on a study.
BEGIN, END = "<!-- {}: `python -m docs.build` writes what was found -->", "<!-- end of {} -->"
INTRODUCTION = """
This page compares the papers with this project's own recordings. `python -m docs.build` builds it from the recordings
and curves in `results/` and the published numbers in `papers/`; the command next to each part prints the same.
**Published** figures are shown as printed, **recomputed** ones are arithmetic on the paper's own figures, **measured**
ones come from the named host, and **modelled** ones (≈) from replaying a recording on AWS.
"""
SHOWN = (
    *("table2", "table3", "mlless-filter", "in-database", "lambdaml-table3", "fig2", "lambdaml-fig7", "lambdaml-fig8"),
    *("lambdaml-table1", "kubeml-times", "kubeml-accuracy"),
)
# Titles of pages that show only a part of the table.
PARTS = {"mlless-filter": ": the filter of MLLess", "in-database": ": the databases of SPIRT"}


def build() -> str:
    """Return the whole page, with each reproduction from the committed recordings and curves."""
    parts = [TITLE, paragraph(INTRODUCTION.strip())]
    for name in SHOWN:
        parts += _section(name, replayed(name))
    return "\n\n".join(parts) + "\n"


@cache
def replayed(name: str) -> Document:
    """Return a study of the committed recordings."""
    return STUDIES[name].replay()


def _section(name: str, document: Document) -> Iterator[str]:
    title, paper = document["table"]["title"], document["paper"]
    command = f"{name} --fidelity replayed" if "fidelity" in STUDIES[name].options else name
    yield f"## {title}{PARTS.get(name, '')}"
    yield paragraph(f"{document['table']['source']} of {paper['title']} ({paper['published']}).")
    yield f"```\n$ slslab reproduce {command}\n```"
    yield from reproduction(document)


def reproduction(document: Document) -> Iterator[str]:
    """Yield a reproduction's document as Markdown, findings first."""
    if found := document.get("findings"):
        yield _list(found)
    yield _list([*model_errors(document), *notes(document)])
    for table in tables(document):
        yield f"### {table.caption}"
        yield render(table)
        if table.note:
            yield paragraph(f"{table.note}.")
    if why := reasons(document):
        yield "### Why figures differ"
        yield _list(why)


def _list(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def insert_study(name: str, page: Path) -> str:
    """Return a page with a study's findings and tables between its marks; ValueError without marks."""
    document = replayed(name)
    parts = [*map(paragraph, document["findings"])]
    for table in tables(document):
        parts += [f"**{table.caption}**", render(table)]
    text = "\n\n".join((*parts, *map(paragraph, document["notes"])))
    return insert(page.read_text(encoding="utf-8"), BEGIN.format(name), END.format(name), text)
