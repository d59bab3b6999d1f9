"""From metering to bill: every invocation is metered, the document matches the trace, and the bill matches both."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from slslab.errors import RequestError
from slslab.run import metrics
from slslab.run.bill import load_book
from slslab.run.run import Run
from slslab_lab.checks.violation import NotChecked, Violation

# Figures of a document that can be computed again from its trace and its metered records.
TOTALS = (
    *("billed_seconds", "gb_seconds", "invocations", "cold_starts", "peak_memory_mb"),
    *("phases", "counts", "bytes", "overheads", "per_worker", "orchestration_seconds"),
)
# A bill's amounts are exact; the checks calculate with 28 digits.
ROUNDING = Decimal("1e-20")
NO_DOCUMENT = "the run's command was killed before it wrote a document"


def check_metered(run: Run) -> Iterator[Violation]:
    """Check that every accepted invocation is metered, and nothing else."""
    accepted = {e["invocation"]: e for e in run.events if e["op"] == "invoke" and e["worker"] < 0}
    metered = metrics.grouped((record["request_id"], record) for record in run.invocations)
    for invocation, event in accepted.items():
        records = metered[invocation]
        if not records and not event["failed"]:
            worker = next((e["worker"] for e in run.events if e["invocation"] == invocation and e["worker"] >= 0), -1)
            sentence = f"Invocation {invocation} of {event['function']} isn't metered, so it isn't billed."
            yield Violation("metered", sentence, worker, event=event["event"])
        if len(records) > 1 and all(record.get("invocation_type") != "Event" for record in records):
            sentence = f"Invocation {invocation} is metered {len(records)} times."
            yield Violation("metered", sentence, event=event["event"])
    for record in run.invocations:
        accepting = accepted.get(record["request_id"])
        if accepting is None:
            yield Violation("metered", f"Invocation {record['request_id']} is metered but not in the trace.")
        elif record["start_ns"] < accepting["start_ns"] or record["end_ns"] > accepting["end_ns"]:
            sentence = f"Invocation {record['request_id']} is metered outside the time in which it was accepted."
            yield Violation("metered", sentence, event=accepting["event"])


def check_totals(run: Run) -> Iterator[Violation]:
    """Check that the figures in the run's document match its trace and its metered records."""
    if run.document is None:
        raise NotChecked(NO_DOCUMENT)
    found = run.totals()
    for name in TOTALS:
        if run.document[name] != found[name]:
            stated, sums = _different(run.document[name], found[name])
            yield Violation("totals", f"The document says {name} {stated}, but the trace adds up to {sums}.")


def check_bill(run: Run) -> Iterator[Violation]:
    """Check that the bill's lines are the trace's usage at the book's prices, and add up to its total."""
    if run.document is None:
        raise NotChecked(NO_DOCUMENT)
    cost = run.document["cost"]
    yield from _check_sums(cost, "of this host")
    modelled = run.document["lambda"]
    if modelled["status"] == "modelled":
        yield from _check_sums(modelled["cost"], "on Lambda")
    try:
        book = load_book(run.plan.prices)
    except RequestError as error:
        raise NotChecked(error.message) from error
    if {"name": book.name, "date": book.date.isoformat()} != cost["book"]:
        raise NotChecked(f"its price book, {cost['book']['name']} of {cost['book']['date']}, isn't installed")
    stated, expected = (dict(_quantities(each)) for each in (cost, run.cost(book)))
    for item in sorted(stated.keys() | expected.keys()):
        if stated.get(item) != expected.get(item):
            here, there = stated.get(item, "nothing"), expected.get(item, "nothing")
            yield Violation("bill", f"The bill has {here} of {item[0]}, but the trace's usage is {there}.")


def _check_sums(cost: Mapping[str, Any], which: str) -> Iterator[Violation]:
    for line in cost["lines"]:
        due = Decimal(line["quantity"]) * Decimal(line["price"])
        if abs(due - Decimal(line["amount"])) > abs(due) * ROUNDING:
            usage = f"{line['quantity']} at {line['price']}"
            yield Violation("bill", f"{line['item']} {which} is billed {line['amount']}, but {usage} is {due}.")
    total = sum(Decimal(line["amount"]) for line in cost["lines"])
    if abs(total - Decimal(cost["total"])) > total * ROUNDING:
        yield Violation("bill", f"The bill's lines {which} add up to {total}, but its total is {cost['total']}.")


def _quantities(cost: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield quantities by item and price; an item has a line per price tier."""
    for line in cost["lines"]:
        yield (line["item"], line["price"]), f"{line['quantity']} {line['unit']} at {line['price']}"
    for line in cost["not_billed"]:
        yield (line["item"], ""), f"{line['quantity']} {line['unit']}, not billed"


def _different(stated: Any, found: Any) -> tuple[Any, Any]:
    if isinstance(stated, dict) and isinstance(found, dict):
        for name in sorted(stated.keys() | found.keys()):
            if stated.get(name) != found.get(name):
                here, there = _different(stated.get(name), found.get(name))
                return f"{name} {here}", f"{name} {there}"
    if isinstance(stated, list) and isinstance(found, list) and len(stated) == len(found):
        return next(_different(a, b) for a, b in zip(stated, found, strict=True) if a != b)
    return stated, found
