"""Runs side by side on a terminal: who is fastest, cheapest and most accurate, and a line of figures for each."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from slslab.report import formats
from slslab.report.summaries import (
    MISSING,
    Document,
    figure_range,
    instances_note,
    range_note,
    replayed,
    unanchored_note,
)
from slslab.report.terminal.tables import plain_table
from slslab_lab.pages.verdicts import basis_of, verdicts

HEADINGS = ("run", "AWS s", "bill USD", "waiting", "cold", "here s", "accuracy")


def comparison(documents: Sequence[Document], page: Path | None) -> RenderableType:
    """Return what `compare` prints: the answers, a table that fits 80 columns, and where the details are."""
    names = short_names(documents)
    answers = Text("\n".join(f"{sentence}." for sentence in verdicts(documents, names)), "bold")
    basis = " ".join(filter(None, (f"{basis_of(documents)}.", range_note(*map(replayed, documents)))))
    table = plain_table(HEADINGS, (_row(name, document) for name, document in zip(names, documents, strict=True)))
    return Group(answers, Text(basis, "dim"), table, *_notes(documents, names), Text(_next(documents, page), "dim"))


def short_names(documents: Sequence[Document]) -> list[str]:
    """Return the runs' architectures, or where two are of one, by what their ids begin with: date and time."""
    architectures = [str(document.get("architecture", document["run"])) for document in documents]
    often = Counter(architectures)
    return [
        name if often[name] == 1 else "-".join(str(document["run"]).split("-")[:2])
        for name, document in zip(architectures, documents, strict=True)
    ]


def _row(name: str, document: Document) -> tuple[str, ...]:
    found = replayed(document)
    used = document if found is None else found
    modelled = (
        MISSING if found is None else figure_range(found, "seconds") or formats.significant(found["seconds"], 3),
        figure_range(used, "cost") or formats.significant(float(used["cost"]["total"]), 3),
        MISSING if found is None else f"{found['waiting_share']:.0%}",
        f"{used['cold_starts']:,}",
    )
    accuracy = f"{document['accuracy'][-1]:.1%}" if document.get("accuracy") else MISSING
    return (name, *modelled, formats.significant(document["seconds"]["measured"], 3), accuracy)


def _notes(documents: Sequence[Document], names: Sequence[str]) -> list[Text]:
    """Return what a reader must know before believing the figures, each once."""
    notes = []
    named = list(zip(names, documents, strict=True))
    if missing := [name for name, document in named if "lambda" in document and replayed(document) is None]:
        notes.append(f"Not modelled: {', '.join(missing)}; the bill is this host's seconds, priced.")
    if short := [name for name, document in named if document["host"]["oversubscribed"]]:
        whose = "all runs" if len(short) == len(names) > 1 else ", ".join(short)
        notes.append(f"This host was short of processors in {whose}; `slslab show RUN` says how much.")
    if anchors := unanchored_note(documents, names):
        notes.append(anchors)
    for name, document in named:
        notes += [f"{name}: {note}" for note in [instances_note(document)] if note]
        notes += [f"{name}: {note}." for note in document["cost"].get("notes", ())]
    return [Text(note, "yellow") for note in notes]


def _next(documents: Sequence[Document], page: Path | None) -> str:
    if not all("architecture" in document for document in documents):
        return "Details: slslab show RUN, slslab bill RUN"
    where = f"The page with all figures: {page}" if page else "All figures, as a page: add --html FILE"
    return f"{where}\nNext: slslab show last · slslab ask waiting last · slslab serve --open"
