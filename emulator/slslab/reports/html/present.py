"""The card of a running run: what its workers and its invocations do at the moment."""

from slslab.reports.html import formats
from slslab.reports.html.measures import short_name
from slslab.reports.html.parts import Card, Cell, Document, Table

# From this share of the limit on, memory use is marked.
NEAR = 0.9


def present_card(document: Document) -> Card | None:
    """Return what each worker did last, and the running invocations with their memory against the limit."""
    if "now" not in document:
        return None
    tables = tuple(table for table in (_workers(document), _invocations(document)) if table is not None)
    if not tables:
        return None
    return Card(
        "card-now",
        "Now",
        tables=tables,
        notes=("Of each worker the operation that ended last; the current one is recorded at its end.",),
        wide=True,
    )


def _workers(document: Document) -> Table | None:
    rows = [
        (
            f"worker {worker['worker']}",
            Cell("running", mood="good") if worker["under_way"] else "between invocations",
            _place(worker["epoch"]),
            _place(worker["step"]),
            f"{worker['op']} ({worker['phase']})",
            formats.seconds(worker["seconds_ago"]),
        )
        for worker in document["now"]["workers"]
    ]
    columns = ("worker", "state", "epoch", "minibatch", "latest operation", "ended ago")
    return Table(columns, rows, caption="Workers", words=frozenset({0, 1, 4})) if rows else None


def _invocations(document: Document) -> Table | None:
    rows = [
        (
            short_name(invocation["function"], str(document["run"])),
            _place(invocation["worker"], 0),
            formats.seconds(invocation["seconds"]),
            _memory(invocation["peak_memory_mb"], invocation["memory_mb"]),
            formats.megabytes(invocation["memory_mb"]),
        )
        for invocation in document["now"]["invocations"]
    ]
    columns = ("function", "worker", "for", "peak memory so far", "memory size")
    return Table(columns, rows, caption="Running invocations") if rows else None


def _memory(peak_mb: int, limit_mb: int) -> Cell:
    return Cell(formats.megabytes(peak_mb), mood="bad" if peak_mb >= NEAR * limit_mb else "")


def _place(number: int, first: int = 1) -> str:
    """Return an epoch or step as people count them, from 1 on; a dash if there is none."""
    return formats.MISSING if number < 0 else str(number + first)
