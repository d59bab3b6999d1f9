"""Tables of a reproduction, made from its document alone: published, recomputed, measured, modelled side by side."""

import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slslab.reports.tables import plain_table

Document = Mapping[str, Any]
DIGITS = {
    "s": 2, "min": 2, "MB": 0, "USD": 4, "%": 2, "ratio": 2, "×": 2,
    "epochs": 0, "steps": 0, "updates": 0, "messages": 0, "B": 0,
}  # fmt: skip


def reproduction(document: Document) -> RenderableType:
    """What `slslab reproduce` prints of a table or figure."""
    title = f"{document['table']['title']} ({document['table']['source']} of {document['paper']['published']})"
    parts: list[RenderableType] = [Text(title, "bold")]
    parts += [_column(document, column) for column in document["columns"]]
    parts += [_ranking(ranking) for ranking in document["rankings"]]
    if document["bills"]:
        parts.append(_bills(document["bills"]))
    reasons = list(dict.fromkeys(_reasons(document)))
    if reasons:
        parts.append(Text("Why they differ:\n" + "\n".join(reasons)))
    notes = [*document["notes"], *document["table"]["notes"]]
    notes += [f"{row['name']}, {row['group']}: {row['note']}." for row in document["rows"] if row["note"]]
    parts.append(Text("\n".join(dict.fromkeys(notes)), "dim"))
    return Group(*parts)


def _column(document: Document, column: Document) -> Table:
    """One column of the paper's table as a table of its own: a row per row and variant."""
    name, digits = column["name"], column.get("digits", DIGITS.get(column["unit"], 3))
    cells = [row["cells"][name] for row in document["rows"] if name in row["cells"]]
    ways = list(dict.fromkeys(again["way"] for cell in cells for again in cell["recomputed"] if again["value"]))
    shown = [basis for basis in ("measured", "modelled") if any(cell[basis] for cell in cells)]
    headings = ["published", *ways, *shown, "difference", "verdict"]
    grouped = document["rows"] and any(row["group"] for row in document["rows"])
    table = plain_table(
        "row", *(["model"] if grouped else []), "variant", *headings, title=f"{column['title']} ({column['unit']})"
    )
    for row in document["rows"]:
        cell = row["cells"].get(name)
        if cell is None:
            continue
        again = {one["way"]: one["value"] for one in cell["recomputed"] if one["value"]}
        if not (cell["published"] or again or any(cell[basis] for basis in shown)):
            continue
        values = [row["name"], *([row["group"]] if grouped else []), row["variant"], cell["published"] or "–"]
        values += [_decimal(again[way]) if way in again else "–" for way in ways]
        values += [_estimate(cell[basis], digits, "≈" * (basis == "modelled")) for basis in shown]
        values.append("–" if cell["difference"] is None else f"{cell['difference']:+.0%}")
        table.add_row(*values, cell["verdict"] or "–")
    return table


def _decimal(value: str) -> str:
    """At most nine digits behind the point."""
    number = Decimal(value)
    short = number.quantize(Decimal("1e-9")) if -number.as_tuple().exponent > 9 else number  # type: ignore[operator]
    text = format(short, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _estimate(found: Document | None, digits: int, sign: str) -> str:
    if found is None:
        return "–"
    value = f"{sign}{found['value']:,.{digits}f}"
    if found["low"] is None:
        return value
    above, below = found["high"] - found["value"], found["value"] - found["low"]
    if not math.isclose(above, below):
        return f"{value} ({found['low']:,.{digits}f} to {found['high']:,.{digits}f})"
    return f"{value} ± {above:,.{digits}f}"


def _ranking(ranking: Document) -> Table:
    """Rows from the cheapest to the dearest, a line per basis."""
    bases = [name for name, value in ranking.items() if isinstance(value, list)]
    places = range(len(ranking["published"]))
    title = f"Ranking: {ranking['title']} ({ranking['unit']}): {ranking['verdict']}"
    table = plain_table("", *(str(place + 1) for place in places), title=title, words=True)
    for basis in bases:
        table.add_row(basis, *(f"{name} {value:.4f}" for name, value in ranking[basis]))
    if ranking["reason"]:
        table.caption, table.caption_justify = ranking["reason"], "left"
    return table


def _bills(bills: Sequence[Document]) -> Table:
    """What the paper counts, and every line that it leaves out, as shares of the whole."""
    items = list(dict.fromkeys(line["item"] for one in bills for line in one["lines"]))
    columns = [f"{one['name']}\n{one['group']}\n{one['variant']}" for one in bills if one["lines"]]
    table = plain_table("USD per epoch, modelled", *columns, title="What the paper counts, and what it leaves out")
    for item in items:
        own = [{line["item"]: line for line in one["lines"]} for one in bills if one["lines"]]
        counted = any(item in lines and lines[item]["in_paper"] for lines in own)
        name = f"{item}{' (the paper)' * counted}"
        table.add_row(name, *(f"≈{float(lines[item]['amount']):.5f}" if item in lines else "–" for lines in own))
    totals = [sum(float(line["amount"]) for line in one["lines"]) for one in bills if one["lines"]]
    table.add_section()
    table.add_row("whole bill", *(f"≈{total:.5f}" for total in totals))
    return table


def _reasons(document: Document) -> Iterator[str]:
    for row in document["rows"]:
        where = ", ".join(part for part in (row["name"], row["group"], row["variant"]) if part)
        for cell in row["cells"].values():
            if cell["reason"]:
                yield f"{where}: {cell['reason']}"
