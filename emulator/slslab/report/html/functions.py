"""The card of functions, and the page of a session of tests: tables without charts, which need no charting library."""

from slslab.report import formats
from slslab.report.html.page import make_page
from slslab.report.html.parts import Card, Caution, Cell, Document, Page, Table
from slslab.report.summaries import predicted, predicted_cost, predicted_ms, predicted_notes


def functions_card(document: Document) -> Card | None:
    """Return what each function of a service or of a session of tests did; of the latter what it cost, too."""
    functions = document.get("functions")
    if not functions:
        return None
    priced = "cost" in functions[0]
    rows = [
        (
            each["function"],
            formats.megabytes(each["memory_mb"]),
            formats.integer(each["invocations"]),
            formats.integer(each["cold_starts"]),
            formats.integer(each["errors"]),
            *(f"{each['reports']['duration_ms'][key]:,.2f}" for key in ("min", "median", "max")),
            predicted_ms(each),
            f"{each['billed_seconds']:,.3f}",
            Cell(formats.megabytes(each["peak_memory_mb"]), f"{each['peak_memory_mb'] / each['memory_mb']:.0%} of it"),
            *((_cost(each),) if priced else ()),
        )
        for each in functions
    ]
    durations = ("min ms", "median ms", "max ms", "Lambda: median ms")
    columns = ("function", "memory size", "invocations", "cold", "errors", *durations, "billed s", "peak memory")
    table = Table((*columns, "Lambda: cost") if priced else columns, rows)
    return Card("card-functions", "Functions", (), (table,), wide=True)


def session_page(document: Document) -> str:
    """Return the page of a session of tests: what `pytest --slslab-report FILE.json` writes."""
    cards = (_tests_card(document), functions_card(document))
    book = document["cost"]["book"]
    notes = " ".join(predicted_notes(document))
    page = Page(
        title="Functions under test",
        subtitle="a session of pytest",
        answers=(document["answer"],),
        answers_note=f"Lambda's lines alone, by prices of {book['name']}, {book['date']}. {notes}".rstrip(),
        cards=tuple(card for card in cards if card is not None),
        warnings=tuple(Caution(warning) for warning in document["warnings"]),
    )
    return make_page(page)


def _tests_card(document: Document) -> Card | None:
    if not document["tests"]:
        return None
    rows = [(row["test"], *_figures(row), formats.money(row["cost"]), _cost(row)) for row in document["tests"]]
    columns = ("test", "invocations", "cold", "billed s", "peak memory", "this host, USD", "Lambda")
    total = ("total", *_figures(document), formats.money(document["cost"]["total"]), _cost(document))
    note = "The peak is that of the invocation that used most. What a test left running counts where it ended."
    return Card("card-tests", "Tests", (), (Table(columns, rows, total),), notes=(note,), wide=True)


def _cost(row: Document) -> str:
    found = predicted(row)
    return formats.MISSING if found is None else predicted_cost(found)


def _figures(row: Document) -> tuple[str, ...]:
    return (
        formats.integer(row["invocations"]),
        formats.integer(row["cold_starts"]),
        f"{row['billed_seconds']:,.3f}",
        formats.megabytes(row.get("peak_memory_mb")),
    )
