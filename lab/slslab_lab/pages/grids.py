"""A reproduction's document as tables; the terminal and the documentation print them all, pages some."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from slslab.report.formats import MISSING, percent
from slslab.report.page import WORDS, Cell, Document, Row, Table
from slslab.run.metrics import grouped
from slslab_workers.architecture import title, with_chains

DIGITS = {
    "s": 2, "min": 2, "MB": 0, "USD": 4, "%": 2, "ratio": 2, "×": 2,
    "epochs": 0, "steps": 0, "updates": 0,
}  # fmt: skip
# Titles of the horizontal axis of a curve by epoch, and by round of communication.
EPOCHS, ROUNDS = "epochs", "rounds of communication"
# Show all points of a curve with up to this many; otherwise points with these leading digits, and the last of each
# line.
PLACES, LEADING = 12, "125"
# Sign after a recomputed figure: it differs from the printed one, or only by rounding.
SIGNS = {"differs": "\u00a0≠", "rounding": "\u00a0~"}
LEGEND = (
    "Recomputed from the paper's own figures: ≠ differs from the printed figure, ~ differs only by rounding, no sign "
    "equals it. ≈ is modelled."
)
CANNOT = "cannot"
MOODS = {
    **dict.fromkeys(("agrees", "as published", "rounding", "holds"), "good"),
    **dict.fromkeys(("differs", "does not hold"), "warn"),
    CANNOT: "muted",
}


def grids(document: Document) -> Iterator[Table]:
    """Yield tables: orders, the paper's columns, where one pattern wins, curves by epoch or round, rankings, and bills
    of each group and variant. A document with matrices only yields these."""
    if "matrices" in document:
        yield from matrices(document)
        return
    columns = (column_table(document, column) for column in document["columns"])
    if "orders" in document:
        # Where only orders were published, show them and the curves first; the columns are details.
        yield orders(document)
        yield from _curves(document)
    yield from (table for table in columns if table.rows)
    if any("intervals" in row for row in document["rows"]):
        yield thresholds(document)
    if "orders" not in document:
        yield from _curves(document)
    yield from map(ranking_table, document["rankings"])
    yield from matrices(document)
    for members in grouped((bill["group"], bill) for bill in document["bills"]).values():
        yield from bill_tables(members)


def reasons(document: Document) -> list[str]:
    """Return why figures differ, and why a row has no bill, as sentences that begin with their subject."""
    differing = (
        f"{_name(row)}: {cell['reason']}"
        for row in document["rows"]
        for cell in row["cells"].values()
        if cell["reason"]
    )
    billless = (f"{_name(bill)}, no bill: {bill['reason']}" for bill in document["bills"] if bill["reason"])
    return list(dict.fromkeys((*differing, *billless)))


def notes(document: Document) -> list[str]:
    """Return the notes on the figures: on all, on the paper's table, and on its rows."""
    of_rows = (f"{row['name']}, {row['group']}: {row['note']}." for row in document["rows"] if row["note"])
    return list(dict.fromkeys((LEGEND, *document["notes"], *document["table"]["notes"], *of_rows)))


def _name(row: Document) -> str:
    return ", ".join(part for part in (row["name"], row["group"], row["variant"]) if part)


def column_table(document: Document, column: Document) -> Table:
    """Return a row per row and variant that has any figures."""
    name, digits = column["name"], column.get("digits", DIGITS.get(column["unit"], 3))
    cells = [(row, row["cells"][name]) for row in document["rows"] if name in row["cells"]]
    ways = list(dict.fromkeys(again["way"] for _, cell in cells for again in cell["recomputed"] if again["value"]))
    shown = [basis for basis in ("measured", "modelled") if any(cell[basis] for _, cell in cells)]
    models = any(row["group"] for row in document["rows"])
    headings = ["row", *(["model"] if models else []), "variant"]
    rows: list[Row] = []
    for row, cell in cells:
        values = {again["way"]: again for again in cell["recomputed"] if again["value"]}
        if cell["published"] or values or any(cell[basis] for basis in shown):
            rows.append(
                (
                    *(row["name"], *([row["group"]] if models else []), row["variant"], cell["published"] or MISSING),
                    *(_recomputed(values[way]) if way in values else MISSING for way in ways),
                    *(_estimate(cell[basis], digits, "≈" * (basis == "modelled")) for basis in shown),
                    MISSING if cell["difference"] is None else percent(cell["difference"], "+.0"),
                    Cell(cell["verdict"] or MISSING, _reasons(cell), mood=MOODS.get(cell["verdict"], "")),
                )
            )
    further = ("published", *ways, *shown, "difference", "verdict")
    title = f"{column['title']} ({column['unit']})"
    return Table((*headings, *further), rows, caption=title, words=range(len(headings)))


def _recomputed(way: Document) -> Cell:
    """Return seven significant digits, a sign for the difference from the printed ones, and their arithmetic."""
    number = Decimal(way["value"])
    text = f"{number:.{max(0, 6 - number.adjusted()) if number else 0}f}"
    short = text.rstrip("0").rstrip(".") if "." in text else text
    verdict = f" ({way['verdict']})" if way["verdict"] else ""
    arithmetic = f"{way.get('filled') or way['expression']} = {way['value']}{verdict}"
    return Cell(f"{short}{SIGNS.get(way['verdict'], '')}", mood=MOODS.get(way["verdict"], ""), title=arithmetic)


def _estimate(estimate: Document | None, digits: int, sign: str) -> str | Cell:
    if estimate is None:
        return MISSING
    number, low, high = (estimate[name] for name in ("value", "low", "high"))
    value = f"{sign}{number:,.{digits}f}"
    samples = estimate.get("samples") or 1
    ends = "" if low is None else f" ({low:,.{digits}f} to {high:,.{digits}f})"
    return Cell(f"{value}{ends}", f"of {samples:,}" if samples > 1 else "")


def _reasons(cell: Document) -> str:
    ways = (again for again in cell["recomputed"] if again["reason"] and again["verdict"] != CANNOT)
    told = [cell["reason"], *(": ".join(filter(None, (again["way"], again["reason"]))) for again in ways)]
    return "; ".join(reason.rstrip(".") for reason in told if reason)


def thresholds(document: Document) -> Table:
    """Return which of two patterns is faster, and from which latency × bandwidth ÷ size of a gradient on."""
    compared = [row for row in document["rows"] if "intervals" in row]
    bases = [name for name in ("published", "modelled") if any(name in row["winner"] for row in compared)]
    last, *others = reversed(with_chains())
    patterns: dict[str | None, str] = {last: title(last), None: "tie", **{name: title(name) for name in others}}
    rows = []
    for row in compared:
        winners = (
            f"{'≈' * (basis == 'modelled')}{patterns[row['winner'][basis]]}" if basis in row["winner"] else MISSING
            for basis in bases
        )
        share = row["latency_bandwidth_size"]
        spans = (
            ", ".join(_span(interval) for interval in row["intervals"] if interval["winner"] == name) or MISSING
            for name in patterns
        )
        here = f"{share:.3g}" if share < 1000 else f"{share:,.0f}"
        rows.append((row["name"], row["group"], row["variant"], *winners, here, *spans))
    wins = ("tie" if name is None else f"{words} wins" for name, words in patterns.items())
    return Table(
        ("row", "model", "variant", *bases, "here", *wins),
        rows,
        caption="Which pattern is faster, and at which latency × bandwidth ÷ size of a gradient",
        words=range(3 + len(bases)),
    )


def _span(interval: Document) -> str:
    begin, end = interval["begin"], interval["end"]
    if begin is None and end is None:
        return "everywhere"
    if begin is None:
        return f"below {end:.3g}"
    return f"above {begin:.3g}" if end is None else f"{begin:.3g} to {end:.3g}"


def ranking_table(ranking: Document) -> Table:
    """Return the rows in ascending order, a line per basis."""
    bases = [name for name, value in ranking.items() if isinstance(value, list)]
    places = max(len(ranking[basis]) for basis in bases)
    rows = []
    for basis in bases:
        order = [f"{name} {value:.4f}" for name, value in ranking[basis]]
        rows.append((basis, *order, *[MISSING] * (places - len(order))))
    return Table(
        ("", *map(str, range(1, places + 1))),
        rows,
        caption=f"Ranking: {ranking['title']} ({ranking['unit']}): {ranking['verdict']}",
        note=". ".join(filter(None, (ranking["reason"], _likely(ranking.get("holds", {}))))),
        words=WORDS,
    )


def _likely(holds: Mapping[str, Any]) -> str:
    pairs = (
        f"{basis}: {', '.join(f'{first} before {second} {percent(value)}' for first, second, value in order)}"
        for basis, order in holds.items()
    )
    return "; ".join(pairs)


def orders(document: Document) -> Table:
    """Return the expected orders, whether they hold, and by which figures."""
    rows = [
        (each["order"], each["of"], Cell(each["verdict"], mood=MOODS.get(each["verdict"], "")), each["figures"])
        for each in document["orders"]
    ]
    return Table(("order", "of", "verdict", "figures"), rows, caption="Orders", words=WORDS)


def matrices(document: Document) -> Iterator[Table]:
    """Yield the tables that a reproduction already provides whole, and those that another study adds to it."""
    for matrix in (*document.get("matrices", ()), *document.get("further", ())):
        yield Table(
            tuple(matrix["headings"]), tuple(map(tuple, matrix["rows"])), caption=matrix["title"], dispensable=()
        )


def _curves(document: Document) -> Iterator[Table]:
    curves = [curve for curve in document["curves"] if curve["x"]["title"] in (EPOCHS, ROUNDS)]
    for number, curve in enumerate(curves):
        # Two variants may share all their curves.
        if all(curve["lines"] != other["lines"] for other in curves[:number]):
            yield _by_place(curve)


def _by_place(curve: Document) -> Table:
    lines = [dict(zip(line["x"], line["y"], strict=True)) for line in curve["lines"]]
    places = sorted({place for line in lines for place in line})
    if len(places) > PLACES:
        last = {max(line) for line in lines}
        places = [place for place in places if place in last or f"{place:.0f}".rstrip("0") in ("", *LEADING)]
    unit = curve["y"]["unit"]
    digits = DIGITS.get(unit, 4)
    rows = [
        (f"{place:.0f}", *(f"{line[place]:.{digits}f}" if line.get(place) is not None else MISSING for line in lines))
        for place in places
    ]
    return Table(
        (curve["x"]["title"], *(line["name"] for line in curve["lines"])),
        rows,
        caption=f"{curve['title']}: {curve['y']['title']} ({unit})" if unit else curve["title"],
    )


def bill_tables(bills: Sequence[Document]) -> Iterator[Table]:
    """Yield the bills of a group by variant: the part that the paper counts, and every other line."""
    names = [bill["name"] for bill in bills]
    for variant in dict.fromkeys(bill["variant"] for bill in bills):
        # Rows with one variant (instances) appear in each.
        beside = (bill for bill in bills if bill["variant"] == variant or names.count(bill["name"]) == 1)
        if shown := [bill for bill in beside if bill["lines"]]:
            yield _bills(f"{bills[0]['group']}, {variant}", shown)


def _bills(what: str, bills: Sequence[Document]) -> Table:
    columns = [{line["item"]: line for line in bill["lines"]} for bill in bills]
    rows: list[Row] = []
    for item in dict.fromkeys(line["item"] for bill in bills for line in bill["lines"]):
        counted = any(item in lines and lines[item]["in_paper"] for lines in columns)
        amounts = (_amount(lines[item]) if item in lines else MISSING for lines in columns)
        rows.append((f"{item}{' (the paper)' * counted}", *amounts))
    totals = (sum(float(line["amount"]) for line in bill["lines"]) for bill in bills)
    return Table(
        ("modelled", *(bill["name"] for bill in bills)),
        [*rows, ("whole bill", *(f"≈{total:.5f}" for total in totals))],
        caption=f"Counted by the paper, and left out: {what}, USD per epoch",
    )


def _amount(line: Document) -> Cell:
    used = " ".join(line[name] for name in ("quantity", "unit") if name in line)
    return Cell(f"≈{float(line['amount']):.5f}", used)
