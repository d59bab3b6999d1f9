"""A reproduction's document as titled grids of text, which the terminal and the documentation both print."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Document = Mapping[str, Any]
DIGITS = {
    "s": 2, "min": 2, "MB": 0, "USD": 4, "%": 2, "ratio": 2, "×": 2,
    "epochs": 0, "steps": 0, "updates": 0, "messages": 0, "B": 0,
}  # fmt: skip
NOTHING = "–"
# What the horizontal axis of a curve by epoch is named.
EPOCHS = "epochs"
# Patterns that may win, by the name that documents have for them.
PATTERNS = {"scatterreduce": "ScatterReduce", None: "tie", "allreduce": "AllReduce"}
# Behind a recomputed figure: it is not the printed one, or it is but for rounding.
SIGNS = {"differs": "\u00a0≠", "rounding": "\u00a0~"}
LEGEND = (
    "Recomputed from the paper's own figures: ≠ is not what was printed, ~ is but for rounding on the way, no sign is "
    "the printed figure. ≈ is modelled."
)


@dataclass(frozen=True)
class Grid:
    """A table: the first `names` columns hold words, and all do if it is of words."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1
    caption: str = ""
    words: bool = False


def grids(document: Document) -> Iterator[Grid]:
    """A grid for each column of the paper's table, then where one pattern wins, curves by epoch, the rankings, and the
    bills of each group and variant."""
    for column in document["columns"]:
        found = _column(document, column)
        if found.rows:
            yield found
    if any("intervals" in row for row in document["rows"]):
        yield thresholds(document)
    pictures = [curve for curve in document["curves"] if curve["x"]["title"] == EPOCHS]
    for number, curve in enumerate(pictures):
        # Two variants may share all their curves.
        if all(curve["lines"] != other["lines"] for other in pictures[:number]):
            yield _by_epoch(curve)
    for ranking in document["rankings"]:
        yield _ranking(ranking)
    for group in dict.fromkeys(one["group"] for one in document["bills"]):
        own = [one for one in document["bills"] if one["group"] == group]
        for variant in dict.fromkeys(one["variant"] for one in own):
            # What has one variant alone (instances) stands beside each.
            bills = [
                one
                for one in own
                if one["lines"]
                and (one["variant"] == variant or sum(other["name"] == one["name"] for other in own) == 1)
            ]
            if bills:
                yield _bills(f"{group}, {variant}", bills)


def reasons(document: Document) -> list[str]:
    """Why figures differ, and why there is no bill of a row: each sentence with what it is said of."""
    found = [f"{_name(row)}: {cell['reason']}" for row in document["rows"] for cell in row["cells"].values()
             if cell["reason"]]  # fmt: skip
    found += [f"{_name(one)}, no bill: {one['reason']}" for one in document["bills"] if one["reason"]]
    return list(dict.fromkeys(found))


def notes(document: Document) -> list[str]:
    """What must be known of the figures: of all, of the paper's table, and of its rows."""
    found = [LEGEND, *document["notes"], *document["table"]["notes"]]
    found += [f"{row['name']}, {row['group']}: {row['note']}." for row in document["rows"] if row["note"]]
    return list(dict.fromkeys(found))


def _name(row: Document) -> str:
    return ", ".join(part for part in (row["name"], row["group"], row["variant"]) if part)


def _column(document: Document, column: Document) -> Grid:
    """A row per row and variant, of those of which anything is known."""
    name, digits = column["name"], column.get("digits", DIGITS.get(column["unit"], 3))
    cells = [row["cells"][name] for row in document["rows"] if name in row["cells"]]
    ways = list(dict.fromkeys(again["way"] for cell in cells for again in cell["recomputed"] if again["value"]))
    shown = [basis for basis in ("measured", "modelled") if any(cell[basis] for cell in cells)]
    grouped = any(row["group"] for row in document["rows"])
    headings = ["row", *(["model"] if grouped else []), "variant"]
    rows = []
    for row in document["rows"]:
        cell = row["cells"].get(name)
        if cell is None:
            continue
        again = {one["way"]: one for one in cell["recomputed"] if one["value"]}
        if not (cell["published"] or again or any(cell[basis] for basis in shown)):
            continue
        values = [row["name"], *([row["group"]] if grouped else []), row["variant"], cell["published"] or NOTHING]
        values += [_recomputed(again[way]) if way in again else NOTHING for way in ways]
        values += [_estimate(cell[basis], digits, "≈" * (basis == "modelled")) for basis in shown]
        values.append(NOTHING if cell["difference"] is None else f"{cell['difference']:+.0%}")
        rows.append((*values, cell["verdict"] or NOTHING))
    further = ("published", *ways, *shown, "difference", "verdict")
    return Grid(f"{column['title']} ({column['unit']})", (*headings, *further), tuple(rows), len(headings))


def _recomputed(found: Document) -> str:
    """Seven significant digits, and how far they are from the printed ones."""
    number = Decimal(found["value"])
    places = max(0, 6 - number.adjusted()) if number else 0
    text = f"{number:.{places}f}"
    short = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{short}{SIGNS.get(found['verdict'], '')}"


def _estimate(found: Document | None, digits: int, sign: str) -> str:
    if found is None:
        return NOTHING
    value = f"{sign}{found['value']:,.{digits}f}"
    if found["low"] is None:
        return value
    above, below = found["high"] - found["value"], found["value"] - found["low"]
    if not math.isclose(above, below):
        return f"{value} ({found['low']:,.{digits}f} to {found['high']:,.{digits}f})"
    return f"{value} ± {above:,.{digits}f}"


def thresholds(document: Document) -> Grid:
    """Which of two patterns is the faster one, and from which latency × bandwidth ÷ size of a gradient on each would
    be."""
    rows = [row for row in document["rows"] if "intervals" in row]
    bases = [basis for basis in ("published", "measured", "modelled") if any(basis in row["winner"] for row in rows)]
    found = []
    for row in rows:
        faster = (
            f"{'≈' * (basis == 'modelled')}{PATTERNS[row['winner'][basis]]}" if basis in row["winner"] else NOTHING
            for basis in bases
        )
        share = row["latency_bandwidth_size"]
        spans = (
            ", ".join(_span(one) for one in row["intervals"] if one["winner"] == name) or NOTHING for name in PATTERNS
        )
        here = f"{share:.3g}" if share < 1000 else f"{share:,.0f}"
        found.append((row["name"], row["group"], row["variant"], *faster, here, *spans))
    wins = ("tie" if name is None else f"{title} wins" for name, title in PATTERNS.items())
    return Grid(
        "The faster one, and at which latency × bandwidth ÷ size of a gradient each is",
        ("row", "model", "variant", *bases, "here", *wins),
        tuple(found),
        3 + len(bases),
    )


def _span(one: Document) -> str:
    begin, end = one["begin"], one["end"]
    if begin is None and end is None:
        return "everywhere"
    if begin is None:
        return f"below {end:.3g}"
    return f"above {begin:.3g}" if end is None else f"{begin:.3g} to {end:.3g}"


def _ranking(ranking: Document) -> Grid:
    """Rows from the least to the most, a line per basis."""
    bases = [name for name, value in ranking.items() if isinstance(value, list)]
    places = max(len(ranking[basis]) for basis in bases)
    rows = []
    for basis in bases:
        order = [f"{name} {value:.4f}" for name, value in ranking[basis]]
        rows.append((basis, *order, *[NOTHING] * (places - len(order))))
    title = f"Ranking: {ranking['title']} ({ranking['unit']}): {ranking['verdict']}"
    headings = ("", *(str(place + 1) for place in range(places)))
    return Grid(title, headings, tuple(rows), caption=ranking["reason"], words=True)


def _by_epoch(curve: Document) -> Grid:
    """What each line has at the end of each epoch."""
    lines = [dict(zip(line["x"], line["y"], strict=True)) for line in curve["lines"]]
    epochs = sorted({epoch for line in lines for epoch in line})
    rows = [
        (f"{epoch:.0f}", *(f"{line[epoch]:.2f}" if epoch in line else NOTHING for line in lines)) for epoch in epochs
    ]
    title = f"{curve['title']}: {curve['y']['title']} ({curve['y']['unit']})"
    return Grid(title, (EPOCHS, *(line["name"] for line in curve["lines"])), tuple(rows))


def _bills(what: str, bills: Sequence[Document]) -> Grid:
    """What the paper counts, and every line that it leaves out."""
    lines = [{line["item"]: line for line in one["lines"]} for one in bills]
    rows = []
    for item in dict.fromkeys(line["item"] for one in bills for line in one["lines"]):
        counted = any(item in own and own[item]["in_paper"] for own in lines)
        amounts = (f"≈{float(own[item]['amount']):.5f}" if item in own else NOTHING for own in lines)
        rows.append((f"{item}{' (the paper)' * counted}", *amounts))
    totals = (sum(float(line["amount"]) for line in one["lines"]) for one in bills)
    rows.append(("whole bill", *(f"≈{total:.5f}" for total in totals)))
    title = f"What the paper counts, and what it leaves out: {what}, USD per epoch"
    return Grid(title, ("modelled", *(one["name"] for one in bills)), tuple(rows))
