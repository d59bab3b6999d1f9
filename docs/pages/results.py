"""docs/results.md: the project's own results for the papers' tables and figures. It is built only from `results/` and
`papers/`: recordings are replayed, nothing is run."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from slslab.report.page import Document, Part, Table
from slslab_lab.pages.reproduction import notes, reproduction, tables
from slslab_lab.studies.catalogue import STUDIES

INTRODUCTION = (
    "This page compares the papers with this project's own recordings. `python -m docs.build` builds it from the "
    "recordings and curves in `results/` and the published numbers in `papers/`; the command next to each part prints "
    "the same. **Published** figures are shown as printed, **recomputed** ones are arithmetic on the paper's own "
    "figures, **measured** ones come from the named host, and **modelled** ones (≈) from replaying a recording on AWS."
)
SHOWN = (
    *("table2", "table3", "mlless-filter", "in-database", "lambdaml-table3", "fig2", "lambdaml-fig7", "lambdaml-fig8"),
    *("lambdaml-table1", "kubeml-times", "kubeml-accuracy"),
)
# Titles of pages that show only a part of the table.
PARTS = {"mlless-filter": ": the filter of MLLess", "in-database": ": the databases of SPIRT"}


def build() -> Iterator[Part]:
    """Yield the page, with each reproduction from the committed recordings and curves."""
    yield "# Results"
    yield INTRODUCTION
    for name in SHOWN:
        document = replayed(name)
        fidelity = " --fidelity replayed" if "fidelity" in STUDIES[name].options else ""
        yield f"## {document['table']['title']}{PARTS.get(name, '')}"
        yield f"`slslab reproduce {name}{fidelity} --full`:"
        yield from with_headings(reproduction(document))


@cache
def replayed(name: str) -> Document:
    """Return a study of the committed recordings."""
    return STUDIES[name].replay()


def describe_study(name: str) -> Iterator[Part]:
    """Yield a study's findings, tables and notes."""
    document = replayed(name)
    yield from document["findings"]
    yield from tables(document)
    # The first is the legend of signs that these tables don't have.
    yield from notes(document)[1:]


def with_headings(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the parts with the captions of tables as headings."""
    for part in parts:
        if isinstance(part, Table) and part.caption:
            yield f"### {part.caption}"
            part = replace(part, caption="")
        yield part
