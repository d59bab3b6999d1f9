"""The content of a reproduction: published, recomputed, measured and modelled figures, side by side."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from statistics import fmean, median
from typing import Any

from slslab.errors import counted
from slslab.report.formats import MISSING, listed, percent
from slslab.report.page import WORDS, Card, Cell, Chart, Document, Key, Note, Page, Part, Row, Table
from slslab.run.metrics import grouped
from slslab_lab.pages import charts, scales
from slslab_workers.architecture import title, with_chains

DIGITS = {
    "s": 2, "min": 2, "MB": 0, "USD": 4, "%": 2, "ratio": 2, "×": 2,
    "epochs": 0, "steps": 0, "updates": 0,
}  # fmt: skip
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


def brief(document: Document) -> Iterator[Part]:
    """Yield the output of `slslab reproduce`: how well the figures agree, by column.

    A reproduction without verdicts is printed whole.
    """
    rows = [
        (f"{column['title']}, {column['unit']}", *found)
        for column in document["columns"]
        if (found := _agreeing(row["cells"].get(column["name"]) or {} for row in document["rows"]))
    ]
    if not rows:
        yield from reproduction(document)
        return
    yield from _answers(document)
    yield Table(("column", "published numbers", "agree", "median difference"), rows)
    yield from matrices({**document, "further": ()})
    yield Note("Every figure: --full, or the page", "muted")


def _agreeing(cells: Iterable[Document]) -> tuple[str, str, str] | None:
    """Return how many published numbers there are, how many agree with ours, and the median difference (empty without
    one); None if no number was compared."""
    compared = [cell for cell in cells if cell.get("verdict")]
    differences = [abs(cell["difference"]) for cell in compared if cell.get("difference") is not None]
    agree = sum(cell["verdict"] == "agrees" for cell in compared)
    return (str(len(compared)), str(agree), percent(median(differences)) if differences else "") if compared else None


def _answers(document: Document) -> Iterator[Part]:
    title = f"{document['table']['title']} ({document['table']['source']} of {document['paper']['published']})"
    yield from (Note(sentence, "answer") for sentence in (title, *agreement(document)))


def reproduction(document: Document) -> Iterator[Part]:
    """Yield the output of `slslab reproduce --full`: published, recomputed, measured and modelled figures."""
    yield from _answers(document)
    for table in tables(document):
        first, *headings = table.columns
        # Break long headings at their spaces.
        yield replace(table, columns=(first, *(heading.replace(", ", "\n") for heading in headings)))
    if differing := reasons(document):
        yield "Why they differ:"
        yield "\n".join(differing)
    yield Note("\n".join(notes(document)), "muted")


def describe_reproduction(document: Document) -> Page:
    """Return the page of a reproduction's document, leaving out missing parts."""
    paper, table = document["paper"], document["table"]
    cards = [
        *filter(None, [_agreement_card(document)]),
        *([_whole("card-orders", orders(document))] if document.get("orders") else []),
        *(_whole(f"card-matrix-{number}", table) for number, table in enumerate(matrices(document))),
        *(_whole(f"card-ranking-{number}", ranking_table(each)) for number, each in enumerate(document["rankings"])),
        *_curves(document),
        *(_whole(f"card-bill-{number}", table) for number, table in enumerate(bill_tables(document))),
        *(_whole("card-thresholds", table) for table in thresholds(document)),
        *(card for column in document["columns"] if (card := _column(document, column)) is not None),
    ]
    noted = (*table["notes"], *document["notes"])
    cards += [Card("card-notes", "Notes", notes=noted, wide=True)] * bool(noted)
    return Page(
        title=table["title"],
        subtitle=f"reproduction of {table['source']}, {paper['title']} ({paper['published']})",
        cards=tuple(cards),
        chips=(document["reproduces"], f"fidelity: {document['fidelity']}"),
        answers=tuple(agreement(document)),
    )


def _whole(identifier: str, table: Table) -> Card:
    return Card(identifier, table.caption, (), (replace(table, caption=""),), wide=True)


def _agreement_card(document: Document) -> Card | None:
    """Return ours ÷ published for all published numbers, in one picture."""
    rows = [
        (column["title"], cell["verdict"], 1 + cell["difference"], cell.get("tolerance", 0.0), _name(row))
        for column in document["columns"]
        for row in document["rows"]
        if (cell := row["cells"].get(column["name"])) and cell.get("verdict") and (cell.get("difference") or -1) > -1
    ]
    if not rows:
        return None
    keys = (Key("agrees", "exact"), Key("differs", "limit"))
    label = "Points: ours divided by the published number, per column of the table"
    caption = (
        "Each point is a published number: at 1 ours equals it, at 2 ours is twice as much. In the grey bar they agree."
    )
    chart = charts.ratios("agreement", label, rows, keys, "ours ÷ published", caption)
    return Card("card-agreement", "Agreement at a glance", (chart,), wide=True)


def _column(document: Document, column: Document) -> Card | None:
    name, title = column["name"], f"{column['title']}, {column['unit']}"
    rows = [(row, row["cells"][name]) for row in document["rows"] if row["cells"].get(name)]
    if not rows:
        return None
    groups = grouped((row["group"], (row, cell)) for row, cell in rows)
    drawn = [_dots(f"{name}-{number}", group, title, of) for number, (group, of) in enumerate(groups.items())]
    table = replace(column_table(document, column), caption="", folded=True)
    dots, tables = tuple(chart for chart in drawn if chart), (table,) if table.rows else ()
    return Card(f"card-{name}", title, dots, tables, notes=tuple(_unexplained(rows)), wide=True)


def _unexplained(rows: Sequence[tuple[Document, Document]]) -> Iterator[str]:
    named = [(_joined(row["name"], row["group"]), cell) for row, cell in rows]
    published = {name for name, cell in named if cell.get("published")}
    reasons = grouped(
        (way["reason"].rstrip("."), name)
        for name, cell in named
        for way in cell["recomputed"]
        if way["verdict"] == CANNOT and way["reason"]
    )
    for reason, names in reasons.items():
        of = "" if published <= {*names} else f" for {'; '.join(dict.fromkeys(names))}"
        yield f"Cannot be recomputed{of}: {reason}."


def _dots(identifier: str, group: str, title: str, rows: Sequence[tuple[Document, Document]]) -> Chart | None:
    figures: dict[str, dict[str, Document]] = {}
    for row, cell in rows:
        published = {} if cell.get("published") is None else {"published": {"value": cell["published"]}}
        known = published | {basis: cell[basis] for basis in ("measured", "modelled") if cell.get(basis)}
        if known:
            figures[_joined(row["name"], row["variant"], by="\n")] = known
    if not figures:
        return None
    drawn = [basis for basis in charts.BASES if any(basis in known for known in figures.values())]
    label = f"Points: {title}, {' and '.join(drawn)}, per row {group}".strip()
    return charts.dots(f"column-{identifier}", label, figures, title, group)


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


def _curves(document: Document) -> Iterator[Card]:
    for number, curve in enumerate(document["curves"]):
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


def agreement(document: Document) -> Iterator[str]:
    """Yield a reproduction's findings, and how well it agrees with published orders, numbers, rankings and
    arithmetic."""
    yield from document.get("findings", ())
    for order, same in grouped((each["order"], each) for each in document.get("orders", ())).items():
        by_verdict = grouped((each["verdict"], each["of"]) for each in same)
        yield f"{order}: {'; '.join(f'{verdict} ({listed(of)})' for verdict, of in by_verdict.items())}."
    cells = [cell for row in document["rows"] for cell in row["cells"].values()]
    if found := _agreeing(cells):
        number, agree, middle = found
        within = sorted({cell["tolerance"] for cell in cells if cell.get("verdict") and "tolerance" in cell})
        limits = f" within {' or '.join(map(percent, within))}" if within else ""
        sentence = f"{agree} of {number} published numbers agree with ours{limits}"
        yield f"{sentence}; the median difference is {middle}." if middle else f"{sentence}."
    yield from model_errors(document)
    for ranking in document["rankings"]:
        if ranking["verdict"]:
            yield f"Ranking of {ranking['title']}: {ranking['verdict']}."
    ways = [{way["verdict"] for way in cell["recomputed"]} & {"agrees", "rounding", "differs"} for cell in cells]
    if total := sum(map(bool, ways)):
        follow = sum(bool(each - {"differs"}) for each in ways)
        yield f"{follow} of {total} printed numbers follow from the paper's own inputs."


def model_errors(document: Document) -> Iterator[str]:
    """Yield the errors of a reproduction's modelled figures, which have no 80 % range, and what is fitted to them.

    Skip rounds that were predicted blind, since their intervals are such ranges.
    """
    cells = [cell for row in document["rows"] for cell in row["cells"].values() if cell.get("modelled")]
    if cells and "comparison" not in document and not document.get("ranged"):
        where = " in the paper's rows" if "further" in document else ""
        without = f"Modelled figures{where} (≈) have no 80 % range"
        if errors := [abs(cell["difference"]) for cell in cells if cell.get("difference") is not None]:
            sentence = (
                f"{without}: their error is only known from this table. It is {percent(fmean(errors))} on average "
                f"and {percent(max(errors))} at most, over {counted(len(errors), 'figure')}."
            )
        else:
            sentence = f"{without}: the paper has no figures to compare them with."
        intervals = any(cell["modelled"].get("low") is not None for cell in cells)
        parts = [sentence, "Their intervals cover recordings but not this error." * intervals]
        yield " ".join(filter(None, [*parts, "Figures of GPU functions have one." * bool(where)]))
    if fitted := document.get("fitted"):
        yield fitted


def tables(document: Document) -> Iterator[Table]:
    """Yield tables: orders, the paper's columns, where one pattern wins, rankings, and bills of each group and variant.
    A document with matrices only yields these."""
    if "matrices" in document:
        yield from matrices(document)
        return
    columns = (column_table(document, column) for column in document["columns"])
    if "orders" in document:
        # Where only orders were published, show them first; the columns are details.
        yield orders(document)
    yield from (table for table in columns if table.rows)
    yield from thresholds(document)
    yield from map(ranking_table, document["rankings"])
    yield from matrices(document)
    yield from bill_tables(document)


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
    return _joined(row["name"], row["group"], row["variant"])


def _joined(*parts: str, by: str = ", ") -> str:
    return by.join(filter(None, parts))


def column_table(document: Document, column: Document) -> Table:
    """Return a row per row and variant that has any figures."""
    name, digits = column["name"], column.get("digits", DIGITS.get(column["unit"], 3))
    cells = [(row, row["cells"][name]) for row in document["rows"] if name in row["cells"]]
    ways = list(dict.fromkeys(again["way"] for _, cell in cells for again in cell["recomputed"] if again["value"]))
    rows: list[Row] = []
    for row, cell in cells:
        values = {again["way"]: again for again in cell["recomputed"] if again["value"]}
        if cell["published"] or values or cell["measured"] or cell["modelled"]:
            rows.append(
                (
                    *(row["name"], row["group"], row["variant"], cell["published"] or MISSING),
                    *(_recomputed(values[way]) if way in values else MISSING for way in ways),
                    *(_estimate(cell["measured"], digits, ""), _estimate(cell["modelled"], digits, "≈")),
                    MISSING if cell["difference"] is None else percent(cell["difference"], "+.0"),
                    Cell(cell["verdict"] or MISSING, _reasons(cell), mood=MOODS.get(cell["verdict"], "")),
                )
            )
    headings = ("row", "model", "variant", "published", *ways, "measured", "modelled", "difference", "verdict")
    return Table(headings, rows, caption=f"{column['title']} ({column['unit']})", words=range(3)).filled()


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


def thresholds(document: Document) -> Iterator[Table]:
    """Yield which of two patterns is faster, and from which latency × bandwidth ÷ size of a gradient on, if a study
    compares them."""
    if not (compared := [row for row in document["rows"] if "intervals" in row]):
        return
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
    yield Table(
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
    longest = max(len(ranking[basis]) for basis in bases)
    placed = {basis: [f"{name} {value:.4f}" for name, value in ranking[basis]] for basis in bases}
    rows = [(basis, *order, *[MISSING] * (longest - len(order))) for basis, order in placed.items()]
    return Table(
        ("", *map(str, range(1, longest + 1))),
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


def bill_tables(document: Document) -> Iterator[Table]:
    """Yield the bills of each group by variant: the part that the paper counts, and every other line."""
    for group, bills in grouped((bill["group"], bill) for bill in document["bills"]).items():
        names = [bill["name"] for bill in bills]
        for variant in dict.fromkeys(bill["variant"] for bill in bills):
            # Rows with one variant (instances) appear in each.
            beside = (bill for bill in bills if bill["variant"] == variant or names.count(bill["name"]) == 1)
            if shown := [bill for bill in beside if bill["lines"]]:
                yield _bill_table(f"{group}, {variant}", shown)


def _bill_table(what: str, bills: Sequence[Document]) -> Table:
    columns = [{line["item"]: line for line in bill["lines"]} for bill in bills]
    counted = {line["item"] for bill in bills for line in bill["lines"] if line["in_paper"]}
    rows = [
        (
            f"{item}{' (the paper)' * (item in counted)}",
            *(_amount(lines[item]) if item in lines else MISSING for lines in columns),
        )
        for item in dict.fromkeys(line["item"] for bill in bills for line in bill["lines"])
    ]
    totals = (sum(float(line["amount"]) for line in bill["lines"]) for bill in bills)
    return Table(
        ("modelled", *(bill["name"] for bill in bills)),
        [*rows, ("whole bill", *(f"≈{total:.5f}" for total in totals))],
        caption=f"Counted by the paper, and left out: {what}, USD per epoch",
    )


def _amount(line: Document) -> Cell:
    used = " ".join(line[name] for name in ("quantity", "unit") if name in line)
    return Cell(f"≈{float(line['amount']):.5f}", used)
