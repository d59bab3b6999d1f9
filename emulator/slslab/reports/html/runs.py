"""What the page of a run shows, out of its document, its trace and its metered invocations."""

from slslab.metrics import Records, Rows
from slslab.reports.html import charts, formats
from slslab.reports.html.parts import Card, Chart, Document, Figure, Page, Table


def describe_run(document: Document, events: Rows | None, invocations: Records) -> Page:
    """The page of a run; what the document does not have yet is left out."""
    cards = [_phases(document)] if document.get("per_worker") else []
    return Page(str(document["run"]), "run", tuple(cards), str(document["status"]), figures=_figures(document))


def _figures(document: Document) -> tuple[Figure, ...]:
    cost = document.get("cost")
    return (Figure("cost", formats.money(cost["total"], cost["currency"]), "measured"),) if cost else ()


def _phases(document: Document) -> Card:
    rows = [
        (f"worker {worker['worker']}", phase, worker["phases"][phase])
        for worker in document["per_worker"]
        for phase in charts.PHASES
    ]
    chart = charts.stacked_bars("phases", "Seconds of each phase per worker", rows, charts.PHASE_KEYS, "Lambda time, s")
    return Card("card-phases", "Phases per worker", (chart,))
