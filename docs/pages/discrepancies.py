"""docs/what-the-paper-did-not-say.md: errors and gaps in papers, with the arithmetic, and each printed figure next to
the result of its own inputs. Built only from `papers/`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from docs.pages.markdown import code, paragraph, table

from slslab_lab.papers.expressions import as_decimal, as_text
from slslab_lab.papers.paper import Discrepancy, Paper, Ranking, Table, Working, load_paper, paper_names
from slslab_lab.papers.recomputation import (
    CANNOT,
    DIFFERS,
    Recomputed,
    percent,
    rank,
    recompute,
    round_off,
)

# Show a recomputed value with at least this many significant digits, and this many digits more than printed.
SIGNIFICANT, BEYOND = 5, 2
TITLE = "# What the paper did not say"
INTRODUCTION = """
This project keeps the papers' printed figures as data ([published numbers](papers.md)), and also records where they
don't add up, contradict each other, or differ from the authors' released code. `python -m docs.build` builds this page
from that data. Every value on it is calculated exactly from the figures next to it; nothing here is measured or
modelled.
"""
EVERY_FIGURE = """
Each figure that can be calculated from others, in every way that the data defines, next to the printed digits. A value
**agrees** if it rounds to them. The verdict is **rounding** if it is less than one unit of the last printed digit away,
or if another way gives the printed digits and this value could come from the same figures before rounding. Otherwise it
**differs**, by the percentage next to it. Values are shown with at least five significant digits, two more than
printed; verdicts use the exact values.
"""


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


def build() -> str:
    """Return the whole page."""
    papers = [load_paper(name) for name in paper_names()]
    parts = [TITLE, paragraph(INTRODUCTION.strip())]
    parts += [part for paper in papers if paper.discrepancies for part in _discrepancies(paper)]
    parts += ["## Every figure, recomputed", paragraph(EVERY_FIGURE.strip())]
    parts += [part for paper in papers for part in _recomputed(paper)]
    return "\n\n".join(parts) + "\n"


def _discrepancies(paper: Paper) -> list[str]:
    parts = [f"## {paper.title}", paragraph(f"{paper.authors}. {paper.published}.")]
    topic = ""
    for number, discrepancy in enumerate(paper.discrepancies, start=1):
        if discrepancy.topic != topic:
            topic = discrepancy.topic
            parts.append(f"### {topic}")
        parts += _discrepancy(paper, number, discrepancy)
    return parts


def _discrepancy(paper: Paper, number: int, discrepancy: Discrepancy) -> list[str]:
    parts = [
        f"#### {number}. {discrepancy.title}",
        paragraph(f"*{discrepancy.where}.*"),
        paragraph(f"**Said:** {discrepancy.said}"),
        paragraph(f"**Found:** {discrepancy.found}"),
    ]
    if discrepancy.workings:
        parts.append(_workings([work_out(paper, working) for working in discrepancy.workings]))
    return [*parts, paragraph(f"**Here:** {discrepancy.consequence}")]


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
    for name, published in paper.tables.items():
        if published.formulas:
            parts += [
                f"#### {published.title}",
                paragraph(f"*{published.source}.*"),
                _formulas(published),
                *_columns(paper, name, published),
            ]
        parts += [_ranking(paper, name, ranking) for ranking in published.rankings]
    if not parts:
        return []
    ways = [f"- {code(way)}: {meaning}" for way, meaning in paper.ways.items()]
    return [f"### {paper.title}", *(["\n".join(ways)] if ways else []), *parts]


def _formulas(published: Table) -> str:
    rows = [
        [code(column), code(way), code(formula.text)]
        for column, ways in published.formulas.items()
        for way, formula in ways.items()
    ]
    return table(("column", "way", "arithmetic"), rows)


def _columns(paper: Paper, name: str, source: Table) -> Iterable[str]:
    """Yield a table for each column that has formulas: rows, the printed figure, each way's value and verdict."""
    cells = recompute(paper, name)
    for column, ways in source.formulas.items():
        printed = any(column in row.published for row in source.rows)
        rows = []
        for row, recomputed in zip(source.rows, cells, strict=True):
            mine = {cell.way: cell for cell in recomputed if cell.column == column and cell.verdict != CANNOT}
            if mine:
                published = [_digits(row.published.get(column))] if printed else []
                named = f"{row.name}, {row.group}" if row.group else row.name
                rows.append([named, *published, *(_value(mine.get(way)) for way in ways)])
        unit = source.units[column]
        title = code(column) if unit == column else f"{code(column)}, {unit}"
        headings = [title, *(["printed"] if printed else []), *map(code, ways)]
        yield table(headings, rows, range(1, len(headings)))


def _ranking(paper: Paper, name: str, ranking: Ranking) -> str:
    orders = {
        "published": rank(paper, name, ranking.column),
        "recomputed": rank(paper, name, ranking.column, ranking.ways),
    }
    rows = [
        [group, basis, ", ".join(f"{row} {_shown(value, None)}" for row, value in order[group])]
        for group in orders["published"]
        for basis, order in orders.items()
    ]
    return table((f"{ranking.title}, {paper.table(name).units[ranking.column]}", "", "the least first"), rows)


def _value(recomputed: Recomputed | None) -> str:
    if recomputed is None or recomputed.value is None:
        return "–"
    shown = _shown(recomputed.value, recomputed.published)
    if recomputed.verdict == DIFFERS and recomputed.difference is not None:
        return f"{shown} {recomputed.verdict} {percent(recomputed.difference)}"
    return f"{shown} {recomputed.verdict}".rstrip()


def _shown(value: Decimal, published: Decimal | None) -> str:
    """Return the value with its digits, without trailing ones that add nothing to the printed ones."""
    places = SIGNIFICANT - 1 - value.adjusted() if value else 0
    if published is not None:
        places = max(places, BEYOND - int(published.as_tuple().exponent))
    rounded = round_off(value, max(0, places))
    return as_text(value if rounded == value else rounded)


def _digits(value: Decimal | None) -> str:
    return "–" if value is None else as_text(value)
