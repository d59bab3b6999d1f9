"""What the page of a reproduction shows: published, recomputed, measured and modelled, side by side."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slslab.reports.grids import thresholds
from slslab.reports.html import charts, formats, scales
from slslab.reports.html.parts import Card, Cell, Chart, Document, Figure, Key, Page, Table

WAYS = ("published", "recomputed", "measured", "modelled")
CANNOT = "cannot"
MOODS = {"agrees": "good", "as published": "good", "rounding": "good", "differs": "warn", CANNOT: "muted"}
# Kinds of bill lines beyond which the rest are one.
LINES = 7


def describe_reproduction(document: Document) -> Page:
    """The page of a reproduction's document; what it does not have is left out."""
    paper, table = document["paper"], document["table"]
    cards = [
        *_rankings(document),
        *_bars(document),
        *_curves(document),
        *_bills(document),
        *_thresholds(document),
        *(card for column in document["columns"] if (card := _column(document, column)) is not None),
    ]
    notes = (*table.get("notes", ()), *document.get("notes", ()))
    if notes:
        cards.append(Card("card-notes", "Notes", notes=tuple(notes), wide=True))
    return Page(
        title=table["title"],
        subtitle=f"reproduction of {table['source']}, {paper['title']} ({paper['published']})",
        cards=tuple(cards),
        chips=(document["reproduces"], f"fidelity: {document['fidelity']}"),
        figures=tuple(_figures(document)),
    )


def _figures(document: Document) -> Iterator[Figure]:
    cells = [cell for row in document["rows"] for cell in row["cells"].values()]
    recomputed = Counter(way["verdict"] for cell in cells for way in cell.get("recomputed") or () if way["verdict"])
    if total := sum(recomputed.values()) - recomputed[CANNOT]:
        value = f"{recomputed['agrees'] + recomputed['rounding']} of {total}"
        yield Figure("numbers that follow from the paper's inputs", value, "recomputed", _others(recomputed))
    compared = Counter(cell["verdict"] for cell in cells if cell.get("verdict"))
    if total := sum(compared.values()):
        yield Figure("numbers that agree with ours", f"{compared['agrees']} of {total}", "modelled", _others(compared))
    if rankings := document.get("rankings", ()):
        same = sum(one["verdict"] == "as published" for one in rankings)
        yield Figure("rankings as published", f"{same} of {len(rankings)}", "modelled")


def _others(verdicts: Counter[str]) -> str:
    return ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items() if verdict != "agrees")


def _column(document: Document, column: Document) -> Card | None:
    """A column of the table: a chart for each group, and all rows."""
    name, unit = column["name"], column["unit"]
    rows = [(row, row["cells"][name]) for row in document["rows"] if row["cells"].get(name)]
    if not rows:
        return None
    groups = dict.fromkeys(row.get("group", "") for row, _ in rows)
    drawn = [
        _dots(
            f"{name}-{number}",
            group,
            f"{column['title']}, {unit}",
            [one for one in rows if one[0].get("group", "") == group],
        )
        for number, group in enumerate(groups)
    ]
    table = Table(
        ("row", *WAYS, "difference", "verdict"),
        [
            (
                Cell(row["name"], ", ".join(filter(None, (row.get("group"), row.get("variant"))))),
                str(cell.get("published") or formats.MISSING),
                _recomputed(cell),
                _ranged(cell.get("measured")),
                _ranged(cell.get("modelled")),
                formats.difference(cell.get("difference")),
                _verdict(cell),
            )
            for row, cell in rows
        ],
        words=frozenset({0, len(WAYS) + 2}),
    )
    title = f"{column['title']}, {unit}"
    found = tuple(chart for chart in drawn if chart)
    return Card(f"card-{name}", title, found, (table,), notes=tuple(_unexplained(rows)), wide=True)


def _unexplained(rows: Sequence[tuple[Document, Document]]) -> Iterator[str]:
    """Why published figures cannot be recomputed, each reason once."""
    named: dict[str, dict[str, None]] = defaultdict(dict)
    published = set()
    for row, cell in rows:
        name = ", ".join(filter(None, (row["name"], row.get("group"))))
        if cell.get("published"):
            published.add(name)
        for way in cell.get("recomputed") or ():
            if way["verdict"] == CANNOT and way["reason"]:
                named[way["reason"].rstrip(".")][name] = None
    for reason, names in named.items():
        of = "" if published <= names.keys() else f" for {'; '.join(names)}"
        yield f"Cannot be recomputed{of}: {reason}."


def _dots(identifier: str, group: str, title: str, rows: Sequence[tuple[Document, Document]]) -> Chart | None:
    found: list[tuple[str, str, float, float | None, float | None]] = []
    for row, cell in rows:
        name = "\n".join(filter(None, (row["name"], row.get("variant"))))
        if cell.get("published") is not None:
            found.append((name, "published", float(cell["published"]), None, None))
        for way in ("measured", "modelled"):
            if one := cell.get(way):
                found.append((name, way, one["value"], one.get("low"), one.get("high")))
    drawn = [way for way in WAYS if any(one[1] == way for one in found)]
    if not found:
        return None
    label = f"Points: {title}, {' and '.join(drawn)}, per row {group}".strip()
    return charts.dots(f"column-{identifier}", label, found, scales.basis_keys(*drawn), title, group)


def _recomputed(cell: Document) -> str | Cell:
    """The first way that agrees, else the first with a value; the tooltip has all of them, with their arithmetic."""
    ways = [way for way in cell.get("recomputed") or () if way["value"] is not None]
    if not ways:
        return Cell(formats.MISSING, CANNOT) if cell.get("recomputed") else formats.MISSING
    best = next((way for way in ways if way["verdict"] in ("agrees", "rounding")), ways[0])
    arithmetic = "; ".join(": ".join(filter(None, (way["way"], _arithmetic(way)))) for way in ways)
    about = ": ".join(filter(None, (best["way"], best["verdict"])))
    mood = MOODS.get(best["verdict"], "")
    return Cell(formats.significant(float(best["value"]), 6), about, mood=mood, title=arithmetic)


def _arithmetic(way: Document) -> str:
    verdict = f" ({way['verdict']})" if way["verdict"] else ""
    return f"{way.get('filled') or way['expression']} = {way['value']}{verdict}"


def _ranged(value: Mapping[str, Any] | None) -> str | Cell:
    if value is None:
        return formats.MISSING
    about = ""
    if value.get("low") is not None and value.get("high") is not None:
        about = f"{formats.significant(value['low'])} … {formats.significant(value['high'])}"
    if (value.get("samples") or 1) > 1:
        about = f"{about} of {value['samples']:,}".strip()
    return Cell(formats.significant(value["value"]), about)


def _verdict(cell: Document) -> Cell:
    verdict = cell.get("verdict") or formats.MISSING
    reasons = [cell["reason"]] if cell.get("reason") else []
    for way in cell.get("recomputed") or ():
        if way.get("reason") and way["verdict"] != CANNOT:
            reasons.append(": ".join(filter(None, (way["way"], way["reason"]))))
    return Cell(verdict, "; ".join(reason.rstrip(".") for reason in reasons), mood=MOODS.get(verdict, ""))


def _rankings(document: Document) -> Iterator[Card]:
    """Orders of rows, a row of the chart for each basis, whatever bases there are."""
    for number, ranking in enumerate(document.get("rankings", ())):
        orders = {basis: order for basis, order in ranking.items() if isinstance(order, list) and order}
        names = list(dict.fromkeys(str(name) for order in orders.values() for name, _ in order))
        rows = [
            (str(name), basis, place, float(value))
            for basis, order in orders.items()
            for place, (name, value) in enumerate(order, 1)
        ]
        label = f"Places by {ranking['title']}: {'; '.join(orders)}"
        chart = charts.ranks(f"ranking-{number}", label, rows, list(orders), _keys(document, names), ranking["unit"])
        places = max(map(len, orders.values()), default=0)
        table = Table(
            (f"place, {ranking['unit']}", *map(str, range(1, places + 1))),
            [(basis, *(_placed(order, place) for place in range(places))) for basis, order in orders.items()],
            words=frozenset(range(places + 1)),
            folded=True,
        )
        mood = MOODS.get(ranking["verdict"], "")
        yield Card(
            f"card-ranking-{number}",
            _capital(ranking["title"]),
            (chart,) if rows else (),
            (table,) if rows else (),
            notes=(ranking["reason"],) if ranking.get("reason") else (),
            verdict=Cell(f"Ranking {ranking['verdict']}.", mood=mood) if ranking["verdict"] else None,
        )


def _keys(document: Document, names: Sequence[str]) -> tuple[Key, ...]:
    """Colours by name, the same ones in every chart of the page: in the order of the table's rows."""
    order = dict.fromkeys((*(row["name"] for row in document["rows"]), *names))
    colours = {key.label: key for key in scales.series_keys(list(order))}
    return tuple(colours[name] for name in names)


def _capital(title: str) -> str:
    return f"{title[:1].upper()}{title[1:]}"


def _placed(ranking: Sequence[Sequence[Any]], place: int) -> str | Cell:
    if place >= len(ranking):
        return formats.MISSING
    name, value = ranking[place]
    return Cell(str(name), formats.significant(float(value)))


def _bars(document: Document) -> Iterator[Card]:
    """Bars of several series beside each other."""
    for number, bars in enumerate(document.get("bars", ())):
        title = f"{bars['axis']}, {bars['unit']}"
        label = f"Bars: {title}, {' and '.join(bars['series'])}"
        chart = charts.grouped_bars(f"bars-{number}", label, bars["values"], scales.series_keys(bars["series"]), title)
        yield Card(f"card-bars-{number}", bars["title"], (chart,))


def _thresholds(document: Document) -> Iterator[Card]:
    """Where each of two patterns wins."""
    if any("intervals" in row for row in document["rows"]):
        grid = thresholds(document)
        table = Table(grid.headings, grid.rows, words=frozenset(range(len(grid.headings))))
        yield Card("card-thresholds", grid.title, (), (table,), wide=True)


def _bills(document: Document) -> Iterator[Card]:
    """Bills in stacks, a card for each group; what the paper leaves out is said so in its legend."""
    bills = document.get("bills", ())
    for number, group in enumerate(dict.fromkeys(bill.get("group", "") for bill in bills)):
        own = [bill for bill in bills if bill.get("group", "") == group]
        totals: dict[str, float] = defaultdict(float)
        inside: dict[str, bool] = {}
        for bill in own:
            for line in bill["lines"]:
                totals[line["item"]] += float(line["amount"])
                inside[line["item"]] = bool(line["in_paper"])
        kept = sorted(totals, key=lambda item: -totals[item])[:LINES]
        rest = "all other lines" if len(totals) > LINES else ""
        keys = [*_line_keys(kept, inside), *([Key(rest, "8")] if rest else [])]
        labels = {item: key.label for item, key in zip(kept, keys, strict=False)}
        rows = []
        for bill in own:
            name = f"{bill['name']}, {bill['variant']}" if bill.get("variant") else bill["name"]
            parts: dict[str, float] = defaultdict(float)
            for line in bill["lines"]:
                parts[labels.get(line["item"], rest)] += float(line["amount"])
            rows += [(name, part, amount) for part, amount in parts.items()]
        title = f"Bill, {group}" if group else "Bill"
        chart = charts.stacked_bars(
            f"bills-{number}", f"Bars: USD of each line of the bill, {group}", rows, keys, "amount, USD", format=",.6f"
        )
        yield Card(f"card-bills-{number}", title, (chart,), (_bill_table(own),))


def _line_keys(items: Sequence[str], inside: Mapping[str, bool]) -> list[Key]:
    return [
        Key(item if inside[item] else f"{item} (not in the paper)", key.colour)
        for item, key in zip(items, scales.series_keys(items), strict=True)
    ]


def _bill_table(bills: Sequence[Document]) -> Table:
    rows: list[tuple[str | Cell, ...]] = []
    for bill in bills:
        of = ", ".join(filter(None, (bill["name"], bill.get("variant"))))
        for line in bill["lines"]:
            about = f"{line['quantity']} {line['unit']}"
            rows.append(
                (of, Cell(line["item"], about), "yes" if line["in_paper"] else "no", f"{float(line['amount']):.6f}")
            )
    return Table(("of", "line", "in the paper", "USD"), rows, words=frozenset({0, 1, 2}), folded=True)


def _curves(document: Document) -> Iterator[Card]:
    for number, curve in enumerate(document.get("curves", ())):
        keys = _keys(document, [line["name"] for line in curve["lines"]])
        rows = [(line["name"], x, y) for line in curve["lines"] for x, y in zip(line["x"], line["y"], strict=True)]
        titles = [", ".join(filter(None, (curve[axis]["title"], curve[axis]["unit"]))) for axis in "xy"]
        if not rows:
            continue
        percent = curve["y"]["unit"] == "%" and all(y is None or y <= 1 for _, _, y in rows)
        whole = all(float(x).is_integer() for _, x, _ in rows)
        label = f"Lines: {titles[1]} over {titles[0]}"
        chart = charts.lines(f"curve-{number}", label, rows, keys, (titles[0], titles[1]), percent=percent, whole=whole)
        yield Card(f"card-curve-{number}", curve["title"], (chart,))
