"""Tables of runs for a terminal, made from their documents."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slslab.errors import counted
from slslab.report.summaries import (
    HOST_PRICED,
    MISSING,
    Document,
    advice,
    alone_note,
    beside_modelled,
    byte_rows,
    count_rows,
    cpu_share_enforced,
    epochs_of,
    fault_rows,
    figure_range,
    handler_seconds,
    headline,
    instances_note,
    limit_notes,
    made_of,
    peak_limit_mb,
    predicted,
    predicted_ms,
    predicted_notes,
    processor_note,
    range_note,
    replayed,
    report_rows,
    seconds,
)
from slslab.report.terminal.bills import run_bill
from slslab.report.terminal.tables import money, plain_table

PHASES = ("init", "fetch", "compute", "synchronise", "wait", "update", "other")


def summary(document: Document) -> RenderableType:
    """Return all that `show` prints of one run: what it takes and costs on Lambda, then what this host measured."""
    details = document.get("details", {})
    found = replayed(document)
    sections: tuple[tuple[Any, Callable[[Any], RenderableType], Any], ...] = (
        ("lambda" in document or "predicted" in document, _headline, document),
        (True, _identity, document),
        (document["error"], _failure, document),
        (document.get("faults"), _faults, document),
        (found, run_bill, document),
        (found, modelled, document),
        (document.get("alone"), alone, document.get("alone")),
        (True, _measured, document),
        (document.get("functions"), functions, document),
        (document.get("per_worker"), phases, document),
        (document["invocations"], reports, document),
        (document["counts"], traffic, document),
        (document.get("loss"), learning, document),
        (details.get("joins"), _joins, details.get("joins")),
        (details.get("deaths"), _deaths, details.get("deaths")),
        (details.get("late"), _late, details.get("late")),
        (details.get("scale_in"), _scale_in, details.get("scale_in")),
        (details.get("failed_functions"), _failed_functions, details.get("failed_functions")),
        (not found, run_bill, document),
        (True, host_note, document),
    )
    return Group(*(show(content) for present, show, content in sections if present))


def runs(documents: Sequence[Document]) -> Table:
    """Return one line per run, with its seconds and its bill on Lambda."""
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
                (figure_range(found, "seconds") or f"{found['seconds']:,.1f}") if found else "",
                (figure_range(found, "cost") or money(found["cost"]["total"])) if found else "",
                f"{document['accuracy'][-1]:.1%}" if document.get("accuracy") else "",
            )
        )
    table = plain_table(
        ("run", "status", *named, "epochs", "AWS s", "bill USD", "accuracy"),
        rows,
        # The run's id has the architecture and the model.
        dispensable=("dataset", "model", "architecture", "epochs", "workers", "accuracy", "AWS s"),
    )
    table.caption, table.caption_justify = range_note(*map(replayed, documents)), "left"
    return table


def functions(document: Document) -> Table:
    """Return each function's invocations: how they ended, and what they took."""

    def row(name: str, memory: str, figures: Document) -> tuple[str, ...]:
        spread = figures["reports"]["duration_ms"]
        return (
            name,
            memory,
            f"{figures['invocations']:,}",
            f"{figures['cold_starts']:,}",
            f"{figures['errors']:,}",
            *(f"{spread[key]:,.2f}" for key in ("min", "median", "max")),
            predicted_ms(figures),
            f"{figures['billed_seconds'] * 1000:,.0f}",
            f"{figures['peak_memory_mb']:,}",
        )

    here = [f"{key} ms" for key in ("min", "median", "max")]
    headings = ("invocations", "cold", "errors", *here, "Lambda: median ms", "billed ms")
    shown = document["functions"]
    total = {**document, "errors": sum(figures["errors"] for figures in shown)}
    return plain_table(
        ("function", "memory MB", *headings, "peak MB"),
        (row(figures["function"], f"{figures['memory_mb']:,}", figures) for figures in shown),
        [row("all", "", total)],
        title="Functions, as this host ran them and as Lambda would",
        dispensable=("min ms", "peak MB", "memory MB", "max ms"),
    )


def phases(document: Document) -> Table:
    """Return seconds per worker and phase, on the Lambda clock (of instances: wall time), and what each worker used."""

    def row(name: str, figures: Document) -> tuple[str, ...]:
        return (
            name,
            *(f"{figures['phases'][phase]:,.2f}" for phase in PHASES),
            f"{figures['billed_seconds']:,.2f}",
            str(figures["invocations"]),
            f"{figures['peak_memory_mb']:,}",
        )

    return plain_table(
        ("worker", *(f"{phase} s" for phase in PHASES), "billed s", "invocations", "peak MB"),
        (row(_rank(worker), worker) for worker in document["per_worker"]),
        [row("all", document)],
        title="Phases",
        dispensable=("invocations", "peak MB", "other s", "update s", "init s"),
    )


def modelled(document: Document) -> RenderableType:
    """Return what the replayed trace takes on Lambda, per worker, and behind it what was measured on this host."""
    found = document["lambda"]
    workers, profile = document["per_worker"], found["profile"]
    rows = [(_rank(worker), *map(seconds, figures)) for worker, figures in beside_modelled(document)]
    sums = sum(worker["seconds"] for worker in found["per_worker"]), sum(map(handler_seconds, workers))
    totals = [
        ("all", *map(seconds, (sums[0], found["billed_seconds"], sums[1], document["billed_seconds"]))),
        ("from first to last", seconds(found["seconds"]), "", seconds(document["seconds"].get("span")), ""),
    ]
    if "ranges" in found:
        totals.append(("80 % range", *(figure_range(found, name) for name in ("seconds", "billed_seconds")), "", ""))
    table = plain_table(
        ("worker", *(f"{basis} {unit}" for basis in ("modelled", "measured") for unit in ("s", "billed s"))),
        rows,
        totals,
        title=f"Modelled on {profile['name']} of {profile['date']}, and measured here",
        dispensable=(),
    )
    waiting = f"Of the billed time {found['waiting_share']:.0%} is waiting (modelled)."
    return Group(table, Text(f"{found['critical_path']} {waiting}"))


def alone(measured: Document) -> Text:
    """Return how the CPU seconds that replay takes were measured alone."""
    return Text(alone_note(measured), style="" if measured.get("quiet") else "yellow")


def reports(document: Document) -> Table:
    """Return a summary of the invocations' REPORT lines."""
    lines = document["reports"]
    endings = ", ".join(f"{number} {ending}" for ending, number in lines["endings"].items())
    return plain_table(("", "min", "median", "max"), report_rows(lines), title=f"REPORT lines: {endings}")


def traffic(document: Document) -> Table:
    """Return messages and bytes of the training protocol, and of its overheads; of a service, its requests."""
    if "overheads" not in document:
        requests = ((name, f"{number:,}") for name, number in document["counts"].items())
        return plain_table(("operation", "requests"), requests, title="Requests")
    return plain_table(
        ("operation", "protocol", "overheads"), count_rows(document), byte_rows(document), title="Messages and bytes"
    )


def learning(document: Document) -> Table:
    """Return training loss and test accuracy of up to ten epochs, spread over the run, the last among them."""
    epochs, accuracy = len(document["loss"]), dict(enumerate(document["accuracy"]))
    shown = sorted({round(i * (epochs - 1) / 9) for i in range(10)}) if epochs > 10 else range(epochs)
    rows = (
        (
            str(epoch + 1),
            f"{document['loss'][epoch]:.4f}",
            MISSING if accuracy.get(epoch) is None else f"{accuracy[epoch]:.2%}",
        )
        for epoch in shown
    )
    return plain_table(("epoch", "loss", "test accuracy"), rows, title="Learning")


def _nodes(host: Document) -> str:
    """Return on how many nodes of a cluster the environments were, if on any, and how many of these were lost."""
    nodes = host.get("nodes", ())
    lost = sum(node["lost"] for node in nodes)
    return f" of {counted(len(nodes), 'node')}{f', {lost} of which were lost' if lost else ''}" if nodes else ""


def host_note(document: Document) -> Text:
    """Return what a reader must know of the host before believing a duration."""
    host, launched = document["host"], document.get("instances")
    if host["cores"] is None:
        return Text(f"{document['run']}: host delay {host['delay_seconds']:,.2f} s; its host was not recorded.")
    shares = {True: ", CPU share enforced", False: ", CPU share NOT enforced on this host", None: ""}
    share = ", which do not confine instances" if launched else shares[cpu_share_enforced(document)]
    name = f"{host['name']}, " if "name" in host else ""
    note = Text(
        f"{document['run']}: {name}{counted(host['cores'], 'core')}{_nodes(host)}{share}, "
        f"host delay {host['delay_seconds']:,.2f} s"
    )
    note.append(", oversubscribed." if host["oversubscribed"] else ".")
    if marked := host.get("uncertain_invocations"):
        note.append(
            f"\n{marked:,} of {document['invocations']:,} invocations waited for files or services while this host was "
            f"short of processors, memory or disks: up to {host['uncertain_seconds']:,.2f} s of their durations may be "
            "the host's.",
            style="yellow",
        )
    if launched:
        note.append(f"\n{len(launched)} × {launched[0]['type']}, whose vCPUs and memory are not enforced")
        note.append("".join(f"; {remark}" for remark in document["cost"]["notes"]), style="yellow")
    package = document.get("package")
    if package and package["needs_container_image"] and document["invocations"]:
        note.append(
            f"\nOn AWS these functions need a container image: {package['unzipped_bytes'] / 2**20:,.1f} MB of code and "
            f"the layer {package['layer']} of {package['layer_bytes'] / 2**20:,.0f} MB are more than the "
            f"{package['limit_bytes'] / 2**20:.0f} MB of a zip package."
        )
    return note


def _rank(worker: Document) -> str:
    return "?" if worker["worker"] < 0 else str(worker["worker"])


def _headline(document: Document) -> Text:
    """Return what the run takes and costs on Lambda, and what the ranges of that are made of."""
    found = replayed(document)
    text = Text(f"{headline(document)}\n", "bold" if found or predicted(document) else "bold yellow")
    text.append("\n".join(predicted_notes(document)), "dim")
    text.append(f"{advice(document)}\n" if found else "", "bold")
    if found is not None:
        notes = (range_note(found), made_of(found), processor_note(document), instances_note(document))
        text.append("\n".join(filter(None, notes)), "dim")
        text.append("".join(f"\n{note}" for note in limit_notes(document)), "yellow")
    text.rstrip()
    return text


def interrupted(document: Document) -> RenderableType:
    """Return what `run` prints of a run that was interrupted: that it was, and how to see what it did."""
    rest = Text(f"`slslab show {document['run']}` prints what it did until then.")
    return Group(_identity(document), _failure(document), rest)


def _identity(document: Document) -> Text:
    if "architecture" not in document:
        line = f"{document['run']}: functions since {document['started_at']} — {document['status']}"
        return Text(line, style="bold red" if document["error"] else "bold")
    launched = document.get("instances")
    machines = f"on {launched[0]['type']}" if launched else f"at {document['memory_mb']:,} MB"
    what = f"{document['model']} on {document['dataset']}"
    steps = f"{counted(document['batches'], 'batch', 'batches')} of {document['batch_size']}"
    if document["status"] == "done" and document["replicas_equal"] is None:
        # Nothing is trained.
        what, steps = counted(document["parameters"], "parameter"), counted(document["batches"], "round")
        machines = f"at {peak_limit_mb(document):,} MB"
    line = (
        f"{document['run']}: {document['architecture']}, {what}, {counted(document['workers'], 'worker')} × {steps} × "
        f"{counted(epochs_of(document), 'epoch')} {machines} — {document['status']}"
    )
    return Text(line, style="bold" if document["status"] == "done" else "bold red")


def _failure(document: Document) -> Text:
    error = document["error"]
    known = [f"{key} {error[key]}" for key in ("worker", "step") if error.get(key) is not None]
    where = f" ({', '.join(known)})" if known else ""
    text = Text(f"{error['type']}: {error['message']}{where}", style="red")
    if error.get("last_activity"):
        text.append(f"\n{error['last_activity']}", style="default")
    if error.get("hint"):
        text.append(f"\nHint: {error['hint']}", style="default")
    return text


def _faults(document: Document) -> Table:
    """Return what each fault of the run's plan did."""
    headings = ("fault", "times", "first at", "held up s")
    return plain_table(headings, fault_rows(document), title="Faults of the plan", words=True)


def _measured(document: Document) -> Table:
    """Return what this host measured of a run, and what its usage would cost."""
    rows: tuple[tuple[str, Callable[[Document], str]], ...] = (
        ("time, wall s", lambda d: f"{d['seconds']['measured']:,.1f}"),
        ("billed s", lambda d: f"{d['billed_seconds']:,.3f}"),
        ("peak memory MB", _peak_memory),
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
        ("test accuracy", lambda d: f"{d['accuracy'][-1]:.2%}" if d["accuracy"] else MISSING),
    )
    if "architecture" in document:
        rows += planned
    if document.get("orchestration_seconds") is not None:
        rows += (("orchestration s", lambda d: seconds(d["orchestration_seconds"])),)
    rows += ((f"{HOST_PRICED}, USD", lambda d: money(d["cost"]["total"])),)
    return plain_table(
        ("", "measured"), ((label, value(document)) for label, value in rows), title="Measured on this host"
    )


def _joins(joins: Sequence[Mapping[str, Any]]) -> Table:
    """Return the peers that were not there at the beginning."""
    rows = ((str(join["worker"]), "never" if join["epoch"] is None else str(join["epoch"] + 1)) for join in joins)
    return plain_table(("peer that joined", "first epoch"), rows, title="Joins")


def _deaths(deaths: Sequence[Mapping[str, Any]]) -> Table:
    """Return the peers that failed while the others continued."""
    rows = (
        (
            str(death["worker"]),
            str(death["epoch"] + 1),
            datetime.fromtimestamp(death["time"], UTC).isoformat(timespec="milliseconds"),
            death["found_by"] if isinstance(death["found_by"], str) else f"peer {death['found_by']}",
        )
        for death in deaths
    )
    return plain_table(("failed peer", "epoch", "detected at", "detected by"), rows, title="Failed peers", words=True)


def _late(late: Sequence[Mapping[str, Any]]) -> Table:
    """Return the peers that came to a barrier after its time-out, and who went on without their averages."""
    rows = ((str(one["worker"]), str(one["epoch"] + 1), f"peer {one['left_out_by']}") for one in late)
    return plain_table(("late peer", "epoch", "left out by"), rows, title="Peers left out of an epoch", words=True)


def _failed_functions(failed: Sequence[Mapping[str, Any]]) -> Table:
    """Return the functions that failed while the others continued."""
    rows = ((str(one["function"]), str(one["epoch"] + 1), one["error"]) for one in failed)
    return plain_table(("failed function", "epoch", "error"), rows, title="Failed functions", words=True)


def _scale_in(decisions: Sequence[Mapping[str, Any]]) -> Table:
    """Return what MLLess's auto-tuner decided; the losses are those it projected for ten seconds later."""
    headings = ("after step", "workers", "removed", "r %", "loss with all", "loss with these")
    rows = []
    for decision in decisions:
        removed = MISSING if decision["removed"] is None else f"worker {decision['removed']}"
        figures = [f"knee at step {decision['knee']}", "", ""]
        if decision["r"] is not None:
            figures = [f"{decision[name]:.4g}" for name in ("r", "loss_base", "loss_now")]
        rows.append((str(decision["step"]), str(decision["workers"]), removed, *figures))
    return plain_table(headings, rows, title="Scale-in", dispensable=())


def _peak_memory(document: Document) -> str:
    peak, limit = f"{document['peak_memory_mb']:,}", peak_limit_mb(document)
    return peak if limit is None else f"{peak} of {limit:,}"
