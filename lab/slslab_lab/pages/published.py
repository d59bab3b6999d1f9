"""Published figures for a run's architecture and model, next to the run's own."""

import re
from dataclasses import dataclass
from decimal import Decimal

from slslab.predict.uncertainty import read_uncertainty
from slslab.report import formats
from slslab.report.page import Card, Document, Table
from slslab.report.summaries import epochs_of, handler_seconds, replayed
from slslab_lab.papers.paper import Paper, Row, load_paper, paper_names
from slslab_lab.papers.paper import Table as PaperTable

# Table 2 of barrak-2025's columns, in words.
COLUMNS = {
    "function_seconds": "time of a function, a minibatch",
    "epoch_seconds": "time of a worker, an epoch",
    "memory_mb": "memory",
    "function_cost": "duration's cost, a minibatch",
    "worker_cost": "duration's cost of a worker, an epoch",
    "total_cost": "duration's cost, an epoch",
}
# Conditions in which a published row and a run may differ.
CONDITIONS = {"dataset": "data set", "workers": "workers", "batches": "minibatches", "batch_size": "images a minibatch"}


@dataclass(frozen=True)
class Match:
    """A published row of the same architecture and model."""

    paper: Paper
    table: PaperTable
    row: Row


def find_published(document: Document) -> list[Match]:
    """Return rows with numbers, from any paper's tables, that have this run's architecture and model as inputs."""
    names = ("architecture", "model")
    return [
        Match(paper, table, row)
        for paper in map(load_paper, paper_names())
        for table in paper.tables.values()
        for row in table.rows
        if row.published and all(_plain(table.inputs_of(row).get(name)) == _plain(document.get(name)) for name in names)
    ]


def published_card(document: Document) -> Card | None:
    """Return published rows next to the run's own figures, and the conditions in which they differ."""
    if not document.get("cost") or not document.get("per_worker"):
        return None
    ours = own_figures(document)
    tables, notes = [], []
    for match in find_published(document):
        columns = [column for column in match.row.published if column in ours]
        if not columns:
            continue
        rows = [
            (
                f"{COLUMNS[column]}, {match.table.units[column]}",
                f"{match.row.published[column]}",
                _modelled(document, column, ours[column][1]),
                formats.significant(ours[column][0]),
            )
            for column in columns
        ]
        title = f"{match.paper.name}, {match.table.source}: {match.row.name}"
        tables.append(Table(("", "published", "modelled", "measured"), rows, caption=title))
        if differing := _differing(match, document):
            notes.append(f"{match.table.source} has {', '.join(differing)}: compare ratios, not amounts.")
    return Card("card-published", "Published and ours", (), tuple(tables), notes=tuple(notes)) if tables else None


def _modelled(document: Document, column: str, value: float | None) -> str:
    """Return a modelled figure as its 80 % range: a share of the run's billed time or cost is equally uncertain."""
    uncertainty = (replayed(document) or {}).get("uncertainty")
    if value is None or uncertainty is None:
        return formats.significant(value)
    of = "cost" if column.endswith("cost") else "billed_seconds"
    return formats.span(*read_uncertainty(uncertainty[of]).around(value))


def own_figures(document: Document) -> dict[str, tuple[float | None, float | None]]:
    """Return the run's own figures in the columns of Table 2, measured and modelled; means over workers, epochs,
    minibatches.

    Times are the handlers', without init; costs are only the duration's line, as in the table. All functions of a
    worker count."""
    workers, batches = document["workers"], document["batches"]
    epochs = epochs_of(document)
    seconds: tuple[float, float | None] = sum(map(handler_seconds, document["per_worker"])), None
    costs: tuple[float, float | None] = _duration(document["cost"]), None
    if (found := replayed(document)) is not None:
        seconds = seconds[0], sum(worker["seconds"] for worker in found["per_worker"])
        costs = costs[0], _duration(found["cost"])

    def mean(values: tuple[float, float | None], number: int) -> tuple[float, float | None]:
        return values[0] / number, None if values[1] is None else values[1] / number

    return {
        "function_seconds": mean(seconds, workers * epochs * batches),
        "epoch_seconds": mean(seconds, workers * epochs),
        "memory_mb": (document["peak_memory_mb"], None),
        "function_cost": mean(costs, workers * epochs * batches),
        "worker_cost": mean(costs, workers * epochs),
        "total_cost": mean(costs, epochs),
    }


def _duration(cost: Document) -> float:
    """Return the USD for computing: the duration of functions, or else instances."""
    for computes in ("Lambda duration", "Host "):
        amounts = [Decimal(line["amount"]) for line in cost["lines"] if line["item"].startswith(computes)]
        if amounts:
            return float(sum(amounts))
    return 0.0


def _differing(match: Match, document: Document) -> list[str]:
    inputs = match.table.inputs_of(match.row)
    return [
        f"{inputs[name]} {words}" if name != "dataset" else str(inputs[name])
        for name, words in CONDITIONS.items()
        if name in inputs and _plain(inputs[name]) != _plain(document.get(name))
    ]


def _plain(name: object) -> str:
    """Return a name in a common spelling: ResNet-18 becomes resnet18."""
    return re.sub(r"[^a-z0-9]", "", str(name or "").lower())
