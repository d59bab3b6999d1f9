"""Bills of runs and services as tables, made from their documents; `slslab.run.bill` computes them."""

from collections.abc import Iterator
from decimal import Decimal

from slslab.report import summaries
from slslab.report.cards import functions_card
from slslab.report.formats import significant, span
from slslab.report.page import Card, Cell, Document, Note, Part, Table

SHARE = (
    "Totals and comparisons have a share, by the second, of hosts that are always on. With hosts of its own, each hour "
    "that its cache begins would be billed."
)


def both_bills(document: Document) -> Iterator[Part]:
    """Yield what `bill` prints for a run: Lambda's bill, then this host's seconds, priced."""
    if "profile" in document:
        shown = f"{span(**document['range'])} {document['currency']}"
        yield bill_table(document, f"Bill ({summaries.region(document)}, modelled): {shown}")
        note = (
            summaries.ranges_made_of([document["uncertainty"]])
            if "uncertainty" in document
            else summaries.PREDICTED_RANGES
        )
        yield Note(f"The lines are at the middle of the range. {note}", "muted")
    else:
        yield Note(f"No bill, because it is not modelled: {document['reason']}", "answer warn")
    if (functions := functions_card(document)) is not None:
        yield functions
    yield bill_table(document["host"], summaries.HOST_PRICED.capitalize())
    book = document["host"]["book"]
    yield Note(f"Prices: {book['name']} of {book['date']}.", "muted")


def bill_card(document: Document) -> Card | None:
    """Return the bill line by line, with the price of this host's usage behind it, or alone without a model."""
    cost = document.get("cost")
    if not cost:
        return None
    found = summaries.replayed(document) or document.get("predicted")
    if found is not None:
        shown, title = found["cost"], f"Bill ({summaries.region(found)}, modelled)"
        behind: tuple[Table, ...] = (bill_table(cost, summaries.HOST_PRICED.capitalize(), folded=True),)
    else:
        shown, title = cost, summaries.HOST_PRICED.capitalize()
        behind = ()
    book, statuses = shown["book"], ", ".join(dict.fromkeys(line["status"] for line in shown["lines"]))
    return Card(
        "card-bill",
        title,
        tables=(bill_table(shown), *behind),
        notes=(f"Prices of {book['name']}, {book['date']}: {statuses}.",),
    )


def bill_table(cost: Document, title: str = "", *, folded: bool = False) -> Table:
    """Return a bill as a table, with its notes below. The lines add up to the total exactly."""
    rows = [
        (
            f"{line['item']} (assumed)" if line.get("assumed") else line["item"],
            summaries.quantity(line["quantity"]),
            line["unit"],
            Cell(_price(line["price"]), line["status"], title=line["price"]),
            _amount(line["amount"]),
        )
        for line in cost["lines"]
    ]
    unpriced = [
        (
            Cell(f"{line['item']} (no price in {cost['book']['name']})", mood="muted"),
            *(summaries.quantity(line["quantity"]), line["unit"], "", ""),
        )
        for line in cost["not_billed"]
    ]
    alone = []
    if "total_alone" in cost:
        alone.append(("with hosts of its own", "", "", "", _amount(cost["total_alone"])))
    notes = [SHARE] * bool(alone) + cost.get("notes", [])
    price = f"price {cost['currency']}"
    return Table(
        ("item", "quantity", "unit", price, f"amount {cost['currency']}"),
        rows,
        (("total", "", "", "", _amount(cost["total"])), *alone, *unpriced),
        title,
        folded=folded,
        note="\n".join(notes),
        dispensable=(price,),
    )


def _price(price: str) -> str:
    """Return a price as the book has it, or to six significant digits if it has more than a table has room for."""
    return price if len(price) <= 12 else significant(float(price), 6)


def _amount(amount: str) -> Cell:
    return Cell(f"{Decimal(amount):.8f}", title=amount)
