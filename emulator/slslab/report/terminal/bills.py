"""Bills of runs for a terminal, made from their documents."""

from decimal import Decimal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slslab.report.formats import span
from slslab.report.summaries import (
    HOST_PRICED,
    PREDICTED_RANGES,
    Document,
    amount,
    cost_range,
    predicted,
    predicted_cost,
    quantity,
    ranges_made_of,
    region,
    replayed,
)
from slslab.report.terminal.tables import plain_table


def both_bills(document: Document) -> RenderableType:
    """Return what `bill` prints of a run: the bill, which is Lambda's, and behind it this host's seconds, priced."""
    if "profile" in document:
        shown = f"{span(**document['range'])} {document['currency']}"
        note = ranges_made_of([document["uncertainty"]]) if "uncertainty" in document else PREDICTED_RANGES
        lead: tuple[RenderableType, ...] = (_modelled_bill(document, document, shown), Text(note, "dim"))
    else:
        lead = (Text(f"No bill, because it is not modelled: {document['reason']}", "bold yellow"),)
    return Group(*lead, bill(document["host"], HOST_PRICED.capitalize()))


def run_bill(document: Document) -> Table:
    """Return the bill of a run, or what stands in its place."""
    if (found := replayed(document)) is not None:
        return _modelled_bill(found, found["cost"], cost_range(found) or amount(found["cost"]))
    if (found := predicted(document)) is not None:
        return _modelled_bill(found, found["cost"], predicted_cost(found))
    return bill(document["cost"], HOST_PRICED.capitalize())


def _modelled_bill(found: Document, cost: Document, shown: str) -> Table:
    return bill(cost, f"Bill ({region(found)}, modelled): {shown}")


def bill(cost: Document, title: str = "Bill") -> Table:
    """Return a bill line by line, whose lines add up to the total exactly, with its notes below."""
    table = plain_table(
        ("item", "quantity", "unit", f"price {cost['currency']}", f"amount {cost['currency']}"),
        (
            (_item(line), quantity(line["quantity"]), line["unit"], line["price"], f"{Decimal(line['amount']):.8f}")
            for line in cost["lines"]
        ),
        [
            ("total", "", "", "", f"{Decimal(cost['total']):.8f}"),
            *(
                (
                    Text(f"{line['item']} (no price in {cost['book']['name']})", "dim"),
                    quantity(line["quantity"]),
                    line["unit"],
                )
                for line in cost["not_billed"]
            ),
        ],
        title=title,
        dispensable=(f"price {cost['currency']}",),
    )
    table.caption, table.caption_justify = "\n".join(cost.get("notes", ())), "left"
    return table


def _item(line: Document) -> str:
    return f"{line['item']} (assumed)" if line.get("assumed") else str(line["item"])
