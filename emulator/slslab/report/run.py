"""Terminal output about runs and records of `slslab up`, from their documents."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from slslab.errors import counted
from slslab.report import cards, summaries
from slslab.report.bills import run_bill
from slslab.report.figures import failure, figures_table, warnings
from slslab.report.formats import MISSING, percent
from slslab.report.page import WORDS, Card, Document, Note, Part, Table

# Long runs show only this many epochs.
EPOCHS = 10


def brief(document: Document) -> Iterator[Part]:
    """Yield what `run` and `show` print: for a failed run the reason and what to do; records of `up` in full."""
    if "architecture" not in document:
        yield from summary(document)
        return
    more = f"More: slslab show {document['run']} --full"
    if document["error"]:
        yield _identity(document)
        yield failure(document["error"])
        yield Note(f"{more} · slslab logs {document['run']}", "muted")
        return
    yield from _headline(document, brief=True)
    yield _identity(document)
    yield figures_table(document)
    yield from warnings(document)
    yield Note(more, "muted")


def summary(document: Document) -> Iterator[Part]:
    """Yield what `show --full` prints: the run's time and cost on Lambda, then the measurements."""
    found = summaries.replayed(document)
    yield from _headline(document)
    yield _identity(document)
    if error := document["error"]:
        yield failure(error)
    yield from warnings(document)
    yield from _cards(document, cards.faults_card)
    if found:
        yield run_bill(document)
    yield from _cards(document, cards.modelled_card)
    if alone := document.get("alone"):
        yield Note(summaries.alone_note(alone), "" if alone.get("quiet") else "warn")
    yield figures_table(document)
    yield from _cards(
        document, cards.functions_card, cards.phases_card, cards.invocations_card, cards.traffic_card, _learning
    )
    yield from _details(document.get("details", {}))
    if not found:
        yield run_bill(document)
    yield from _cards(document, cards.host_card)


def interrupted(document: Document) -> Iterator[Part]:
    """Yield what `run` prints after an interruption: the error, and how to see what the run did."""
    yield _identity(document)
    yield failure(document["error"])
    yield f"`slslab show {document['run']}` prints what it did until then."


def _cards(document: Document, *makers: Callable[[Document], Card | None]) -> Iterator[Card]:
    return filter(None, (make(document) for make in makers))


def runs(documents: Sequence[Document]) -> Table:
    """Return a table with one line per run, with its seconds and bill on Lambda."""
    named = ("architecture", "model", "dataset", "workers")
    time = "modelled s" if any(map(summaries.platform_of, documents)) else "AWS s"
    rows = []
    for document in documents:
        found = summaries.replayed(document)
        rows.append(
            (
                document["run"],
                document["status"],
                *(str(document.get(name, "")) for name in named),
                f"{summaries.epochs_of(document):,}" if "epochs" in document else "",
                summaries.figure_text(found, "seconds") if found else "",
                summaries.figure_text(found, "cost") if found else "",
                percent(document["accuracy"][-1], ".1") if document.get("accuracy") else "",
            )
        )
    return Table(
        ("run", "status", *named, "epochs", time, "bill USD", "accuracy"),
        rows,
        note=summaries.range_note(*map(summaries.replayed, documents)),
        # The run's id contains the architecture and the model.
        dispensable=("dataset", "model", "architecture", "epochs", "workers", "accuracy", time),
    )


def _learning(document: Document) -> Card | None:
    """Return loss and accuracy of up to ten epochs, spread over the run, including the last."""
    card = cards.learning_card(document)
    if card is None or len(rows := card.tables[0].rows) <= EPOCHS:
        return card
    shown = sorted({round(number * (len(rows) - 1) / (EPOCHS - 1)) for number in range(EPOCHS)})
    return replace(card, tables=(replace(card.tables[0], rows=[rows[number] for number in shown]),))


def _headline(document: Document, *, brief: bool = False) -> Iterator[Note]:
    found = summaries.replayed(document)
    notes = summaries.predicted_notes(document)
    if found is not None:
        wide = summaries.unanchored_note([document], ["this run"]) if brief else ""
        notes += [summaries.range_note(found), wide, summaries.instances_note(document)]
    parts = (
        (summaries.headline(document), "answer" if found or summaries.predicted(document) else "answer warn"),
        (summaries.advice(document), "answer"),
        ("\n".join(filter(None, notes)), "muted"),
    )
    yield from (Note(text, mood) for text, mood in parts if text)


def _identity(document: Document) -> Note:
    if "architecture" not in document:
        line = f"{document['run']}: functions since {document['started_at']} — {document['status']}"
        return Note(line, "answer bad" if document["error"] else "answer")
    launched, platform = document.get("instances"), summaries.platform_of(document)
    machines = f"on {launched[0]['type']}" if launched else f"at {document['memory_mb']:,} MB"
    machines += f" for {platform}" if platform else ""
    what = f"{document['model']} on {document['dataset']}"
    steps = f"{counted(document['batches'], 'batch', 'batches')} of {document['batch_size']}"
    if document["status"] == "done" and document["replicas_equal"] is None:
        # A pattern, which trains nothing.
        what, steps = counted(document["parameters"], "parameter"), counted(document["batches"], "round")
        machines = f"at {summaries.peak_limit_mb(document):,} MB"
    line = (
        f"{document['run']}: {document['architecture']}, {what}, {counted(document['workers'], 'worker')} × {steps} × "
        f"{summaries.epochs_text(document)} {machines} — {document['status']}"
    )
    return Note(line, "answer" if document["status"] == "done" else "answer bad")


def _details(details: Mapping[str, Any]) -> Iterator[Table]:
    """Yield a table for each of an architecture's own lists: of joins, failed peers, decisions to scale in ..."""
    for name, entries in details.items():
        if isinstance(entries, list) and entries and isinstance(entries[0], Mapping):
            columns, title = [column.replace("_", " ") for column in entries[0]], name.replace("_", " ").capitalize()
            rows = [[_detail(column, entry.get(column)) for column in entries[0]] for entry in entries]
            yield Table(columns, rows, caption=title, words=WORDS, dispensable=())


def _detail(name: str, value: object) -> str:
    match name, value:
        case "epoch", int():
            return str(value + 1)
        case "time", float():
            return datetime.fromtimestamp(value, UTC).isoformat(timespec="milliseconds")
        case _, float():
            return f"{value:.4g}"
    return MISSING if value is None else str(value)
