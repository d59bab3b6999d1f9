"""The document and the page of a session of tests: what tests and functions took and cost, here and on Lambda."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

from slslab.errors import RequestError, counted
from slslab.predict.invocation import Predictor
from slslab.report import formats
from slslab.report.cards import functions_card
from slslab.report.formats import significant
from slslab.report.page import Card, Document, Note, Page, Table
from slslab.report.summaries import amount, cost_text, predicted_notes
from slslab.run.metrics import sums
from slslab.run.predictions import Requests, predict
from slslab.run.service import function_rows

SCHEMA = 2
Invoked = Sequence[tuple[str, Mapping[str, Any]]]


def session_document(
    invoked: Invoked, predictor: Predictor, requests: Requests, warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the document for pairs of a test's name and an invocation's record. Costs are exact, as text.

    `requests` are each function's requests to S3 and SQS. `warnings` are sentences on missing data. A function that was
    invoked with several memory sizes has a row for each.
    """
    records = [record for _, record in invoked]
    found = predict(records, requests, predictor)
    bill = found.bill()
    tests = found.by([test for test, _ in invoked])
    document = {
        "schema": SCHEMA,
        **sums(records),
        "cost": bill(records),
        "predicted": found.document(bill),
        "tests": [{"test": test, **sums(own.records), **own.costs()} for test, own in tests.items()],
        "functions": function_rows(found),
        "warnings": list(warnings),
    }
    return {**document, "answer": _answer(document)}


def _answer(document: Mapping[str, Any]) -> str:
    tests, cost = document["tests"], document["cost"]
    if not tests:
        return "No test invoked a function."
    functions = {row["function"] for row in document["functions"]}
    most = max(tests, key=lambda row: Decimal(row["cost"]))
    return (
        f"{counted(len(tests), 'test')} invoked {counted(len(functions), 'function')} "
        f"{counted(document['invocations'], 'time')}. On Lambda: {cost_text(document['predicted'])}. This host billed "
        f"{significant(document['billed_seconds'], 3)} s, {amount(cost)}. The most expensive test is {most['test']}."
    )


def read_usd(amount: str | float) -> Decimal:
    """Return an amount in USD as a decimal number; RequestError if it isn't one."""
    with suppress(InvalidOperation):
        if (usd := Decimal(str(amount))).is_finite():
            return usd
    raise RequestError(f"{amount!r} is not an amount in USD.", 'give a number alone, such as "0.01".')


def too_expensive(found: Mapping[str, Any], here: Mapping[str, Any], amount: str | float) -> str:
    """Return why a test failed: what its invocations cost on Lambda, and as this host metered them."""
    lines = [f"On Lambda the invocations cost {cost_text(found)}. The upper end isn't below {amount}."]
    lines += found["notes"]
    lines.append(f"As this host metered them, they cost {here['total']} {here['currency']}:")
    lines += [f"  {line['item']}: {line['quantity']} {line['unit']} = {line['amount']}" for line in here["lines"]]
    return "\n".join(lines)


def session_page(document: Document) -> Page:
    """Return the page of a test session from the document of `pytest --slslab-report FILE.json`."""
    cards = (_tests_card(document), functions_card(document))
    book = document["cost"]["book"]
    prices, notes = f"{book['name']}, {book['date']}", " ".join(predicted_notes(document))
    return Page(
        title="Functions under test",
        subtitle="a session of pytest",
        answers=(document["answer"],),
        answers_note=f"Lambda's lines and requests to S3, by prices of {prices}. {notes}".rstrip(),
        cards=tuple(card for card in cards if card is not None),
        warnings=tuple(Note(warning) for warning in document["warnings"]),
    )


def _tests_card(document: Document) -> Card | None:
    if not document["tests"]:
        return None
    rows = [(row["test"], *_figures(row, row["cost"])) for row in document["tests"]]
    columns = ("test", "invocations", "cold", "billed s", "peak memory", "this host, USD", "Lambda")
    total = ("total", *_figures(document, document["cost"]["total"]))
    note = "The peak is the highest of all invocations. An invocation counts for the test during which it ended."
    return Card("card-tests", "Tests", (), (Table(columns, rows, (total,)),), notes=(note,), wide=True)


def _figures(row: Document, usd: str) -> tuple[str, ...]:
    return (
        significant(row["invocations"]),
        significant(row["cold_starts"]),
        f"{row['billed_seconds']:,.3f}",
        formats.megabytes(row["peak_memory_mb"]),
        significant(float(usd)),
        cost_text(row["predicted"]),
    )
