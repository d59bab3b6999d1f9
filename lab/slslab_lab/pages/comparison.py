"""The content of a comparison of two or more runs: answers and a line for each run on a terminal, and details relative
to the first on a page."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain, count
from pathlib import Path
from shutil import which
from string import ascii_uppercase

from slslab.errors import RequestError
from slslab.predict.uncertainty import INSTANCE, ratio_range, read_uncertainty
from slslab.report import formats, summaries
from slslab.report.formats import percent
from slslab.report.page import WORDS, Card, Cell, Chart, Document, Key, Note, Page, Part, Row, Table
from slslab.run.directory import RunDirectory
from slslab.run.metrics import PHASES, grouped
from slslab.run.run import Run
from slslab_lab.pages import charts, scales
from slslab_lab.pages.verdicts import basis_of, capitalised, verdicts, verdicts_in_short, with_article
from slslab_workers.architecture import chosen_options
from slslab_workers.architecture import title as title_of
from slslab_workers.plan import Plan

Value = Callable[[Document], float | None]


def _on_lambda(value: Callable[[Document], float]) -> Value:
    return lambda document: None if (found := summaries.replayed(document)) is None else value(found)


ACCURACY = "test accuracy"
TIME, BILL, BILLED = "time on AWS, s", "bill, USD", "billed time on AWS, s"
# Figures with 80 % ranges, by their names in documents.
MODELLED = {TIME: "seconds", BILL: "cost", BILLED: "billed_seconds"}
PRICED = f"{summaries.HOST_PRICED}, USD"
# Figures of whole runs to compare, modelled ones first: a title and the value.
FIGURES: tuple[tuple[str, Value], ...] = (
    (TIME, _on_lambda(lambda found: float(found["seconds"]))),
    (BILL, _on_lambda(lambda found: float(found["cost"]["total"]))),
    (BILLED, _on_lambda(lambda found: float(found["billed_seconds"]))),
    ("first to last, s", lambda d: d["seconds"].get("span")),
    ("billed time, s", lambda d: d["billed_seconds"]),
    ("GB-seconds", lambda d: float(d["gb_seconds"])),
    ("peak memory, MB", lambda d: d["peak_memory_mb"]),
    ("bytes sent, MB", lambda d: d["bytes"]["in"] / 1e6),
    ("bytes received, MB", lambda d: d["bytes"]["out"] / 1e6),
    ("invocations", lambda d: d["invocations"]),
    ("cold starts", lambda d: d["cold_starts"]),
    ("updates a worker", lambda d: d.get("updates")),
    ("training loss", lambda d: d["loss"][-1] if d["loss"] else None),
    (ACCURACY, lambda d: d["accuracy"][-1] if d["accuracy"] else None),
    (PRICED, lambda d: float(d["cost"]["total"])),
)


# What a run does, in a reader's words. Runs that differ in these don't do the same work.
WORK = {
    **{name: name for name in ("model", "dataset", "workers")},
    **{"batches": "minibatches an epoch", "batch_size": "minibatch size", "epochs": "epochs"},
}
HEADINGS = ("run", "AWS, s", "bill, USD", "waiting", "here, s", "accuracy")


def read_documents(directories: Iterable[RunDirectory]) -> list[Document]:
    """Return the documents of runs to compare; RequestError for a record of `slslab up`."""
    documents: list[Document] = []
    for directory in directories:
        if directory.service() is not None:
            raise RequestError(f"{directory.id} was recorded by `slslab up`.", "compare runs: slslab runs")
        documents.append(Run.read(directory).summary())
    return documents


def comparison(documents: Sequence[Document], page: Path | None) -> Iterator[Part]:
    """Yield the output of `compare`: the answers, a table that fits 80 columns, and where to find details."""
    names = short_names(documents)
    judge, basis = (verdicts, _basis) if len(documents) == 2 else (verdicts_in_short, _basis_in_short)
    yield Note("\n".join(_answers(documents, judge(documents, names))), "answer")
    yield Note(basis(documents), "muted")
    headings = [there(documents, heading) for heading in HEADINGS]
    yield Table(headings, [_row(name, document) for name, document in zip(names, documents, strict=True)])
    yield from _notes(documents, names)
    yield Note(_next(page), "muted")


def _answers(documents: Sequence[Document], sentences: Iterable[str]) -> Iterator[str]:
    """Yield the verdicts, and in which sizes and data the runs differ."""
    yield from (f"{sentence}." for sentence in sentences)
    values = {
        words: list(dict.fromkeys(str(one[name]) for one in documents if name in one)) for name, words in WORK.items()
    }
    if differing := [f"{words}: {formats.listed(of)}" for words, of in values.items() if len(of) > 1]:
        yield f"Their plans differ in {'; '.join(differing)}."


def _basis(documents: Sequence[Document]) -> str:
    return f"{basis_of(documents)}. {summaries.range_note(*map(summaries.replayed, documents))}".rstrip()


def _basis_in_short(documents: Sequence[Document]) -> str:
    ranged = any("ranges" in (summaries.replayed(document) or {}) for document in documents)
    return f"{basis_of(documents)}{', with 80 % ranges for known errors (docs/replay.md)' * ranged}."


def there(documents: Sequence[Document], text: str) -> str:
    """Return a text about AWS, in other words if a run is modelled on a platform with GPUs."""
    return text.replace("AWS", "its platform") if any(map(summaries.platform_of, documents)) else text


def short_names(documents: Sequence[Document]) -> list[str]:
    """Return the names of the runs' architectures; for several runs of one, the dates and times in their ids."""
    titles = list(map(_name, documents))
    often = Counter(titles)
    return [
        name if often[name] == 1 else "-".join(str(document["run"]).split("-")[:2])
        for name, document in zip(titles, documents, strict=True)
    ]


def _row(name: str, document: Document) -> Row:
    found = summaries.replayed(document)
    used = document if found is None else found
    modelled = (
        formats.MISSING if found is None else summaries.figure_text(found, "seconds", 3),
        summaries.figure_text(used, "cost", 3),
        formats.MISSING if found is None else percent(found["waiting_share"]),
    )
    accuracy = percent(document["accuracy"][-1], ".1") if document.get("accuracy") else formats.MISSING
    return (name, *modelled, formats.significant(document["seconds"]["measured"], 3), accuracy)


def _notes(documents: Sequence[Document], names: Sequence[str]) -> Iterator[Note]:
    named, spoken = list(zip(names, documents, strict=True)), [with_article(name) for name in names]
    for name, document in named:
        if document["status"] in ("failed", "interrupted"):
            done = "has failed" if document["status"] == "failed" else "was interrupted"
            yield Note(capitalised(f"{with_article(name)} {done}."), "bad")
    reasons = (
        (document["lambda"]["reason"], name)
        for name, document in named
        if "lambda" in document and summaries.replayed(document) is None
    )
    for reason, of in grouped(reasons).items():
        does = "is not" if len(of) == 1 else "are not"
        yield Note(f"{formats.listed(of)} {does} modelled; the bill is this host's seconds, priced. {reason}")
    if short := [name for name, document in zip(spoken, documents, strict=True) if document["host"]["oversubscribed"]]:
        when = "all runs" if len(short) == len(names) > 1 else formats.listed(short)
        yield Note(f"This machine was overloaded during {when}. `slslab show RUN` says how much.")
    slow = [name for name, document in zip(spoken, documents, strict=True) if summaries.has_stragglers(document)]
    yield from (Note(capitalised(f"{name} ran and is modelled {summaries.WITH_STRAGGLERS}.")) for name in slow)
    if anchors := summaries.unanchored_note(documents, spoken):
        yield Note(anchors)
    for name, document in named:
        if (note := summaries.instances_note(document)) and INSTANCE not in dict(
            summaries.half_widths(summaries.replayed(document) or {})
        ):
            yield Note(f"{name}: {note[0].lower()}{note[1:]}")
        for said in document["cost"].get("notes", ()):
            yield Note(capitalised(f"{with_article(name)} {said}."))


def _next(page: Path | None) -> str:
    figures = f"All figures: {page}" if page else "All figures, as a page: add --html FILE"
    program = "slslab" if which("slslab") else f"{os.path.relpath(sys.prefix)}/bin/slslab"
    return f"{figures} · Next: {program} show last"


def describe_comparison(documents: Sequence[Document]) -> Page:
    """Return the page of runs side by side, in their order."""
    names = lettered(documents)
    keys = scales.series_keys(names)
    picture = pictured(documents)
    cards = (
        None
        if picture is None
        else Card("card-cost-time", there(documents, "Cost, time and accuracy on AWS"), (picture,), wide=True),
        _figures(documents, names),
        *_learning(documents, keys),
        _bill(documents, names),
        _phases(documents, names),
        _conditions(documents, names),
    )
    return Page(
        title=formats.listed(list(dict.fromkeys(_name(document) for document in documents))),
        subtitle="comparison of runs",
        answers=tuple(_answers(documents, verdicts(documents, names))),
        answers_note=_basis(documents),
        cards=tuple(card for card in cards if card is not None),
        chips=tuple(f"{name}: {document['run']}" for name, document in zip(names, documents, strict=True)),
        warnings=tuple(_notes(documents, names)),
    )


def _text(title: str, document: Document) -> str:
    value = dict(FIGURES)[title](document)
    if title in MODELLED and value is not None:
        return summaries.figure_text(summaries.replayed(document) or {}, MODELLED[title])
    return formats.share(value) if title == ACCURACY else formats.significant(value)


def _change(title: str, first: Document, second: Document) -> str:
    """Return by what share a figure of the second run differs: as the 80 % range of their ratio, if it has one."""
    first_value, second_value = (dict(FIGURES)[title](document) for document in (first, second))
    relative = second_value / first_value - 1 if first_value and second_value is not None else None
    models = [summaries.replayed(document) or {} for document in (first, second)]
    if relative is None or title not in MODELLED or not all("uncertainty" in model for model in models):
        return formats.difference(relative)
    errors = [read_uncertainty(model["uncertainty"][MODELLED[title]]) for model in models]
    low, high = ratio_range((1 + relative, 1), (errors[1], errors[0]))
    if low <= 1 <= high:
        return "can't be told apart"
    return f"{formats.span(low, high)} times" if high >= 2 else f"{100 * (low - 1):+.0f} to {100 * (high - 1):+.0f} %"


def lettered(documents: Sequence[Document]) -> list[str]:
    """Return the names of runs on a page: a letter, and what the run trained with."""
    letters = chain(ascii_uppercase, map(str, count(len(ascii_uppercase) + 1)))
    return [f"{letter} {_name(document)}" for letter, document in zip(letters, documents, strict=False)]


def pictured(documents: Sequence[Document]) -> Chart | None:
    """Return cost against time on AWS, with accuracy, for the modelled runs; None without any."""
    keys = scales.series_keys(lettered(documents))
    rows = []
    for key, document in zip(keys, documents, strict=True):
        if (found := summaries.replayed(document)) is not None:
            learnt = f", accuracy {percent(document['accuracy'][-1], '.1')}" if document["accuracy"] else ""
            text = f"{key.label.partition(' ')[2]}{learnt}"
            cost = float(found["cost"]["total"])
            rows.append(charts.Point(key.label, float(found["seconds"]), cost, text, found.get("ranges")))
    if not rows:
        return None
    return charts.scatter(
        "cost-time",
        there(documents, "Points: cost and time on AWS of each run"),
        rows,
        keys,
        (there(documents, TIME), BILL),
        "A run further left is faster, one further down cheaper; the text next to each is its accuracy on the test "
        "images. Bars: 80 % ranges.",
    )


def _figures(documents: Sequence[Document], names: Sequence[str]) -> Card:
    rows: list[tuple[str | Cell, ...]] = []
    for title, value in FIGURES:
        if any(value(document) is not None for document in documents):
            first, *others = documents
            cells = (Cell(_text(title, other), _change(title, first, other)) for other in others)
            rows.append((there(documents, title), _text(title, first), *cells))
    return Card(
        "card-figures",
        "Figures of the runs",
        (),
        (Table(("", *names), rows),),
        notes=(
            f"Below each number is its difference from {names[0]}. Where both are ranges, it is the 80 % range of "
            "their ratio, in which shared errors cancel.",
        ),
        wide=True,
    )


def _phases(documents: Sequence[Document], names: Sequence[str]) -> Card:
    rows = [
        (name, phase, max(0.0, document["phases"][phase]) / document["workers"])
        for name, document in zip(names, documents, strict=True)
        for phase in PHASES
    ]
    chart = charts.stacked_bars(
        "phases",
        "Bars: seconds of each phase per run, the mean of its workers",
        rows,
        scales.PHASE_KEYS,
        "Lambda time a worker, s",
    )
    return Card("card-phases", "Phases, the mean of workers", (chart,))


def _bill(documents: Sequence[Document], names: Sequence[str]) -> Card:
    title, costs = summaries.bills(documents)
    of_run = {name: cost for name, cost in zip(names, costs, strict=True) if cost is not None}
    amounts: dict[str, dict[str, Decimal]] = {}
    for name, cost in of_run.items():
        for line in cost["lines"]:
            by_run = amounts.setdefault(line["item"], dict.fromkeys(of_run, Decimal(0)))
            by_run[name] += Decimal(line["amount"])
    totals = {name: Decimal(cost["total"]) for name, cost in of_run.items()}

    def row(title: str, by_run: Mapping[str, Decimal]) -> tuple[str, ...]:
        return (title, *(f"{by_run[name]:.8f}" if name in by_run else formats.MISSING for name in names))

    table = Table(
        ("line, USD", *names), [row(item, by_run) for item, by_run in amounts.items()], (row("total", totals),)
    )
    return Card("card-bill", title, (), (table,), wide=True)


def _learning(documents: Sequence[Document], keys: Sequence[Key]) -> Iterator[Card]:
    for name, title, shares in (("loss", "training loss, nats", False), ("accuracy", "test accuracy, %", True)):
        rows = [
            (key.label, number, value)
            for key, document in zip(keys, documents, strict=True)
            for number, value in enumerate(document[name], 1)
        ]
        if rows:
            chart = charts.lines(
                name, f"Lines: {title} per epoch, per run", rows, keys, ("epoch", title), percent=shares
            )
            yield Card(f"card-{name}", title.partition(",")[0].capitalize(), (chart,))


def _conditions(documents: Sequence[Document], names: Sequence[str]) -> Card | None:
    plans = [
        {
            "prices": Plan.prices,
            **document["plan"],
            **chosen_options(document["architecture"], document["plan"].get("options", {})),
            **document["stack"],
        }
        for document in documents
    ]
    keys = dict.fromkeys(key for plan in plans for key in plan if key not in ("schema", "run", "options"))
    differing = [key for key in keys if len({str(plan.get(key)) for plan in plans}) > 1]
    rows = [(key.replace("_", " "), *(str(plan.get(key, "–")) for plan in plans)) for key in differing]
    table = Table(("", *names), rows, words=WORDS)
    return Card("card-plans", "What else differs", (), (table,), wide=True) if rows else None


def _name(document: Document) -> str:
    return title_of(str(document["architecture"]))
