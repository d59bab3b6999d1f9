"""The content of a reproduction: published, recomputed, measured and modelled figures, side by side."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from slslab.report.formats import percent
from slslab.report.page import Card, Cell, Chart, Document, Key, Note, Page, Part, Row, Table
from slslab.run.metrics import grouped
from slslab_lab.pages import charts, grids, scales
from slslab_lab.pages.verdicts import agreement, capitalised

WAYS = ("published", "recomputed", "measured", "modelled")
AGREEMENT_KEYS = (Key("agrees", "exact"), Key("differs", "limit"))


def brief(document: Document) -> Iterator[Part]:
    """Yield the output of `slslab reproduce`: how well the figures agree, by column.

    A reproduction without verdicts is printed whole.
    """
    rows = [row for column in document["columns"] if (row := _agreeing(column, document["rows"]))]
    if not rows:
        yield from reproduction(document)
        return
    yield from _answers(document)
    yield Table(("column", "published numbers", "agree", "median difference"), rows)
    yield from grids.matrices({**document, "further": ()})
    yield Note("Every figure: --full, or the page", "muted")


def _agreeing(column: Document, rows: Sequence[Document]) -> Row | None:
    cells = [cell for row in rows if (cell := row["cells"].get(column["name"])) and cell.get("verdict")]
    if not cells:
        return None
    agree = sum(cell["verdict"] == "agrees" for cell in cells)
    differences = [abs(cell["difference"]) for cell in cells if cell.get("difference") is not None]
    middle = percent(median(differences)) if differences else ""
    return f"{column['title']}, {column['unit']}", str(len(cells)), str(agree), middle


def _answers(document: Document) -> Iterator[Part]:
    title = f"{document['table']['title']} ({document['table']['source']} of {document['paper']['published']})"
    yield from (Note(sentence, "answer") for sentence in (title, *agreement(document)))


def reproduction(document: Document) -> Iterator[Part]:
    """Yield the output of `slslab reproduce --full`: published, recomputed, measured and modelled figures."""
    yield from _answers(document)
    for table in grids.grids(document):
        first, *headings = table.columns
        # Break long headings at their spaces.
        yield replace(table, columns=(first, *(heading.replace(", ", "\n") for heading in headings)))
    if differing := grids.reasons(document):
        yield "\n".join(("Why they differ:", *differing))
    yield Note("\n".join(grids.notes(document)), "muted")


def describe_reproduction(document: Document) -> Page:
    """Return the page of a reproduction's document, leaving out missing parts."""
    paper, table = document["paper"], document["table"]
    compared = any("intervals" in row for row in document["rows"])
    cards = [
        *filter(None, [_agreement(document)]),
        *_tables(document),
        *_rankings(document),
        *_curves(document),
        *_bills(document),
        *([_whole("card-thresholds", grids.thresholds(document))] if compared else []),
        *(card for column in document["columns"] if (card := _column(document, column)) is not None),
    ]
    if noted := (*table.get("notes", ()), *document.get("notes", ())):
        cards.append(Card("card-notes", "Notes", notes=noted, wide=True))
    return Page(
        title=table["title"],
        subtitle=f"reproduction of {table['source']}, {paper['title']} ({paper['published']})",
        cards=tuple(cards),
        chips=(document["reproduces"], f"fidelity: {document['fidelity']}"),
        answers=tuple(agreement(document)),
    )


def _tables(document: Document) -> Iterator[Card]:
    if document.get("orders"):
        yield _whole("card-orders", grids.orders(document))
    if "matrices" in document or "further" in document:
        yield from (_whole(f"card-matrix-{number}", table) for number, table in enumerate(grids.matrices(document)))


def _whole(identifier: str, table: Table) -> Card:
    return Card(identifier, table.caption, (), (replace(table, caption=""),), wide=True)


def _agreement(document: Document) -> Card | None:
    """Return ours ÷ published for all published numbers, in one picture."""
    rows = [
        (column["title"], cell["verdict"], 1 + cell["difference"], cell.get("tolerance", 0.0), name)
        for column in document["columns"]
        for row in document["rows"]
        if (cell := row["cells"].get(column["name"])) and cell.get("verdict") and (cell.get("difference") or -1) > -1
        for name in [_joined(row["name"], row.get("group"), row.get("variant"))]
    ]
    if not rows:
        return None
    label = "Points: ours divided by the published number, per column of the table"
    caption = (
        "Each point is a published number: at 1 ours equals it, at 2 ours is twice as much. In the grey bar they agree."
    )
    chart = charts.ratios("agreement", label, rows, AGREEMENT_KEYS, "ours ÷ published", caption)
    return Card("card-agreement", "Agreement at a glance", (chart,), wide=True)


def _joined(*parts: str | None, by: str = ", ") -> str:
    return by.join(filter(None, parts))


def _column(document: Document, column: Document) -> Card | None:
    name, title = column["name"], f"{column['title']}, {column['unit']}"
    rows = [(row, row["cells"][name]) for row in document["rows"] if row["cells"].get(name)]
    if not rows:
        return None
    groups = grouped((row.get("group", ""), (row, cell)) for row, cell in rows)
    drawn = [_dots(f"{name}-{number}", group, title, of) for number, (group, of) in enumerate(groups.items())]
    table = replace(grids.column_table(document, column), caption="", folded=True)
    dots = tuple(chart for chart in drawn if chart)
    return Card(f"card-{name}", title, dots, (table,), notes=tuple(_unexplained(rows)), wide=True)


def _unexplained(rows: Sequence[tuple[Document, Document]]) -> Iterator[str]:
    named: dict[str, dict[str, None]] = defaultdict(dict)
    published = set()
    for row, cell in rows:
        name = _joined(row["name"], row.get("group"))
        if cell.get("published"):
            published.add(name)
        for way in cell.get("recomputed") or ():
            if way["verdict"] == grids.CANNOT and way["reason"]:
                named[way["reason"].rstrip(".")][name] = None
    for reason, names in named.items():
        of = "" if published <= names.keys() else f" for {'; '.join(names)}"
        yield f"Cannot be recomputed{of}: {reason}."


def _dots(identifier: str, group: str, title: str, rows: Sequence[tuple[Document, Document]]) -> Chart | None:
    points: list[tuple[str, str, float, float | None, float | None]] = []
    for row, cell in rows:
        name = _joined(row["name"], row.get("variant"), by="\n")
        if cell.get("published") is not None:
            points.append((name, "published", float(cell["published"]), None, None))
        for way in ("measured", "modelled"):
            if point := cell.get(way):
                points.append((name, way, point["value"], point.get("low"), point.get("high")))
    drawn = [way for way in WAYS if any(point[1] == way for point in points)]
    if not points:
        return None
    label = f"Points: {title}, {' and '.join(drawn)}, per row {group}".strip()
    return charts.dots(f"column-{identifier}", label, points, scales.basis_keys(*drawn), title, group)


def _rankings(document: Document) -> Iterator[Card]:
    for number, ranking in enumerate(document.get("rankings", ())):
        title, verdict = capitalised(ranking["title"]), ranking["verdict"]
        said = Cell(f"Ranking {verdict}.", mood=grids.MOODS.get(verdict, "")) if verdict else None
        yield Card(
            f"card-ranking-{number}", title, tables=(replace(grids.ranking_table(ranking), caption=""),), verdict=said
        )


def _keys(document: Document, names: Sequence[str]) -> tuple[Key, ...]:
    """Return colours by name, the same in every chart of the page: in the order of the table's rows."""
    order = dict.fromkeys((*(row["name"] for row in document["rows"]), *names))
    colours = {key.label: key for key in scales.series_keys(list(order))}
    return tuple(colours[name] for name in names)


def pictured(document: Document) -> list[Chart]:
    """Return the curves of a reproduction, each with its title, or else the points of its columns."""
    if curves := list(_curves(document)):
        return [replace(chart, name=card.title) for card in curves for chart in card.charts]
    return [chart for column in document["columns"] if (card := _column(document, column)) for chart in card.charts]


def _bills(document: Document) -> Iterator[Card]:
    named = ((bill.get("group", ""), bill) for bill in document.get("bills", ()))
    for number, (group, bills) in enumerate(grouped(named).items()):
        if tables := tuple(grids.bill_tables(bills)):
            yield Card(f"card-bills-{number}", _joined("Bill", group), tables=tables, wide=True)


def _curves(document: Document) -> Iterator[Card]:
    for number, curve in enumerate(document.get("curves", ())):
        keys = _keys(document, [line["name"] for line in curve["lines"]])
        rows = [(line["name"], x, y) for line in curve["lines"] for x, y in zip(line["x"], line["y"], strict=True)]
        titles = [_joined(curve[axis]["title"], curve[axis]["unit"]) for axis in "xy"]
        if not rows:
            continue
        percent = curve["y"]["unit"] == "%" and all(y is None or y <= 1 for _, _, y in rows)
        whole = all(float(x).is_integer() for _, x, _ in rows)
        label = f"Lines: {titles[1]} over {titles[0]}"
        chart = charts.lines(f"curve-{number}", label, rows, keys, (titles[0], titles[1]), percent=percent, whole=whole)
        yield Card(f"card-curve-{number}", curve["title"], (chart,))
