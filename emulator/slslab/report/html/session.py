"""The page of a test session: tables without charts."""

from slslab.report import formats
from slslab.report.cards import cost_cell, functions_card
from slslab.report.html.page import make_page
from slslab.report.page import Card, Document, Note, Page, Table
from slslab.report.summaries import predicted_notes


def session_page(document: Document) -> str:
    """Return the page of a test session from the document of `pytest --slslab-report FILE.json`."""
    cards = (_tests_card(document), functions_card(document))
    book = document["cost"]["book"]
    prices, notes = f"{book['name']}, {book['date']}", " ".join(predicted_notes(document))
    page = Page(
        title="Functions under test",
        subtitle="a session of pytest",
        answers=(document["answer"],),
        answers_note=f"Lambda's lines and requests to S3, by prices of {prices}. {notes}".rstrip(),
        cards=tuple(card for card in cards if card is not None),
        warnings=tuple(Note(warning) for warning in document["warnings"]),
    )
    return make_page(page)


def _tests_card(document: Document) -> Card | None:
    if not document["tests"]:
        return None
    rows = [(row["test"], *_figures(row), formats.money(row["cost"]), cost_cell(row)) for row in document["tests"]]
    columns = ("test", "invocations", "cold", "billed s", "peak memory", "this host, USD", "Lambda")
    total = ("total", *_figures(document), formats.money(document["cost"]["total"]), cost_cell(document))
    note = "The peak is the highest of all invocations. An invocation counts for the test during which it ended."
    return Card("card-tests", "Tests", (), (Table(columns, rows, (total,)),), notes=(note,), wide=True)


def _figures(row: Document) -> tuple[str, ...]:
    return (
        formats.integer(row["invocations"]),
        formats.integer(row["cold_starts"]),
        f"{row['billed_seconds']:,.3f}",
        formats.megabytes(row.get("peak_memory_mb")),
    )
