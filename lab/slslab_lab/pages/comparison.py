"""The content of a comparison of two or more runs: answers and a line for each run on a terminal, and details relative
to the first on a page."""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, count, groupby
from pathlib import Path
from shutil import which
from string import ascii_uppercase

from slslab.errors import RequestError
from slslab.predict.uncertainty import INSTANCE, Uncertainty, ratio_range, read_uncertainty
from slslab.report import summaries
from slslab.report.formats import MISSING, capitalised, difference, listed, percent, share, significant, span
from slslab.report.page import WORDS, Card, Cell, Chart, Document, Note, Page, Part, Row, Table
from slslab.report.summaries import figure_text, platform_of, replayed
from slslab.run.bill import total_alone
from slslab.run.directory import RunDirectory
from slslab.run.metrics import PHASES, grouped
from slslab.run.run import Run
from slslab_lab.pages import charts, scales
from slslab_lab.pages.run_page import learning_card
from slslab_workers.architecture import chosen_options
from slslab_workers.architecture import title as title_of
from slslab_workers.plan import Plan

Value = Callable[[Document], float | None]


def _on_lambda(value: Callable[[Document], float]) -> Value:
    return lambda document: None if (found := replayed(document)) is None else value(found)


ACCURACY = "test accuracy"
TIME, BILL, BILLED = "time on AWS, s", "bill, USD", "billed time on AWS, s"
# Figures with 80 % ranges, by their names in documents.
MODELLED = {TIME: "seconds", BILL: "cost", BILLED: "billed_seconds"}
PRICED = f"{summaries.HOST_PRICED}, USD"
# Figures of whole runs to compare, by their titles. `slslab_lab.runs.on_lambda` modelled the first three when the
# runs ended.
FIGURES: Mapping[str, Value] = {
    TIME: _on_lambda(lambda found: float(found["seconds"])),
    BILL: _on_lambda(lambda found: float(found["cost"]["total"])),
    BILLED: _on_lambda(lambda found: float(found["billed_seconds"])),
    "first to last, s": lambda d: d["seconds"].get("span"),
    "billed time, s": lambda d: d["billed_seconds"],
    "GB-seconds": lambda d: float(d["gb_seconds"]),
    "peak memory, MB": lambda d: d["peak_memory_mb"],
    "bytes sent, MB": lambda d: d["bytes"]["in"] / 1e6,
    "bytes received, MB": lambda d: d["bytes"]["out"] / 1e6,
    "invocations": lambda d: d["invocations"],
    "cold starts": lambda d: d["cold_starts"],
    "updates a worker": lambda d: d.get("updates"),
    "training loss": lambda d: d["loss"][-1] if d["loss"] else None,
    ACCURACY: lambda d: d["accuracy"][-1] if d["accuracy"] else None,
    PRICED: lambda d: float(d["cost"]["total"]),
}


# What a run does, in a reader's words. Runs that differ in these don't do the same work.
WORK = {
    **{name: name for name in ("model", "dataset", "workers")},
    **{"batches": "minibatches an epoch", "batch_size": "minibatch size", "epochs": "epochs"},
}
HEADINGS = ("run", "AWS, s", "bill, USD", "waiting", "here, s", "accuracy")


def read_documents(directories: Sequence[RunDirectory]) -> list[Document]:
    """Return the documents of runs to compare; RequestError for a record of `slslab up`."""
    if services := [directory for directory in directories if directory.service() is not None]:
        raise RequestError(f"{services[0].id} was recorded by `slslab up`.", "compare runs: slslab runs")
    return [Run.read(directory).summary() for directory in directories]


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
    if differing := [f"{words}: {listed(of)}" for words, of in values.items() if len(of) > 1]:
        yield f"Their plans differ in {'; '.join(differing)}."


def _basis(documents: Sequence[Document]) -> str:
    return f"{basis_of(documents)}. {summaries.range_note(*map(replayed, documents))}".rstrip()


def _basis_in_short(documents: Sequence[Document]) -> str:
    ranged = any("ranges" in (replayed(document) or {}) for document in documents)
    return f"{basis_of(documents)}{', with 80 % ranges for known errors (docs/replay.md)' * ranged}."


def there(documents: Sequence[Document], text: str) -> str:
    """Return a text about AWS, in other words if a run is modelled on a platform with GPUs."""
    return text.replace("AWS", "its platform") if any(map(platform_of, documents)) else text


def short_names(documents: Sequence[Document]) -> list[str]:
    """Return the names of the runs' architectures; for several runs of one, the dates and times in their ids."""
    titles = [title_of(document["architecture"]) for document in documents]
    often = Counter(titles)
    return [
        name if often[name] == 1 else "-".join(str(document["run"]).split("-")[:2])
        for name, document in zip(titles, documents, strict=True)
    ]


def _row(name: str, document: Document) -> Row:
    found = replayed(document)
    used = document if found is None else found
    modelled = (
        MISSING if found is None else figure_text(found, "seconds", 3),
        figure_text(used, "cost", 3),
        MISSING if found is None else percent(found["waiting_share"]),
    )
    accuracy = percent(document["accuracy"][-1], ".1") if document.get("accuracy") else MISSING
    return (name, *modelled, significant(document["seconds"]["measured"], 3), accuracy)


def _notes(documents: Sequence[Document], names: Sequence[str]) -> Iterator[Note]:
    named, spoken = list(zip(names, documents, strict=True)), [with_article(name) for name in names]
    for name, document in named:
        if document["status"] in ("failed", "interrupted"):
            done = "has failed" if document["status"] == "failed" else "was interrupted"
            yield Note(capitalised(f"{with_article(name)} {done}."), "bad")
    reasons = (
        (document["lambda"]["reason"], name)
        for name, document in named
        if "lambda" in document and replayed(document) is None
    )
    for reason, of in grouped(reasons).items():
        does = "is not" if len(of) == 1 else "are not"
        yield Note(f"{listed(of)} {does} modelled; the bill is this host's seconds, priced. {reason}")
    if short := [name for name, document in zip(spoken, documents, strict=True) if document["host"]["oversubscribed"]]:
        when = "all runs" if len(short) == len(names) > 1 else listed(short)
        yield Note(f"This machine was overloaded during {when}. `slslab show RUN` says how much.")
    slow = [name for name, document in zip(spoken, documents, strict=True) if summaries.has_stragglers(document)]
    yield from (Note(capitalised(f"{name} ran and is modelled {summaries.WITH_STRAGGLERS}.")) for name in slow)
    if anchors := summaries.unanchored_note(documents, spoken):
        yield Note(anchors)
    for name, document in named:
        if (note := summaries.instances_note(document)) and INSTANCE not in dict(
            summaries.half_widths(replayed(document) or {})
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
        learning_card(documents, keys),
        _bill(documents, names),
        _phases(documents, names),
        _conditions(documents, names),
    )
    return Page(
        title=listed(list(dict.fromkeys(title_of(document["architecture"]) for document in documents))),
        subtitle="comparison of runs",
        answers=tuple(_answers(documents, verdicts(documents, names))),
        answers_note=_basis(documents),
        cards=tuple(card for card in cards if card is not None),
        chips=tuple(f"{name}: {document['run']}" for name, document in zip(names, documents, strict=True)),
        warnings=tuple(_notes(documents, names)),
    )


def _text(title: str, document: Document) -> str:
    value = FIGURES[title](document)
    if title in MODELLED and value is not None:
        return figure_text(replayed(document) or {}, MODELLED[title])
    return share(value) if title == ACCURACY else significant(value)


def _change(title: str, first: Document, second: Document) -> str:
    """Return by what share a figure of the second run differs: as the 80 % range of their ratio, if it has one."""
    first_value, second_value = (FIGURES[title](document) for document in (first, second))
    relative = second_value / first_value - 1 if first_value and second_value is not None else None
    errors = [_uncertainty(replayed(document) or {}, MODELLED.get(title, "")) for document in (second, first)]
    if relative is None or errors[0] is None or errors[1] is None:
        return difference(relative)
    low, high = ratio_range((1 + relative, 1), (errors[0], errors[1]))
    if low <= 1 <= high:
        return "can't be told apart"
    return f"{span(low, high)} times" if high >= 2 else f"{100 * (low - 1):+.0f} to {100 * (high - 1):+.0f} %"


def lettered(documents: Sequence[Document]) -> list[str]:
    """Return the names of runs on a page: a letter, and what the run trained with."""
    letters = chain(ascii_uppercase, map(str, count(len(ascii_uppercase) + 1)))
    titles = (title_of(document["architecture"]) for document in documents)
    return [f"{letter} {title}" for letter, title in zip(letters, titles, strict=False)]


def pictured(documents: Sequence[Document]) -> Chart | None:
    """Return cost against time on AWS, with accuracy, for the modelled runs; None without any."""
    keys = scales.series_keys(lettered(documents))
    rows = []
    for key, document in zip(keys, documents, strict=True):
        if (found := replayed(document)) is not None:
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
    first, *others = documents
    rows: list[Row] = [
        (
            *(there(documents, title), _text(title, first)),
            *(Cell(_text(title, other), _change(title, first, other)) for other in others),
        )
        for title, value in FIGURES.items()
        if any(value(document) is not None for document in documents)
    ]
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
    found, title = [replayed(document) for document in documents], "Bill, modelled"
    if not any(found):
        found, title = list(documents), summaries.HOST_PRICED.capitalize()
    costs = [None if one is None else one["cost"] for one in found]
    lines = [
        None if cost is None else grouped((line["item"], Decimal(line["amount"])) for line in cost["lines"])
        for cost in costs
    ]
    rows = [
        (item, *(MISSING if own is None else f"{sum(own.get(item, ())):.8f}" for own in lines))
        for item in dict.fromkeys(chain(*filter(None, lines)))
    ]
    total = ("total", *(MISSING if cost is None else f"{Decimal(cost['total']):.8f}" for cost in costs))
    return Card("card-bill", title, (), (Table(("line, USD", *names), rows, (total,)),), wide=True)


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


@dataclass(frozen=True)
class _Entry:
    """A run's figure, its uncertainty if it is modelled with one, and the figure in words."""

    name: str
    value: float
    uncertainty: Uncertainty | None
    text: str

    def times(self, other: "_Entry") -> tuple[float, float]:
        """Return the 80 % range of this figure ÷ another one; both ends are equal if an uncertainty is unknown."""
        if self.uncertainty is None or other.uncertainty is None:
            return self.value / other.value, self.value / other.value
        return ratio_range((self.value, other.value), (self.uncertainty, other.uncertainty))

    def like(self, other: "_Entry") -> bool:
        low, high = self.times(other)
        return low <= 1 <= high if low < high else self.text == other.text


def with_article(name: str) -> str:
    """Return a run's name for a sentence, with an article before an abbreviation and a noun: the FaaS run."""
    return f"the {name}" if re.fullmatch(r"[A-Z]{2,} [a-z]+", name) else name


def basis_of(documents: Sequence[Document]) -> str:
    """Return the basis of these runs' verdicts."""
    found = [(platform_of(document), one) for document in documents if (one := replayed(document)) is not None]
    if not found:
        return "As this host measured and priced it, since no run is modelled on AWS"
    unknown = any("uncertainty" not in one for _, one in found)
    platforms = listed(list(dict.fromkeys(platform or f"AWS ({summaries.region(one)})" for platform, one in found)))
    return f"Modelled on {platforms}{', without ranges: close runs may not differ' * unknown}"


@dataclass(frozen=True)
class _Compared:
    """What runs are compared by: times and bills where they are modelled, or on this host if none is, and accuracies.

    `where` names that platform; it is empty for several."""

    where: str
    runs: Mapping[str, Document]
    seconds: Sequence[_Entry]
    costs: Sequence[_Entry]
    accuracies: Sequence[tuple[str, float]]


def _compare(documents: Sequence[Document], names: Sequence[str]) -> _Compared:
    found = [replayed(document) for document in documents]
    if not any(found):
        found = [{**document, "seconds": document["seconds"]["measured"]} for document in documents]
    names = [with_article(name) for name in names]
    pairs = [(name, one) for name, one in zip(names, found, strict=True) if one is not None]
    seconds, costs = [], []
    for name, one in pairs:
        time, bill = summaries.modelled_figures(one)
        seconds.append(_Entry(name, one["seconds"], _uncertainty(one, "seconds"), time))
        costs.append(_Entry(name, float(one["cost"]["total"]), _uncertainty(one, "cost"), bill))
    learnt = [
        (name, document["accuracy"][-1])
        for name, document in zip(names, documents, strict=True)
        if document.get("accuracy")
    ]
    modelled_on = [platform_of(document) or "AWS" for document in documents if replayed(document)]
    platforms = list(dict.fromkeys(modelled_on)) or ["this host"]
    where = f" on {platforms[0]}" if len(platforms) == 1 else ""
    return _Compared(where, dict(pairs), seconds, costs, learnt)


def verdicts(documents: Sequence[Document], names: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each question that the runs' figures answer: which is fastest, cheapest, most accurate.

    Time and cost are on AWS or on another platform, or on this host if no run is modelled.
    """
    compared = _compare(documents, names)
    fastest, cheapest = f"fastest{compared.where}", f"cheapest{compared.where}"
    yield capitalised(_least(compared.seconds, fastest, "{} times faster than {}", "takes {} times as long"))
    yield capitalised(_least(compared.costs, cheapest, "{} times cheaper than {}", "costs {} times as much"))
    yield from _cheapest_alone(compared)
    if ranks := _ranks(compared.accuracies):
        best, accuracy = ranks[0]
        yield capitalised(f"{best} {'are' if ' and ' in best else 'is'} most accurate: {percent(accuracy, '.1')}")


def verdicts_in_short(documents: Sequence[Document], names: Sequence[str]) -> Iterator[str]:
    """Yield the same answers without figures: only names, several where the best can't be told apart."""
    compared = _compare(documents, names)
    best = {
        f"fastest{compared.where}": _leading(compared.seconds),
        "cheapest": _leading(compared.costs),
        "most accurate": [name for name, _ in _ranks(compared.accuracies)[:1]],
    }
    yield ". ".join(f"{capitalised(what)}: {listed(of, 'or')}" for what, of in best.items() if of)
    yield from _cheapest_alone(compared)


def _by_value(entry: _Entry) -> tuple[float, str]:
    return entry.value, entry.name


def _leading(entries: Sequence[_Entry]) -> list[str]:
    best, *others = sorted(entries, key=_by_value)
    return [best.name, *(entry.name for entry in others if not best.value or entry.like(best))]


def _cheapest_alone(compared: _Compared) -> Iterator[str]:
    """Yield which run is cheapest with hosts of its own, if that is surely another one."""
    cheapest = min(compared.costs, key=_by_value).name
    alone = [_entry_alone(name, one) for name, one in compared.runs.items()]
    least = min(alone, key=lambda entry: entry.value)
    own = next(entry for entry in alone if entry.name == cheapest)
    if least.value < own.value and not least.like(own):
        yield (
            "With hosts of its own, a run pays for each hour of its cache that begins: then "
            f"{least.name} is cheapest with {least.text}, and {cheapest} costs {own.text}"
        )


def _entry_alone(name: str, one: Document) -> _Entry:
    value, known = float(total_alone(one["cost"])), _uncertainty(one, "cost")
    error = known and known.of_sum(float(one["cost"]["total"]) / value if value else 1.0)
    return _Entry(name, value, error, f"${significant(value, 3)}")


def _uncertainty(one: Document, figure: str) -> Uncertainty | None:
    known = one.get("uncertainty", {}).get(figure)
    return read_uncertainty(known) if known else None


def _ranks(values: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return names and shares from largest to smallest; shares that look equal have one rank."""
    ascending = sorted((value, name) for name, value in values)
    groups = [list(group) for _, group in groupby(ascending, lambda each: percent(each[0], ".1"))]
    return [(listed([name for _, name in group]), group[0][0]) for group in reversed(groups)]


def _least(entries: Sequence[_Entry], superlative: str, better: str, worse: str) -> str:
    """Return which run has the lowest figure (or which can't be told apart), and how far the others are behind."""
    best, *others = sorted(entries, key=_by_value)
    leading = _leading(entries)
    alike = [entry for entry in others if entry.name in leading]
    behind = [entry for entry in others if entry.name not in leading]
    nearest_and_furthest = behind if len(behind) < 3 else (behind[0], behind[-1])
    ranges = [(entry.name, *entry.times(best)) for entry in nearest_and_furthest]
    compared = [
        (name, span(low, high) if low < high else significant(low, 2 if low >= 1.1 else 3))
        for name, low, high in ranges
    ]
    if not alike:
        ahead = " and ".join(better.format(times, name) for name, times in compared)
        return ", ".join(filter(None, (f"{best.name} is {superlative}: {best.text}", ahead)))
    texts = listed([f"{entry.name} ({entry.text})" for entry in alike])
    answer = f"{best.name} ({best.text}) can't be told apart from {texts} as the {superlative}"
    nearest = (f"; {name} {worse.format(times)} as {best.name}" for name, times in compared[:1])
    furthest = (f", and {name} {times} times" for name, times in compared[1:])
    return "".join((answer, *nearest, *furthest))
