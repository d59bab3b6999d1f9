"""docs/results.md: what the project's own recordings and curves say of the papers. Built from `results/` and `papers/`
alone: recordings are played, nothing is run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slslab.billing import load_book
from slslab.papers import load_paper
from slslab.replay.profiles import load_profile
from slslab.reports.pages.markdown import code, paragraph, table
from slslab.reproductions import MODELS
from slslab.reproductions.experiments import committed, experiments, read_all
from slslab.reproductions.table2 import build as build_table2

Document = Mapping[str, Any]
TITLE = "# Results"
INTRODUCTION = """
What this project's own recordings say of the papers. The page is built by `python docs/build.py` from the recordings
and curves in `results/` and the published numbers in `papers/`, as the commands beside each part print it; nothing
on it is typed. **Published** stands as printed, **recomputed** is arithmetic on the paper's own figures, **measured**
was measured on the host that is named, **modelled** (≈) is what a recording's replay says of AWS.
"""
DIGITS = {"s": 2, "MB": 0, "USD": 4}
COMMAND = "slslab reproduce table2 --fidelity replayed"


def build() -> str:
    """The whole page."""
    parts = [TITLE, paragraph(INTRODUCTION.strip())]
    parts += list(_table2())
    return "\n\n".join(parts) + "\n"


def _table2() -> Iterator[str]:
    runs = read_all(committed(), experiments(MODELS))
    document = build_table2(
        load_paper("barrak-2025"),
        runs,
        load_profile("aws-us-east-1"),
        load_book("aws-us-east-1"),
        "replayed",
        lambda *_: None,
    )
    yield f"## {document['table']['title']}"
    paper = document["paper"]
    yield paragraph(f"{document['table']['source']} of {paper['title']} ({paper['published']}).")
    yield f"```\n$ {COMMAND}\n```"
    yield from reproduction(document)


def reproduction(document: Document) -> Iterator[str]:
    """A reproduction's document as Markdown: a table for each column, rankings, bills, and why what differs does."""
    yield "\n".join(f"- {one}" for one in document["notes"])
    for column in document["columns"]:
        found = _column(document, column)
        if found:
            yield f"### {column['title']}, {column['unit']}"
            yield found
    for ranking in document["rankings"]:
        yield f"### Ranking: {ranking['title']}, {ranking['unit']} ({ranking['verdict']})"
        yield _ranking(ranking)
        if ranking["reason"]:
            yield paragraph(f"Otherwise than published: {ranking['reason']}.")
    if any(one["lines"] for one in document["bills"]):
        yield "### What the paper counts, and what it leaves out, USD"
        for group in dict.fromkeys(one["group"] for one in document["bills"]):
            yield _bills([one for one in document["bills"] if one["group"] == group and one["lines"]], group)
        missing = [one for one in document["bills"] if one["reason"]]
        if missing:
            yield "\n".join(f"- No bill of {_name(one)}: {one['reason']}" for one in missing)
    reasons = [f"- {_name(row)}: {text}" for row, text in _reasons(document)]
    if reasons:
        yield "### Why figures differ"
        yield "\n".join(dict.fromkeys(reasons))


def _name(row: Document) -> str:
    return ", ".join(part for part in (row["name"], row["group"], row["variant"]) if part)


def _column(document: Document, column: Document) -> str:
    """Rows and variants with all that is known of one column; empty if nothing is."""
    name, digits = column["name"], DIGITS.get(column["unit"], 3)
    rows = [(row, row["cells"][name]) for row in document["rows"] if name in row["cells"]]
    shown = [basis for basis in ("measured", "modelled") if any(cell[basis] for _, cell in rows)]
    if not any(cell["published"] or any(cell[basis] for basis in shown) for _, cell in rows):
        return ""
    ways = list(dict.fromkeys(one["way"] for _, cell in rows for one in cell["recomputed"] if one["value"]))
    lines = []
    for row, cell in rows:
        if not cell["published"] and not any(cell[basis] for basis in shown):
            continue
        again = {one["way"]: one for one in cell["recomputed"] if one["value"]}
        difference = "–" if cell["difference"] is None else f"{cell['difference']:+.0%}"
        lines.append(
            [
                _name(row),
                cell["published"] or "–",
                *(_recomputed(again.get(way)) for way in ways),
                *(_estimate(cell[basis], digits, "≈" * (basis == "modelled")) for basis in shown),
                difference,
                cell["verdict"] or "–",
            ]
        )
    headings = ["", "published", *map(code, ways), *shown, "difference", "verdict"]
    return table(headings, lines, range(1, len(headings)))


def _recomputed(one: Document | None) -> str:
    return "–" if one is None else f"{float(one['value']):.6g}"


def _estimate(found: Document | None, digits: int, sign: str) -> str:
    if found is None:
        return "–"
    value = f"{sign}{found['value']:,.{digits}f}"
    return value if found["low"] is None else f"{value} ± {found['high'] - found['value']:,.{digits}f}"


def _ranking(ranking: Document) -> str:
    bases = [name for name, value in ranking.items() if isinstance(value, list)]
    rows = [[basis, ", ".join(f"{name} {value:.4f}" for name, value in ranking[basis])] for basis in bases]
    return table(("", "the least first"), rows)


def _bills(bills: Sequence[Document], group: str) -> str:
    items = list(dict.fromkeys(line["item"] for one in bills for line in one["lines"]))
    lines = [{line["item"]: line for line in one["lines"]} for one in bills]
    rows = []
    for item in items:
        counted = any(item in own and own[item]["in_paper"] for own in lines)
        cells = [f"≈{float(own[item]['amount']):.5f}" if item in own else "–" for own in lines]
        rows.append([f"{item}{' (the paper counts this)' * counted}", *cells])
    totals = [f"≈{sum(float(line['amount']) for line in one['lines']):.5f}" for one in bills]
    rows.append(["**whole bill**", *totals])
    headings = [group, *(f"{one['name']}, {one['variant']}" for one in bills)]
    return table(headings, rows, range(1, len(headings)))


def _reasons(document: Document) -> Iterator[tuple[Document, str]]:
    for row in document["rows"]:
        for cell in row["cells"].values():
            if cell["reason"]:
                yield row, cell["reason"]
