"""The document of a session of tests: what its tests and functions took and cost, of the invocations' records."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from slslab.billing.bill import DEFAULT_BOOK, Book, Usage, compute_bill, load_book
from slslab.errors import counted
from slslab.reports.formats import significant
from slslab.reports.services import function_row
from slslab.reports.summaries import amount
from slslab.trace.metrics import Records, grouped

SCHEMA = 1
Invoked = Sequence[tuple[str, Mapping[str, Any]]]


def session_document(invoked: Invoked, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """Return the document by the names of tests, each with the record of an invocation; costs are exact, as text.

    `warnings` are sentences on what it lacks. A function that was invoked with several memory sizes has a row for each.
    """
    book = load_book(DEFAULT_BOOK)
    records = [record for _, record in invoked]
    by_function = grouped(((record["function"], record["memory_mb"]), record) for record in records)
    document = {
        "schema": SCHEMA,
        **_totals(records),
        "cost": compute_bill(Usage(records), book).as_document(),
        "tests": [
            {"test": test, **_totals(own), "peak_memory_mb": _peak(own), "cost": _cost(own, book)}
            for test, own in grouped(invoked).items()
        ],
        "functions": [{**function_row(own), "cost": _cost(own, book)} for _, own in sorted(by_function.items())],
        "warnings": list(warnings),
    }
    return {**document, "answer": _answer(document)}


def _totals(records: Records) -> dict[str, Any]:
    return {
        "invocations": len(records),
        "cold_starts": sum(record["cold_start"] for record in records),
        "billed_seconds": sum(record["billed_ms"] for record in records) / 1000,
    }


def _peak(records: Records) -> int:
    return max(int(record["max_memory_mb"]) for record in records)


def _cost(records: Records, book: Book) -> str:
    return str(compute_bill(Usage(records), book).as_document()["total"])


def _answer(document: Mapping[str, Any]) -> str:
    """Return the sentence that a reader came for."""
    tests, cost = document["tests"], document["cost"]
    if not tests:
        return "No test invoked a function."
    functions = {row["function"] for row in document["functions"]}
    most = max(tests, key=lambda row: Decimal(row["cost"]))
    return (
        f"{counted(len(tests), 'test')} invoked {counted(len(functions), 'function')} "
        f"{counted(document['invocations'], 'time')}, billed {significant(document['billed_seconds'], 3)} s, "
        f"{amount(cost, 3)}; the most expensive test is {most['test']} (${significant(float(most['cost']), 3)})."
    )
