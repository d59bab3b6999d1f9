"""docs/what-the-paper-did-not-say.md: errors and gaps in papers, with the arithmetic. Built only from `papers/`."""

from collections.abc import Iterator
from typing import NamedTuple

from docs.pages.markdown import code

from slslab.report.formats import MISSING
from slslab.report.page import Part, Table
from slslab_lab.papers.expressions import as_decimal, as_text
from slslab_lab.papers.paper import Discrepancy, Paper, Working, load_paper, paper_names
from slslab_lab.papers.recomputation import round_off

INTRODUCTION = (
    "This project keeps the papers' printed figures as data ([published numbers](papers.md)), and also records where "
    "they don't add up, contradict each other, or differ from the authors' released code. `python -m docs.build` "
    "builds this page from that data. Every value on it is calculated exactly from the figures next to it; nothing "
    "here is measured or modelled. `slslab reproduce NAME --full` recomputes a table's other figures, too."
)


class Line(NamedTuple):
    """A line of arithmetic: its title, the arithmetic as written (if it has names) and with numbers, the value, rounded
    for reading, with its unit, and the printed digits."""

    title: str
    arithmetic: str
    filled: str
    value: str
    printed: str


def build() -> Iterator[Part]:
    """Yield the page."""
    yield "# What the paper did not say"
    yield INTRODUCTION
    papers = [load_paper(name) for name in paper_names()]
    for paper in papers:
        if paper.discrepancies:
            yield f"## {paper.title}"
            yield f"{paper.authors}. {paper.published}."
        topic = ""
        for number, discrepancy in enumerate(paper.discrepancies, start=1):
            if discrepancy.topic != topic:
                topic = discrepancy.topic
                yield f"### {topic}"
            yield from _describe(paper, number, discrepancy)
    yield "## Names of ways"
    yield "Figures that can be calculated in several ways, here and in reproductions, have a name for each:"
    yield "\n".join(f"{code(way)}: {meaning}" for paper in papers for way, meaning in paper.ways.items())


def _describe(paper: Paper, number: int, discrepancy: Discrepancy) -> Iterator[Part]:
    yield f"#### {number}. {discrepancy.title}"
    yield f"*{discrepancy.where}.*"
    yield f"**Said:** {discrepancy.said}"
    yield f"**Found:** {discrepancy.found}"
    if discrepancy.workings:
        rows = [work_out(paper, working) for working in discrepancy.workings]
        yield Table(("", "arithmetic", "with its numbers", "value", "printed"), rows, words=(0, 1, 2)).filled()
    yield f"**Here:** {discrepancy.consequence}"


def work_out(paper: Paper, working: Working) -> Line:
    """Return a line of arithmetic of this paper."""
    expression, operands = paper.operands(working)
    value = round_off(as_decimal(expression.evaluate(operands)), working.places)
    printed, unit = working.printed, working.unit
    if working.column:
        printed = paper.row(working.table, working.row, working.group).published.get(working.column)
        unit = unit or paper.table(working.table).units[working.column]
    filled = expression.fill(operands)
    named = expression.text if expression.text != filled else ""
    shown = MISSING if printed is None else as_text(printed)
    return Line(working.what, code(named), code(filled), f"{as_text(value)} {unit}".strip(), shown)
