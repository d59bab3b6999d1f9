"""docs/what-the-paper-did-not-say.md: errors and gaps in papers, with the arithmetic, and each printed figure next to
the result of its own inputs. Built only from `papers/`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from docs.pages.markdown import code

from slslab.report.formats import MISSING
from slslab.report.page import WORDS, Part, Table
from slslab_lab.pages.reproduction import LEGEND, column_table
from slslab_lab.papers.expressions import as_decimal, as_text
from slslab_lab.papers.paper import Discrepancy, Paper, Working, load_paper, paper_names
from slslab_lab.papers.recomputation import recompute, round_off
from slslab_lab.studies.documents import ReproducedRow, cell_of

INTRODUCTION = (
    "This project keeps the papers' printed figures as data ([published numbers](papers.md)), and also records where "
    "they don't add up, contradict each other, or differ from the authors' released code. `python -m docs.build` "
    "builds this page from that data. Every value on it is calculated exactly from the figures next to it; nothing "
    "here is measured or modelled."
)
EVERY_FIGURE = (
    "Each figure that can be calculated from others, in every way that the data defines, next to the printed digits. "
    "It equals them if it rounds to them. It differs only by rounding if it is less than one unit of the last printed "
    "digit away, or if another way gives the printed digits and this value could come from the same figures before "
    "rounding. Values are shown with seven significant digits; signs use the exact values."
)


@dataclass(frozen=True)
class Worked:
    """A line of arithmetic with its numbers filled in; `shown` is its value, rounded for reading."""

    what: str
    expression: str
    filled: str
    value: Decimal
    shown: str
    unit: str
    printed: Decimal | None


def build() -> Iterator[Part]:
    """Yield the page."""
    papers = [load_paper(name) for name in paper_names()]
    yield "# What the paper did not say"
    yield INTRODUCTION
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
    yield "## Every figure, recomputed"
    yield EVERY_FIGURE
    yield LEGEND
    for paper in papers:
        if tables := list(_recomputed(paper)):
            yield f"### {paper.title}"
            yield "\n".join(f"{code(way)}: {meaning}" for way, meaning in paper.ways.items())
            yield from tables


def _describe(paper: Paper, number: int, discrepancy: Discrepancy) -> Iterator[Part]:
    yield f"#### {number}. {discrepancy.title}"
    yield f"*{discrepancy.where}.*"
    yield f"**Said:** {discrepancy.said}"
    yield f"**Found:** {discrepancy.found}"
    if discrepancy.workings:
        yield _workings([work_out(paper, working) for working in discrepancy.workings])
    yield f"**Here:** {discrepancy.consequence}"


def work_out(paper: Paper, working: Working) -> Worked:
    """Calculate a line of arithmetic of this paper."""
    expression, operands = paper.operands(working)
    value = as_decimal(expression.evaluate(operands))
    printed, unit = working.printed, working.unit
    if working.column:
        printed = paper.row(working.table, working.row, working.group).published.get(working.column)
        unit = unit or paper.table(working.table).units[working.column]
    return Worked(
        working.what,
        expression.text,
        expression.fill(operands),
        value,
        as_text(round_off(value, working.places)),
        unit,
        printed,
    )


def _workings(lines: Sequence[Worked]) -> Table:
    rows = []
    for line in lines:
        named = line.expression if line.expression != line.filled else ""
        printed = MISSING if line.printed is None else as_text(line.printed)
        rows.append((line.what, code(named), code(line.filled), f"{line.shown} {line.unit}".strip(), printed))
    return Table(("", "arithmetic", "with its numbers", "value", "printed"), rows, words=(0, 1, 2)).filled()


def _recomputed(paper: Paper) -> Iterator[Part]:
    """Yield, for each table with formulas, its arithmetic, and its columns as reproductions show them."""
    for name, table in paper.tables.items():
        if not table.formulas:
            continue
        yield f"#### {table.title}"
        yield f"*{table.source}.*"
        formulas = [
            (code(column), code(way), code(formula.text))
            for column, ways in table.formulas.items()
            for way, formula in ways.items()
        ]
        yield Table(("column", "way", "arithmetic"), formulas, words=WORDS)
        rows = []
        for row, recomputed in zip(table.rows, recompute(paper, name), strict=True):
            # Signs say enough here.
            again = [replace(way, reason="") for way in recomputed]
            cells = {column: cell_of(row, again, column) for column in table.formulas}
            rows.append(ReproducedRow(row.name, row.group, "", cells))
        document = {"rows": [row.as_document() for row in rows]}
        for column in table.formulas:
            yield column_table(document, {"name": column, "title": column, "unit": table.units[column]})
