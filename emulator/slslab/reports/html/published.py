"""What papers published of a run's architecture and model, beside the run."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from slslab.papers import Paper, Row, load_paper, paper_names
from slslab.papers import Table as PaperTable
from slslab.reports.html import formats
from slslab.reports.html.parts import Card, Document, Table

# What Table 2 of barrak-2025 calls its columns, in words.
COLUMNS = {
    "function_seconds": "time of a function, a minibatch",
    "epoch_seconds": "time of a worker, an epoch",
    "memory_mb": "memory",
    "function_cost": "duration's cost, a minibatch",
    "worker_cost": "duration's cost of a worker, an epoch",
    "total_cost": "duration's cost, an epoch",
}
# Conditions that a published row and a run have in common, or not.
CONDITIONS = {"dataset": "data set", "workers": "workers", "batches": "minibatches", "batch_size": "images a minibatch"}


@dataclass(frozen=True)
class Match:
    """A published row of the same architecture and model."""

    paper: Paper
    table: PaperTable
    row: Row


def find_published(document: Document) -> list[Match]:
    """Rows with numbers, of any paper's tables, that have this run's architecture and model among their inputs."""
    wanted = {name: _plain(document.get(name)) for name in ("architecture", "model")}
    return [
        Match(paper, table, row)
        for paper, table, row in _rows()
        if row.published and all(_plain(table.inputs_of(row).get(name)) == value for name, value in wanted.items())
    ]


def published_card(document: Document) -> Card | None:
    """Published rows beside the run's own figures, and the conditions in which they differ."""
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
                *map(formats.significant, ours[column]),
            )
            for column in columns
        ]
        title = f"{match.paper.name}, {match.table.source}: {match.row.name}"
        tables.append(Table(("", "published", "measured", "modelled"), rows, caption=title))
        if differing := _differing(match, document):
            notes.append(f"{match.table.source} is of {', '.join(differing)}: compare ratios before amounts.")
    return Card("card-published", "Published and ours", (), tuple(tables), notes=tuple(notes)) if tables else None


def own_figures(document: Document) -> dict[str, tuple[float | None, float | None]]:
    """The run's own figures in the columns of Table 2, measured and modelled; means over workers, epochs, minibatches.

    Times are those of handlers, without init; of costs the duration's line alone, as the table has it. All functions of
    a worker count, where an architecture has several."""
    workers, batches = document["workers"], document["batches"]
    epochs = document.get("epochs_trained") or document["epochs"]
    lasted = sum(sum(one["phases"].values()) - one["phases"]["init"] for one in document["per_worker"])
    seconds: list[float | None] = [lasted, None]
    costs: list[float | None] = [_duration(document["cost"]), None]
    modelled = document.get("modelled") or {}
    if modelled.get("status") == "modelled":
        seconds[1] = sum(one["seconds"] for one in modelled["per_worker"])
        costs[1] = _duration(modelled["cost"])

    def each(values: list[float | None], number: int) -> tuple[float | None, float | None]:
        first, second = (None if value is None else value / number for value in values)
        return first, second

    return {
        "function_seconds": each(seconds, workers * epochs * batches),
        "epoch_seconds": each(seconds, workers * epochs),
        "memory_mb": (document["peak_memory_mb"], None),
        "function_cost": each(costs, workers * epochs * batches),
        "worker_cost": each(costs, workers * epochs),
        "total_cost": each(costs, epochs),
    }


def _duration(cost: Document) -> float:
    """USD of what computes: the duration of functions, or else instances."""
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


def _rows() -> Iterator[tuple[Paper, PaperTable, Row]]:
    for name in paper_names():
        paper = load_paper(name)
        for table in paper.tables.values():
            for row in table.rows:
                yield paper, table, row


def _plain(name: object) -> str:
    """A name as it is written in all papers alike: ResNet-18 is resnet18."""
    return re.sub(r"[^a-z0-9]", "", str(name or "").lower())
