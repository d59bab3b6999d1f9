"""docs/what-the-paper-did-not-say.md: what papers say and does not hold, with the arithmetic, and each printed figure
beside what its own inputs give. Built from `papers/` alone."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

from slslab.expressions import as_text
from slslab.papers import Discrepancy, Paper, Ranking, Row, Table, load_paper, paper_names
from slslab.recomputing import CANNOT, DIFFERS, Recomputed, Worked, percent, rank, recompute, round_off, work_out
from slslab.reports.pages.markdown import code, paragraph, table

# A recomputed value is shown with so many significant digits at least, and with so many after the printed ones.
SIGNIFICANT, BEYOND = 5, 2
TITLE = "# What the paper did not say"
INTRODUCTION = """
What papers printed is data of this project ([published numbers](papers.md)), and so is what in them does not add up, is
said in two ways, or is not what the authors' released code does. This page is built from that data by
`python docs/build.py`; every value on it is calculated, exactly, from the figures beside it. Nothing here is measured
or modelled.
"""
EVERY_FIGURE = """
Each figure that can be calculated from others, in every way that the data names, with the printed digits beside it. A
value **agrees** if it rounds to them. The verdict is **rounding** if it is less than one unit of the last printed digit
away, or if another way gives the printed digits and this value is among those that its rounded figures may have stood
for. Otherwise it **differs**, by what is printed against it. Values
are shown with five significant digits or more, two beyond the printed ones; verdicts are found before that.
"""


def build() -> str:
    """The whole page."""
    papers = [load_paper(name) for name in paper_names()]
    parts = [TITLE, paragraph(INTRODUCTION.strip())]
    for paper in papers:
        if paper.discrepancies:
            parts += _discrepancies(paper)
    parts += ["## Every figure, recomputed", paragraph(EVERY_FIGURE.strip())]
    for paper in papers:
        parts += _recomputed(paper)
    return "\n\n".join(parts) + "\n"


def _discrepancies(paper: Paper) -> list[str]:
    parts = [f"## {paper.title}", paragraph(f"{paper.authors}. {paper.published}.")]
    topic = ""
    for number, one in enumerate(paper.discrepancies, start=1):
        if one.topic != topic:
            topic = one.topic
            parts.append(f"### {topic}")
        parts += _discrepancy(paper, number, one)
    return parts


def _discrepancy(paper: Paper, number: int, one: Discrepancy) -> list[str]:
    parts = [
        f"#### {number}. {one.title}",
        paragraph(f"*{one.where}.*"),
        paragraph(f"**Said:** {one.said}"),
        paragraph(f"**Found:** {one.found}"),
    ]
    if one.workings:
        parts.append(_workings([work_out(paper, working) for working in one.workings]))
    return [*parts, paragraph(f"**Here:** {one.consequence}")]


def _workings(lines: Sequence[Worked]) -> str:
    printed = any(line.printed is not None for line in lines)
    headings = ["", "arithmetic", "with its numbers", "value", *(["printed"] if printed else [])]
    rows = []
    for line in lines:
        named = line.expression if line.expression != line.filled else ""
        cells = [line.what, code(named), code(line.filled), f"{line.shown} {line.unit}".strip()]
        rows.append([*cells, *([_digits(line.printed)] if printed else [])])
    return table(headings, rows, (3, 4))


def _recomputed(paper: Paper) -> list[str]:
    parts = []
    for name, one in paper.tables.items():
        if one.formulas:
            parts += [f"#### {one.title}", paragraph(f"*{one.source}.*"), _formulas(one), *_columns(paper, name, one)]
        parts += [_ranking(paper, name, ranking) for ranking in one.rankings]
    if not parts:
        return []
    ways = [f"- {code(way)}: {meaning}" for way, meaning in paper.ways.items()]
    return [f"### {paper.title}", *(["\n".join(ways)] if ways else []), *parts]


def _formulas(one: Table) -> str:
    rows = [
        [code(column), code(way), code(formula.text)]
        for column, ways in one.formulas.items()
        for way, formula in ways.items()
    ]
    return table(("column", "way", "arithmetic"), rows)


def _columns(paper: Paper, name: str, one: Table) -> Iterable[str]:
    """A table for each column that has formulas: rows, the printed figure, and a value and verdict for each way."""
    cells = recompute(paper, name)
    for column, ways in one.formulas.items():
        printed = any(column in row.published for row in one.rows)
        rows = []
        for row, found in zip(one.rows, cells, strict=True):
            mine = {cell.way: cell for cell in found if cell.column == column and cell.verdict != CANNOT}
            if mine:
                published = [_digits(row.published.get(column))] if printed else []
                rows.append([_name(row), *published, *(_value(mine.get(way)) for way in ways)])
        unit = one.units[column]
        title = code(column) if unit == column else f"{code(column)}, {unit}"
        headings = [title, *(["printed"] if printed else []), *map(code, ways)]
        yield table(headings, rows, range(1, len(headings)))


def _ranking(paper: Paper, name: str, one: Ranking) -> str:
    orders = {"published": rank(paper, name, one.column), "recomputed": rank(paper, name, one.column, one.ways)}
    rows = [
        [group, basis, ", ".join(f"{row} {_shown(value, None)}" for row, value in order[group])]
        for group in orders["published"]
        for basis, order in orders.items()
    ]
    return table((f"{one.title}, {paper.table(name).units[one.column]}", "", "the least first"), rows)


def _name(row: Row) -> str:
    return f"{row.name}, {row.group}" if row.group else row.name


def _value(one: Recomputed | None) -> str:
    if one is None or one.value is None:
        return "–"
    shown = _shown(one.value, one.published)
    if one.verdict == DIFFERS and one.difference is not None:
        return f"{shown} {one.verdict} {percent(one.difference)}"
    return f"{shown} {one.verdict}".rstrip()


def _shown(value: Decimal, published: Decimal | None) -> str:
    """The value with the digits that it has, but for those that say no more than the printed ones do."""
    places = SIGNIFICANT - 1 - value.adjusted() if value else 0
    if published is not None:
        places = max(places, BEYOND - int(published.as_tuple().exponent))
    rounded = round_off(value, max(0, places))
    return as_text(value if rounded == value else rounded)


def _digits(value: Decimal | None) -> str:
    return "–" if value is None else as_text(value)
