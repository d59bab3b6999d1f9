"""What papers published of a run's architecture and model, beside the run."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from slslab.papers import Paper, Row, load_paper, paper_names
from slslab.papers import Table as PaperTable
from slslab.reports.html.parts import Card, Cell, Document, Table


@dataclass(frozen=True)
class Match:
    """A published row of the same architecture and model."""

    paper: Paper
    table: PaperTable
    row: Row


def find_published(document: Document) -> list[Match]:
    """Rows of any paper's tables with this run's architecture and model among their inputs."""
    wanted = {name: _plain(document.get(name)) for name in ("architecture", "model")}
    return [
        Match(paper, table, row)
        for paper, table, row in _rows()
        if all(_plain(table.inputs_of(row).get(name)) == value for name, value in wanted.items())
    ]


def published_card(document: Document) -> Card | None:
    """Published rows beside the run's own figures, and in which conditions they differ."""
    return None


def _rows() -> Iterator[tuple[Paper, PaperTable, Row]]:
    for name in paper_names():
        paper = load_paper(name)
        for table in paper.tables.values():
            for row in table.rows:
                yield paper, table, row


def _plain(name: object) -> str:
    """A name as it is written in all papers alike: ResNet-18 is resnet18."""
    return re.sub(r"[^a-z0-9]", "", str(name or "").lower())
