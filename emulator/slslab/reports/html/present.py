"""The card of a run that goes on: what its workers and its invocations do at the moment."""

from slslab.reports.html import formats
from slslab.reports.html.measures import short_name
from slslab.reports.html.parts import Card, Cell, Document, Table

# Of a limit, from which on memory is bad news.
NEAR = 0.9


def present_card(document: Document) -> Card | None:
    """What each worker did last, and the invocations under way with their memory against the limit."""
    if "now" not in document:
        return None
    tables = tuple(table for table in (_workers(document), _invocations(document)) if table is not None)
    if not tables:
        return None
    return Card(
        "card-now",
        "Now",
        tables=tables,
        notes=("Of each worker the operation that ended last; the one that it is at is told at its end.",),
        wide=True,
    )


def _workers(document: Document) -> Table | None:
    rows = [
        (
            f"worker {one['worker']}",
            Cell("under way", mood="good") if one["under_way"] else "between invocations",
            _place(one["epoch"]),
            _place(one["step"]),
            f"{one['op']} ({one['phase']})",
            formats.seconds(one["seconds_ago"]),
        )
        for one in document["now"]["workers"]
    ]
    columns = ("worker", "state", "epoch", "minibatch", "latest operation", "ended before")
    return Table(columns, rows, caption="Workers", words=frozenset({0, 1, 4})) if rows else None


def _invocations(document: Document) -> Table | None:
    rows = [
        (
            short_name(one["function"], str(document["run"])),
            _place(one["worker"], 0),
            formats.seconds(one["seconds"]),
            _memory(one["peak_memory_mb"], one["memory_mb"]),
            formats.megabytes(one["memory_mb"]),
        )
        for one in document["now"]["invocations"]
    ]
    columns = ("function", "worker", "for", "peak memory so far", "memory size")
    return Table(columns, rows, caption="Invocations under way") if rows else None


def _memory(peak_mb: int, limit_mb: int) -> Cell:
    return Cell(formats.megabytes(peak_mb), mood="bad" if peak_mb >= NEAR * limit_mb else "")


def _place(number: int, first: int = 1) -> str:
    """An epoch or step as people count them, from 1 on; where there is none, a dash."""
    return formats.MISSING if number < 0 else str(number + first)
