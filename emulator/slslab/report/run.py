"""Terminal output about runs and records of `slslab up`, from their documents."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from slslab.errors import counted
from slslab.report.bills import run_bill
from slslab.report.cards import (
    faults_card,
    functions_card,
    invocations_card,
    learning_card,
    modelled_card,
    phases_card,
    traffic_card,
)
from slslab.report.formats import MISSING, percent
from slslab.report.page import WORDS, Card, Document, Note, Part, Row, Table
from slslab.report.summaries import (
    HOST_PRICED,
    advice,
    alone_note,
    buffers_note,
    cpu_share_enforced,
    epochs_of,
    epochs_text,
    figure_text,
    gpu_memory,
    headline,
    imports_notes,
    instances_note,
    limit_notes,
    made_of,
    peak_limit_mb,
    platform_of,
    predicted,
    predicted_notes,
    processor_note,
    range_note,
    replayed,
    seconds,
    unanchored_note,
    uncertain_note,
)

# Long runs show only this many epochs.
EPOCHS = 10


def brief(document: Document) -> Iterator[Part]:
    """Yield what `run` and `show` print: the run's time and cost on Lambda next to the measurements.

    For a failed run, that is the reason and what to do. Records of `slslab up` are printed in full.
    """
    if "architecture" not in document:
        yield from summary(document)
        return
    more = f"More: slslab show {document['run']} --full"
    if document["error"]:
        yield _identity(document)
        yield from _failure(document["error"])
        yield Note(f"{more} · slslab logs {document['run']}", "muted")
        return
    yield from _headline(document, brief=True)
    yield _identity(document)
    yield _figures(document)
    launched = document.get("instances")
    notes = (
        "" if cpu_share_enforced(document) in (True, None) else "Lambda's CPU share was NOT enforced on this machine.",
        f"The vCPUs and memory of {launched[0]['type']} weren't enforced." if launched else "",
        *(f"It {said}." for said in document["cost"].get("notes", ())),
        buffers_note(document),
        uncertain_note(document),
    )
    if said := "\n".join(filter(None, notes)):
        yield Note(said)
    yield Note(more, "muted")


def summary(document: Document) -> Iterator[Part]:
    """Yield what `show --full` prints: the run's time and cost on Lambda, then the measurements."""
    found = replayed(document)
    yield from _headline(document)
    yield _identity(document)
    if error := document["error"]:
        yield from _failure(error)
    yield from _cards(document, faults_card)
    if found:
        yield run_bill(document)
    yield from _cards(document, modelled_card)
    if alone := document.get("alone"):
        yield Note(alone_note(alone), "" if alone.get("quiet") else "warn")
    yield _measured(document)
    yield from _cards(document, functions_card, phases_card, invocations_card, traffic_card, _learning)
    yield from map(Note, filter(None, [buffers_note(document)]))
    yield from _details(document.get("details", {}))
    if not found:
        yield run_bill(document)
    yield from host_notes(document)


def interrupted(document: Document) -> Iterator[Part]:
    """Yield what `run` prints after an interruption: the error, and how to see what the run did."""
    yield _identity(document)
    yield from _failure(document["error"])
    yield f"`slslab show {document['run']}` prints what it did until then."


def _cards(document: Document, *cards: Callable[[Document], Card | None]) -> Iterator[Card]:
    return filter(None, (card(document) for card in cards))


def runs(documents: Sequence[Document]) -> Table:
    """Return a table with one line per run, with its seconds and bill on Lambda."""
    named = ("architecture", "model", "dataset", "workers")
    rows = []
    for document in documents:
        found = replayed(document)
        rows.append(
            (
                document["run"],
                document["status"],
                *(str(document.get(name, "")) for name in named),
                f"{epochs_of(document):,}" if "epochs" in document else "",
                figure_text(found, "seconds") if found else "",
                figure_text(found, "cost") if found else "",
                percent(document["accuracy"][-1], ".1") if document.get("accuracy") else "",
            )
        )
    return Table(
        ("run", "status", *named, "epochs", "AWS s", "bill USD", "accuracy"),
        rows,
        note=range_note(*map(replayed, documents)),
        # The run's id contains the architecture and the model.
        dispensable=("dataset", "model", "architecture", "epochs", "workers", "accuracy", "AWS s"),
    )


def _learning(document: Document) -> Card | None:
    """Return loss and accuracy of up to ten epochs, spread over the run, including the last."""
    card = learning_card(document)
    if card is None or len(rows := card.tables[0].rows) <= EPOCHS:
        return card
    shown = sorted({round(number * (len(rows) - 1) / (EPOCHS - 1)) for number in range(EPOCHS)})
    return replace(card, tables=(replace(card.tables[0], rows=[rows[number] for number in shown]),))


def _nodes(host: Document) -> str:
    nodes = host.get("nodes", ())
    lost = sum(node["lost"] for node in nodes)
    return f" of {counted(len(nodes), 'node')}{f', {lost} lost' if lost else ''}" if nodes else ""


def host_notes(document: Document) -> Iterator[str | Note]:
    """Yield caveats about the host that concern durations."""
    host, launched = document["host"], document.get("instances")
    if host["cores"] is None:
        yield f"{document['run']}: host delay {host['delay_seconds']:,.2f} s; its host wasn't recorded."
        return
    shares = {True: ", CPU share enforced", False: ", CPU share NOT enforced on this host", None: ""}
    share = ", which don't confine instances" if launched else shares[cpu_share_enforced(document)]
    name = f"{host['name']}, " if "name" in host else ""
    yield (
        f"{document['run']}: {name}{counted(host['cores'], 'core')}{_nodes(host)}{share}, "
        f"host delay {host['delay_seconds']:,.2f} s{', oversubscribed' * host['oversubscribed']}."
    )
    if waited := uncertain_note(document):
        yield Note(waited)
    if launched:
        enforced = f"{len(launched)} × {launched[0]['type']}: vCPUs and memory aren't enforced"
        yield Note("; ".join((enforced, *document["cost"]["notes"])))
    elif platform_of(document):
        yield Note(f"It {'; '.join(document['cost']['notes'])}.")
    package = document.get("package")
    if package and package["needs_container_image"] and document["invocations"] and not platform_of(document):
        yield (
            f"On AWS these functions need a container image: {package['unzipped_bytes'] / 2**20:,.1f} MB of code and "
            f"the layer {package['layer']} ({package['layer_bytes'] / 2**20:,.0f} MB) exceed the "
            f"{package['limit_bytes'] / 2**20:.0f} MB limit for zip packages."
        )


def _headline(document: Document, *, brief: bool = False) -> Iterator[Note]:
    found = replayed(document)
    notes = predicted_notes(document)
    if found is not None:
        wide = unanchored_note([document], ["this run"]) if brief else processor_note(document)
        notes += [range_note(found), "" if brief else made_of(found), wide, instances_note(document)]
    parts = (
        (headline(document), "answer" if found or predicted(document) else "answer warn"),
        (advice(document), "answer"),
        ("\n".join(filter(None, notes)), "muted"),
        ("\n".join((*limit_notes(document), *imports_notes(document))), "warn"),
    )
    yield from (Note(text, mood) for text, mood in parts if text)


def _identity(document: Document) -> Note:
    if "architecture" not in document:
        line = f"{document['run']}: functions since {document['started_at']} — {document['status']}"
        return Note(line, "answer bad" if document["error"] else "answer")
    launched, platform = document.get("instances"), platform_of(document)
    machines = f"on {launched[0]['type']}" if launched else f"at {document['memory_mb']:,} MB"
    machines += f" for {platform}" if platform else ""
    what = f"{document['model']} on {document['dataset']}"
    steps = f"{counted(document['batches'], 'batch', 'batches')} of {document['batch_size']}"
    if document["status"] == "done" and document["replicas_equal"] is None:
        # A pattern, which trains nothing.
        what, steps = counted(document["parameters"], "parameter"), counted(document["batches"], "round")
        machines = f"at {peak_limit_mb(document):,} MB"
    line = (
        f"{document['run']}: {document['architecture']}, {what}, {counted(document['workers'], 'worker')} × {steps} × "
        f"{epochs_text(document)} {machines} — {document['status']}"
    )
    return Note(line, "answer" if document["status"] == "done" else "answer bad")


def _failure(error: Document) -> Iterator[str | Note]:
    known = [f"{key} {error[key]}" for key in ("worker", "step") if error.get(key) is not None]
    where = f" ({', '.join(known)})" if known else ""
    yield Note(f"{error['type']}: {error['message']}{where}", "bad")
    if error.get("last_activity"):
        yield str(error["last_activity"])
    if error.get("hint"):
        yield f"Hint: {error['hint']}"


def _figures(document: Document) -> Table:
    """Return the main figures: on AWS, if the run is modelled, and as measured here."""
    found, cost = replayed(document), document["cost"]
    accuracy = percent(document["accuracy"][-1], ".2") if document["accuracy"] else ""
    loss = f"{document['loss'][-1]:.4f}" if document["loss"] else ""
    equal = {True: "yes", False: "no", None: ""}[document["replicas_equal"]]
    measured = (
        ("time, s", f"{document['seconds'].get('span', document['seconds']['measured']):,.1f}", "seconds"),
        ("billed time, s", f"{document['billed_seconds']:,.1f}", "billed_seconds"),
        (f"bill, {cost['currency']}", f"{Decimal(cost['total']):.6f}", "cost"),
        ("cold starts", f"{document['cold_starts']:,}", ""),
        ("peak memory, MB", _peak_memory(document), ""),
        ("peak GPU memory, MB", gpu_memory(document), ""),
        ("training loss", loss, ""),
        ("test accuracy", accuracy, ""),
        ("replicas equal", equal, ""),
    )
    if found is None:
        return Table(("", "this machine"), [(title, here) for title, here, _ in measured if here])
    on_aws = {"": "", **{name: figure_text(found, name) for _, _, name in measured if name}}
    rows = [(title, on_aws[name], here) for title, here, name in measured if here]
    return Table(("", f"on {platform_of(document) or 'AWS'}, modelled", "this machine"), rows)


def _measured(document: Document) -> Table:
    rows: tuple[tuple[str, Callable[[Document], str]], ...] = (
        ("time, wall s", lambda d: f"{d['seconds']['measured']:,.1f}"),
        ("billed s", lambda d: f"{d['billed_seconds']:,.3f}"),
        ("peak memory MB", _peak_memory),
        *([("peak GPU memory MB", gpu_memory)] if gpu_memory(document) else []),
        ("GB-seconds", lambda d: f"{Decimal(d['gb_seconds']):,.3f}"),
        ("invocations (cold)", lambda d: f"{d['invocations']} ({d['cold_starts']})"),
    )
    planned: tuple[tuple[str, Callable[[Document], str]], ...] = (
        ("instances", lambda d: f"{len(d['instances'])} on {d['device']}" if d.get("instances") else MISSING),
        ("bytes sent", lambda d: f"{d['bytes']['in']:,}"),
        ("bytes received", lambda d: f"{d['bytes']['out']:,}"),
        ("updates per worker", lambda d: MISSING if d.get("updates") is None else f"{d['updates']:,}"),
        ("replicas equal", lambda d: {True: "yes", False: "no", None: MISSING}[d["replicas_equal"]]),
        ("training loss", lambda d: f"{d['loss'][-1]:.4f}" if d["loss"] else MISSING),
        ("test accuracy", lambda d: percent(d["accuracy"][-1], ".2") if d["accuracy"] else MISSING),
    )
    if "architecture" in document:
        rows += planned
    if document.get("orchestration_seconds") is not None:
        rows += (("orchestration s", lambda d: seconds(d["orchestration_seconds"])),)
    rows += ((f"{HOST_PRICED}, USD", lambda d: f"{Decimal(d['cost']['total']):.6f}"),)
    return Table(("", "measured"), [(label, value(document)) for label, value in rows], caption="Measured on this host")


def _details(details: Mapping[str, Any]) -> Iterator[Table]:
    for name, title, columns, row in DETAILS:
        if told := details.get(name):
            yield Table(columns, [row(each) for each in told], caption=title, words=WORDS, dispensable=())


def _death(death: Document) -> Row:
    found_by = death["found_by"] if isinstance(death["found_by"], str) else f"peer {death['found_by']}"
    detected = datetime.fromtimestamp(death["time"], UTC).isoformat(timespec="milliseconds")
    return str(death["worker"]), str(death["epoch"] + 1), detected, found_by


def _decision(decision: Document) -> Row:
    """Return a decision of MLLess's auto-tuner; its losses are projections for ten seconds later."""
    removed = MISSING if decision["removed"] is None else f"worker {decision['removed']}"
    figures = [f"knee at step {decision['knee']}", "", ""]
    if decision["r"] is not None:
        figures = [f"{decision[name]:.4g}" for name in ("r", "loss_base", "loss_now")]
    return str(decision["step"]), str(decision["workers"]), removed, *figures


# The names in documents, titles, headings, and functions that make rows.
DETAILS: tuple[tuple[str, str, Sequence[str], Callable[[Document], Row]], ...] = (
    (
        "joins",
        "Joins",
        ("peer that joined", "first epoch"),
        lambda join: (str(join["worker"]), "never" if join["epoch"] is None else str(join["epoch"] + 1)),
    ),
    ("deaths", "Failed peers", ("failed peer", "epoch", "detected at", "detected by"), _death),
    (
        "late",
        "Peers left out of an epoch",
        ("late peer", "epoch", "left out by"),
        lambda late: (str(late["worker"]), str(late["epoch"] + 1), f"peer {late['left_out_by']}"),
    ),
    (
        "scale_in",
        "Scale-in",
        ("after step", "workers", "removed", "r %", "loss with all", "loss with these"),
        _decision,
    ),
    (
        "failed_functions",
        "Failed functions",
        ("failed function", "epoch", "error"),
        lambda failed: (str(failed["function"]), str(failed["epoch"] + 1), failed["error"]),
    ),
)


def _peak_memory(document: Document) -> str:
    peak, limit = f"{document['peak_memory_mb']:,}", peak_limit_mb(document)
    return peak if limit is None else f"{peak} of {limit:,}"
