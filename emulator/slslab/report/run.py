"""What a run or a record of `slslab up` shows, from its document: on a terminal, and as a page without charts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from slslab.errors import counted
from slslab.report import cards, formats, summaries
from slslab.report.bill_tables import bill_card
from slslab.report.page import Card, Document, Figure, Note, Page, Part, Table
from slslab_workers.architecture import chosen_options, title

# Names as in papers.
MODELS = {
    "lenet": "LeNet-5", "mobilenet": "MobileNet", "resnet18": "ResNet-18", "resnet34": "ResNet-34",
    "resnet50": "ResNet-50",
}  # fmt: skip
# The cards of a run in their order, by id. Cards without a maker only have charts, which the lab draws.
CARDS: Mapping[str, Callable[[Document], Card | None] | None] = {
    "card-now": cards.present_card,
    "card-faults": cards.faults_card,
    "card-sizes": None,
    "card-timeline": None,
    "card-modelled": cards.modelled_card,
    "card-bill": bill_card,
    "card-phases": cards.phases_card,
    "card-shares": None,
    "card-learning": cards.learning_card,
    "card-memory": None,
    "card-communication": None,
    "card-traffic": cards.traffic_card,
    "card-functions": cards.functions_card,
    "card-invocations": cards.invocations_card,
    "card-details": cards.details_card,
    "card-host": cards.host_card,
    "card-versions": cards.versions_card,
}


def brief(document: Document) -> Iterator[Part]:
    """Yield what `run` and `show` print: the run's time and cost on Lambda next to the measurements.

    For a failed run, that is the reason and what to do. Records of `slslab up` are printed in full.
    """
    if "architecture" not in document:
        yield from full(document)
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


def full(document: Document) -> Iterator[Part]:
    """Yield what `show --full` prints: the run's time and cost on Lambda, then the measurements, as on its page."""
    yield from _headline(document)
    yield _identity(document)
    if error := document["error"]:
        yield failure(error)
    yield from warnings(document)
    if alone := document.get("alone"):
        yield Note(summaries.alone_note(alone), "" if alone.get("quiet") else "warn")
    yield figures_table(document)
    for card in run_cards(document):
        # `slslab bill` also prints the price of this host's seconds.
        yield replace(card, tables=card.tables[:1]) if card.id == "card-bill" else card


def run_cards(document: Document) -> list[Card]:
    """Return the cards of a run that have something to show, in their order on its page, without charts."""
    return [card for make in CARDS.values() if make is not None and (card := make(document)) is not None]


def run_page(document: Document, drawn: Iterable[Card] = (), notes: Iterable[Note] = ()) -> Page:
    """Return the page of a run, without missing parts of the document.

    `drawn` are cards with charts. If the page has a card with the same id, that gets the charts. `notes` are more
    caveats."""
    cards = {card.id: card for card in run_cards(document)}
    for card in drawn:
        cards[card.id] = replace(cards.get(card.id, card), charts=card.charts)
    answers = (document.get("progress"), summaries.headline(document), summaries.advice(document))
    failed = [failure(error)] if (error := document.get("error")) else []
    return Page(
        title=_title(document),
        answers=tuple(filter(None, answers)),
        answers_note=" ".join(_caveats(document)),
        subtitle=f"since {document['started_at']}" if "functions" in document else f"run {document['run']}",
        cards=tuple(cards[id_] for id_ in CARDS if id_ in cards),
        status=str(document["status"]),
        chips=tuple(_chips(document)),
        warnings=(*failed, *warnings(document), *notes),
        figures=tuple(figures(document)),
    )


def _title(document: Document) -> str:
    if "functions" in document:
        return "Functions on slslab up"
    model = str(document.get("model", "?"))
    trained = f"{MODELS.get(model, model)} on {document.get('dataset', '?')}"
    return f"{title(str(document.get('architecture', '?')))}, {trained}"


def _chips(document: Document) -> Iterator[str]:
    plan = {**document.get("plan", {}), **document}
    if "workers" in plan:
        yield counted(plan["workers"], "worker")
    if "batches" in plan:
        yield counted(plan["batches"], "minibatch an epoch", "minibatches an epoch")
    if "epochs" in plan:
        yield summaries.epochs_text(plan)
    if "batch_size" in plan:
        yield f"{plan['batch_size']:,} images a minibatch"
    if launched := document.get("instances"):
        yield f"{launched[0]['type']}, on {document['device']}"
    elif "memory_mb" in plan:
        yield f"{plan['memory_mb']:,} MB"
    if platform := summaries.platform_of(document):
        yield f"{platform}, on {document.get('device', 'not known')}"
    if "seed" in plan:
        yield f"seed {plan['seed']}"
    if plan.get("as_released"):
        yield "as released"
    options = chosen_options(plan.get("architecture", ""), plan.get("options", {}))
    yield from (f"{name}: {value}" for name, value in options.items())


def _headline(document: Document, *, brief: bool = False) -> Iterator[Note]:
    known = summaries.replayed(document) or document.get("predicted")
    wide = summaries.unanchored_note([document], ["this run"]) if brief and summaries.replayed(document) else ""
    parts = (
        (summaries.headline(document), "answer" if known else "answer warn"),
        (summaries.advice(document), "answer"),
        ("\n".join(filter(None, (*_caveats(document), wide))), "muted"),
    )
    yield from (Note(text, mood) for text, mood in parts if text)


def _caveats(document: Document) -> Iterator[str]:
    """Yield what the ranges of time and cost cover, and what they don't."""
    notes = summaries.range_note(summaries.replayed(document)), summaries.instances_note(document)
    yield from filter(None, (*notes, *summaries.predicted_notes(document)))


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


def figures(document: Document) -> Iterator[Figure]:
    """Yield what was measured, and for time and cost what they are on Lambda, if the document has that."""
    found: Document = summaries.replayed(document) or document.get("predicted") or {}

    def both(title: str, figure: str, here: str, named: str = "") -> Figure:
        if figure not in found:
            return Figure(named or title, here, "measured")
        there = f"{summaries.figure_text(found, figure)}{'' if figure == 'cost' else ' s'}"
        note = "80 % range" if summaries.has_range(found) else ""
        return Figure(title, there, "modelled", note, (f"{here} {named}".strip(), "measured"))

    def measured(title: str, value: str, note: str = "") -> Figure:
        return Figure(title, value, "measured", note)

    if spent := document.get("seconds"):
        name = "first to last" if "span" in spent else "wall time"
        yield both(name, "seconds", formats.seconds(spent.get("span", spent["measured"])))
    if cost := document.get("cost"):
        named = f"{summaries.HOST_PRICED}, {cost['currency']}" if {"lambda", "predicted"} & document.keys() else ""
        yield both(f"bill, {cost['currency']}", "cost", formats.significant(float(cost["total"])), named)
    if "billed_seconds" in document:
        yield both("billed time", "billed_seconds", formats.seconds(document["billed_seconds"]))
    if document.get("orchestration_seconds") is not None:
        yield measured("orchestration", formats.seconds(document["orchestration_seconds"]))
    if document.get("peak_memory_mb"):
        limit_mb = summaries.peak_limit_mb(document)
        limit = "" if limit_mb is None else f"of {formats.megabytes(limit_mb)}"
        yield measured("peak memory", formats.megabytes(document["peak_memory_mb"]), limit)
    if (peak_mb := document.get("gpu", {}).get("peak_memory_mb")) is not None:
        gpu_mb = document["gpu"]["memory_mb"]
        yield measured("peak GPU memory", f"{peak_mb:,}{f' of {gpu_mb:,}' if gpu_mb else ''} MB")
    if accuracy := [value for value in document.get("accuracy", ()) if value is not None]:
        note = f"after {counted(len(document['accuracy']), 'epoch')}"
        yield measured("test accuracy", formats.share(accuracy[-1]), note)
    if loss := document.get("loss"):
        yield measured("training loss", formats.significant(loss[-1]))
    if document.get("replicas_equal") is not None:
        yield measured("replicas equal", "yes" if document["replicas_equal"] else "no")
    if moved := document.get("bytes"):
        yield Figure("bytes sent", formats.size(moved["in"]), "exact", f"{formats.size(moved['out'])} received")
    if document.get("invocations"):
        note = f"{document['cold_starts']:,} cold"
        yield Figure("invocations", formats.significant(document["invocations"]), "exact", note)
    elif launched := document.get("instances"):
        yield Figure("instances", str(len(launched)), "exact", f"on {document['device']}")


def figures_table(document: Document) -> Table:
    """Return the figures for a terminal: on AWS, if they are modelled, and on this machine."""
    rows = [
        (each.title, each.value, each.other[0])
        if each.other
        else (each.title, "", f"{each.value} ({each.note})" if each.note else each.value)
        for each in figures(document)
    ]
    if any(there for _, there, _ in rows):
        return Table(
            ("", f"on {summaries.platform_of(document) or 'AWS'}, modelled", "this machine"), rows, dispensable=()
        )
    return Table(("", "this machine"), [(title, here) for title, _, here in rows], dispensable=())


def failure(error: Document) -> Note:
    """Return what failed, where, what was going on, and what to do."""
    known = [f"{key} {error[key]}" for key in ("worker", "step") if error.get(key) is not None]
    where = f" ({', '.join(known)})" if known else ""
    hint = f"Hint: {error['hint']}" if error.get("hint") else ""
    lines = (f"{error['type']}: {error['message']}{where}", error.get("last_activity"), hint)
    return Note("\n".join(filter(None, lines)), "bad")


def warnings(document: Document) -> Iterator[Note]:
    """Yield caveats on the figures."""
    yield from map(Note, _warnings(document))


def _warnings(document: Document) -> Iterator[str]:
    if not document.get("details", {}).get("buffers_equal", True):
        yield (
            "Workers have different buffers (batch normalisation's means and variances); the evaluated model has rank "
            "0's."
        )
    host = document.get("host", {})
    if marked := host.get("uncertain_invocations"):
        yield (
            f"{marked:,} of {document['invocations']:,} invocations waited for files or services while this host was "
            f"short of processors, memory or disks. That may account for up to "
            f"{formats.seconds(host['uncertain_seconds'])} of their durations."
        )
    yield from summaries.limit_notes(document)
    imported = document.get("host_imports", {})
    for function, names in imported.items():
        yield f"{function} imported {formats.listed(names)} from this machine, not from its package."
    if imported:
        yield summaries.IMPORTS_HINT
    if summaries.cpu_share_enforced(document) is False:
        yield "This host could not enforce Lambda's CPU share."
    if (document.get("plan") or {}).get("stack") == "compose" and document.get("counts", {}).get("tensor.script"):
        yield "The CPU time of scripts isn't measured on a compose stack: a replay takes the time that callers waited."
    if launched := document.get("instances"):
        yield f"The vCPUs and memory of {launched[0]['type']} weren't enforced."
    if document.get("trace_torn"):
        yield "The trace breaks off in the middle of its last line; later events are missing here."
    yield from (f"{formats.capitalised(note)}." for note in document.get("cost", {}).get("notes", ()))
