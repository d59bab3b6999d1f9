"""Tables for a terminal, made from a run's document alone."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slslab.doctor import Finding
from slslab_workers.endpoints import QUEUE_URL, TENSOR_URLS

PHASES = ("init", "fetch", "compute", "synchronise", "wait", "update", "other")
# Where AWS's variable has another name than the endpoint.
VARIABLES = {"states": "sfn"}
Document = Mapping[str, Any]


def summary(document: Document) -> RenderableType:
    """Everything `show` prints of one run."""
    parts: list[RenderableType] = [_headline(document), _figures([document])]
    if document["status"] == "failed":
        parts.append(_failure(document))
    if document.get("modelled"):
        parts.append(modelled(document))
    if document["per_worker"]:
        parts.append(phases(document))
    if document["invocations"]:
        parts.append(reports(document))
    if document["counts"]:
        parts.append(traffic(document))
    if document["loss"]:
        parts.append(learning(document))
    if joins := document.get("details", {}).get("joins"):
        parts.append(_joins(joins))
    if deaths := document.get("details", {}).get("deaths"):
        parts.append(_deaths(deaths))
    if decisions := document.get("details", {}).get("scale_in"):
        parts.append(_scale_in(decisions))
    parts += [bill(document["cost"]), host_note(document)]
    return Group(*parts)


def comparison(documents: Sequence[Document]) -> RenderableType:
    """Runs side by side, with their bills line by line."""
    return Group(_figures(documents), _bills(documents), *[host_note(document) for document in documents])


def runs(documents: Sequence[Document]) -> Table:
    """One line per run."""
    table = plain_table(
        "run", "status", "architecture", "model", "dataset", "workers", "epochs", "billed s", "USD", "accuracy"
    )
    for document in documents:
        accuracy = document.get("accuracy") or []
        table.add_row(
            document["run"],
            document["status"],
            str(document.get("architecture", "")),
            str(document.get("model", "")),
            str(document.get("dataset", "")),
            str(document.get("workers", "")),
            str(document.get("epochs", "")),
            f"{document['billed_seconds']:,.1f}" if "billed_seconds" in document else "",
            _money(document["cost"]["total"]) if "cost" in document else "",
            f"{accuracy[-1]:.1%}" if accuracy else "",
        )
    return table


def limits(version: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """Lambda's limits with their bases."""
    table = plain_table(
        "limit", "value", "basis", "source", title=f"Limits of AWS Lambda, version {version}", words=True
    )
    for name, row in rows.items():
        value = row["value"]
        if isinstance(value, Mapping):
            text = f"{value['minimum']:,} to {value['maximum']:,}, by default {value['default']:,}"
        elif isinstance(value, Sequence):
            text = ", ".join(f"{cores} up to {memory_mb:,} MB" for memory_mb, cores in value)
        else:
            text = f"{value:,}"
        source = row["source"].rpartition("/")[2]
        table.add_row(name, text, row["basis"], f"{source}: {row['note']}" if row["note"] else source)
    return table


def service(described: Mapping[str, Any]) -> RenderableType:
    """Endpoints of a running service and how to use them; its services, if they were examined."""
    endpoints = _endpoints(described)
    return Group(endpoints, _services(described["services"])) if "services" in described else endpoints


def _services(found: Sequence[Mapping[str, Any]]) -> Table:
    table = plain_table("service", "version", "health", "address", words=True)
    for one in found:
        health = "healthy" if one["healthy"] else one["trouble"]
        table.add_row(one["part"], one["name"], health, "\n".join(one["host"].split()))
    return table


def _endpoints(described: Mapping[str, Any]) -> Table:
    table = plain_table("slslab is up", "", words=True)
    for name, endpoint in described["endpoints"].items():
        if name == "tensors":
            table.add_row(TENSOR_URLS, " ".join(endpoint))
        elif name == "queue":
            table.add_row(QUEUE_URL, endpoint)
        else:
            table.add_row(f"AWS_ENDPOINT_URL_{VARIABLES.get(name, name).upper()}", endpoint)
    for name, value in described["credentials"].items():
        table.add_row(name, value)
    for name in ("confinement", "isolation", "logs", "pid", "environment"):
        if name in described:
            table.add_row(name, str(described[name]))
    return table


def phases(document: Document) -> Table:
    """Seconds per worker and phase, on the Lambda clock (of instances: wall), with what each worker used."""
    table = plain_table(
        "worker", *(f"{phase} s" for phase in PHASES), "billed s", "invocations", "peak MB", title="Phases"
    )
    for worker in document["per_worker"]:
        rank = "?" if worker["worker"] < 0 else str(worker["worker"])
        table.add_row(
            rank,
            *(f"{worker['phases'][phase]:,.2f}" for phase in PHASES),
            f"{worker['billed_seconds']:,.2f}",
            str(worker["invocations"]),
            f"{worker['peak_memory_mb']:,}",
        )
    table.add_section()
    total = document["phases"]
    table.add_row(
        "all",
        *(f"{total[phase]:,.2f}" for phase in PHASES),
        f"{document['billed_seconds']:,.2f}",
        str(document["invocations"]),
        f"{document['peak_memory_mb']:,}",
    )
    return table


def modelled(document: Document) -> RenderableType:
    """Per worker what was measured on this host beside what the replayed trace would have taken on Lambda."""
    found = document["modelled"]
    if found["status"] != "modelled":
        return Text(f"Not modelled. {found['reason']}", style="yellow")
    profile = found["profile"]
    table = plain_table(
        "worker",
        *(f"{kind} {figure}" for figure in ("s", "billed s") for kind in ("measured", "modelled")),
        title=f"Measured here, and modelled on {profile['name']} of {profile['date']}",
    )
    theirs = {worker["worker"]: worker for worker in found["per_worker"]}
    duration = {worker["worker"]: _duration(worker) for worker in document["per_worker"]}
    for worker in document["per_worker"]:
        rank, other = worker["worker"], theirs.get(worker["worker"], {"seconds": None, "billed_seconds": None})
        figures = (duration[rank], other["seconds"], worker["billed_seconds"], other["billed_seconds"])
        table.add_row("?" if rank < 0 else str(rank), *map(_seconds, figures))
    table.add_section()
    both = sum(duration.values()), sum(worker["seconds"] for worker in found["per_worker"])
    table.add_row("all", *map(_seconds, (*both, document["billed_seconds"], found["billed_seconds"])))
    table.add_row("from first to last", *map(_seconds, (document["seconds"]["span"], found["seconds"])), "", "")
    currency = document["cost"]["currency"]
    table.add_row(f"bill {currency}", "", "", _money(document["cost"]["total"]), _money(found["cost"]["total"]))
    note = Text(f"{found['critical_path']} Of the billed time {found['waiting_share']:.0%} is waiting (modelled).")
    if document["host"]["oversubscribed"]:
        note.append("\nThe host was oversubscribed: measured waits are this host's, not Lambda's.", style="yellow")
    return Group(table, note)


def _duration(worker: Mapping[str, Any]) -> float:
    """Seconds of a worker's handlers: what init takes comes before them."""
    return float(sum(worker["phases"].values()) - worker["phases"]["init"])


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.3f}"


def reports(document: Document) -> Table:
    """The invocations' REPORT lines in short."""
    found = document["reports"]
    endings = ", ".join(f"{number} {ending}" for ending, number in found["endings"].items())
    table = plain_table("", "least", "median", "greatest", title=f"REPORT lines: {endings}")
    figures = (
        ("Duration, ms", "duration_ms"),
        ("Init Duration, ms", "init_ms"),
        ("Billed Duration, ms", "billed_ms"),
        ("Max Memory Used, MB", "max_memory_mb"),
    )
    for label, figure in figures:
        if (spread := found[figure]) is not None:
            table.add_row(label, *(f"{spread[end]:,.2f}" for end in ("min", "median", "max")))
    return table


def traffic(document: Document) -> Table:
    """Messages and bytes of the training protocol, and of everything beside it."""
    table = plain_table("operation", "protocol", "overheads", title="Messages and bytes")
    counts, beside = document["counts"], document["overheads"]["counts"]
    for operation in sorted(set(counts) | set(beside)):
        table.add_row(operation, f"{counts.get(operation, 0):,}", f"{beside.get(operation, 0):,}")
    table.add_section()
    for direction, meaning in (("in", "bytes to stores"), ("out", "bytes from stores")):
        table.add_row(meaning, f"{document['bytes'][direction]:,}", f"{document['overheads']['bytes'][direction]:,}")
    return table


def learning(document: Document) -> Table:
    """Training loss and test accuracy of up to ten epochs, spread over the run, the last among them."""
    table = plain_table("epoch", "loss", "test accuracy", title="Learning")
    epochs = len(document["loss"])
    shown = sorted({round(i * (epochs - 1) / 9) for i in range(10)}) if epochs > 10 else range(epochs)
    accuracy = document["accuracy"]
    for epoch in shown:
        share = f"{accuracy[epoch]:.2%}" if epoch < len(accuracy) and accuracy[epoch] is not None else "–"
        table.add_row(str(epoch + 1), f"{document['loss'][epoch]:.4f}", share)
    return table


def bill(cost: Mapping[str, Any]) -> Table:
    """The bill, line by line; the lines add up to the total exactly. What must be known of it stands below."""
    table = plain_table(
        "item", "quantity", "unit", f"price {cost['currency']}", f"amount {cost['currency']}", title="Bill"
    )
    for line in cost["lines"]:
        table.add_row(
            line["item"], _quantity(line["quantity"]), line["unit"], line["price"], f"{Decimal(line['amount']):.8f}"
        )
    table.add_section()
    table.add_row("total", "", "", "", f"{Decimal(cost['total']):.8f}")
    for left_out in cost["not_billed"]:
        table.add_row(
            Text(f"{left_out['item']} (no price in {cost['book']['name']})", "dim"),
            _quantity(left_out["quantity"]),
            left_out["unit"],
        )
    table.caption = "\n".join(cost.get("notes", ()))
    table.caption_justify = "left"
    return table


def findings(found: Sequence[Finding]) -> Table:
    """What `doctor` found."""
    table = Table(box=None, pad_edge=False)
    for heading in ("", "", "found", "what follows"):
        table.add_column(heading)
    colours = {"ok": "green", "partly": "yellow", "missing": "red"}
    for finding in found:
        table.add_row(finding.subject, Text(finding.state, colours[finding.state]), finding.found, finding.hint)
    return table


def host_note(document: Document) -> Text:
    """What the reader must know of the host before believing a duration."""
    host = document["host"]
    note = Text()
    if host["cores"] is None:
        return Text(f"{document['run']}: host delay {host['delay_seconds']:,.2f} s; its host was not recorded.")
    launched = document.get("instances")
    share = "CPU share enforced" if host["cpu_share_enforced"] else "CPU share NOT enforced on this host"
    share = "instances confined to none of them" if launched else share
    note.append(f"{document['run']}: {host['cores']} cores, {share}, host delay {host['delay_seconds']:,.2f} s. ")
    if host["oversubscribed"] and launched:
        note.append(
            "OVERSUBSCRIBED: the host held the instances up for more than 2 % of their time, which is wall time and in "
            "their bill.",
            style="yellow",
        )
    elif host["oversubscribed"]:
        note.append(
            "OVERSUBSCRIBED: the host held the functions up for more than 2 % of their time; durations are on the "
            "Lambda clock, which takes this out, but waits for delayed peers are not corrected.",
            style="yellow",
        )
    if launched:
        note.append(f"\n{len(launched)} × {launched[0]['type']}, whose vCPUs and memory are not enforced; ")
        note.append("; ".join(document["cost"]["notes"]), style="yellow")
    package = document.get("package")
    if package and package["needs_container_image"] and not launched:
        note.append(
            f"\nOn AWS these functions need a container image: {package['unzipped_bytes'] / 2**20:,.1f} MB of code and "
            f"the layer {package['layer']} of {package['layer_bytes'] / 2**20:,.0f} MB are more than the "
            f"{package['limit_bytes'] / 2**20:.0f} MB of a zip package."
        )
    return note


def _headline(document: Document) -> Text:
    line = (
        f"{document['run']}: {document['architecture']}, {document['model']} on {document['dataset']}, "
        f"{document['workers']} workers × {document['batches']} batches of {document['batch_size']} × "
        f"{document['epochs']} epochs {_machines(document)} — {document['status']}"
    )
    return Text(line, style="bold" if document["status"] == "done" else "bold red")


def _machines(document: Document) -> str:
    launched = document.get("instances")
    return f"on {launched[0]['type']}" if launched else f"at {document['memory_mb']:,} MB"


def _failure(document: Document) -> Text:
    error = document["error"]
    where = f" (worker {error['worker']}, step {error['step']})" if error.get("worker") is not None else ""
    text = Text(f"{error['type']}: {error['message']}{where}", style="red")
    if error.get("hint"):
        text.append(f"\nHint: {error['hint']}", style="default")
    return text


def _figures(documents: Sequence[Document]) -> Table:
    headings = [f"{d['architecture']} ({d['run']})" if len(documents) > 1 else "measured" for d in documents]
    table = plain_table("", *headings, title="Run")
    rows: tuple[tuple[str, Callable[[Document], str]], ...] = (
        ("time, wall s", lambda d: f"{d['seconds']['measured']:,.1f}"),
        ("billed s", lambda d: f"{d['billed_seconds']:,.3f}"),
        ("peak memory MB", _peak_memory),
        ("GB-seconds", lambda d: f"{Decimal(d['gb_seconds']):,.3f}"),
        ("cost USD", lambda d: _money(d["cost"]["total"])),
        ("invocations (cold)", lambda d: f"{d['invocations']} ({d['cold_starts']})"),
        ("instances", lambda d: f"{len(d['instances'])} on {d['device']}" if d.get("instances") else "–"),
        ("bytes to stores", lambda d: f"{d['bytes']['in']:,}"),
        ("bytes from stores", lambda d: f"{d['bytes']['out']:,}"),
        ("updates per worker", lambda d: "–" if d.get("updates") is None else f"{d['updates']:,}"),
        ("replicas equal", lambda d: {True: "yes", False: "no", None: "–"}[d["replicas_equal"]]),
        ("training loss", lambda d: f"{d['loss'][-1]:.4f}" if d["loss"] else "–"),
        ("test accuracy", lambda d: f"{d['accuracy'][-1]:.2%}" if d["accuracy"] else "–"),
    )
    if len(documents) > 1:
        rows += (("modelled time, s", _modelled_seconds), ("modelled cost USD", _modelled_cost))
    for label, value in rows:
        table.add_row(label, *(value(document) for document in documents))
    orchestration = [document.get("orchestration_seconds") for document in documents]
    if any(seconds is not None for seconds in orchestration):
        table.add_row("orchestration s", *("–" if s is None else f"{s:,.3f}" for s in orchestration))
    return table


def _modelled_seconds(document: Document) -> str:
    return _seconds(document["seconds"]["modelled"])


def _modelled_cost(document: Document) -> str:
    modelled = document.get("modelled") or {}
    return _money(modelled["cost"]["total"]) if "cost" in modelled else "–"


def _joins(joins: Sequence[Mapping[str, Any]]) -> Table:
    """Peers that were not there at the beginning."""
    table = plain_table("peer that joined", "first epoch", title="Joins")
    for join in joins:
        table.add_row(str(join["worker"]), "never" if join["epoch"] is None else str(join["epoch"] + 1))
    return table


def _deaths(deaths: Sequence[Mapping[str, Any]]) -> Table:
    """Peers that died while the others went on."""
    table = plain_table("peer that died", "epoch", "found at", "found by", title="Deaths", words=True)
    for death in deaths:
        found_at = datetime.fromtimestamp(death["time"], UTC).isoformat(timespec="milliseconds")
        found_by = death["found_by"] if isinstance(death["found_by"], str) else f"peer {death['found_by']}"
        table.add_row(str(death["worker"]), str(death["epoch"] + 1), found_at, found_by)
    return table


def _scale_in(decisions: Sequence[Mapping[str, Any]]) -> Table:
    """What MLLess's auto-tuner decided; the losses are those it projected for ten seconds later."""
    table = plain_table("after step", "workers", "removed", "r %", "loss with all", "loss with these", title="Scale-in")
    for one in decisions:
        removed = "–" if one["removed"] is None else f"worker {one['removed']}"
        figures = [one["r"], one["loss_base"], one["loss_now"]]
        shown = [f"knee at step {one['knee']}", "", ""] if one["r"] is None else [f"{value:.4g}" for value in figures]
        table.add_row(str(one["step"]), str(one["workers"]), removed, *shown)
    return table


def _peak_memory(document: Document) -> str:
    peak = f"{document['peak_memory_mb']:,}"
    return peak if document.get("instances") else f"{peak} of {document['memory_mb']:,}"


def _bills(documents: Sequence[Document]) -> Table:
    table = plain_table("cost by line, USD", *(document["architecture"] for document in documents), title="Bill")
    items = list(dict.fromkeys(line["item"] for document in documents for line in document["cost"]["lines"]))
    for item in items:
        amounts = [
            sum((Decimal(line["amount"]) for line in d["cost"]["lines"] if line["item"] == item), Decimal(0))
            for d in documents
        ]
        table.add_row(item, *(f"{amount:.8f}" for amount in amounts))
    table.add_section()
    table.add_row("total", *(f"{Decimal(document['cost']['total']):.8f}" for document in documents))
    return table


def plain_table(first: str, *others: str, title: str | None = None, words: bool = False) -> Table:
    """A table whose further columns hold numbers, or words."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="left" if words else "right")
    return table


def _money(amount: str) -> str:
    return f"{Decimal(amount):.6f}"


def _quantity(quantity: str) -> str:
    number = Decimal(quantity)
    return f"{number:,}" if number == number.to_integral_value() else f"{number:,.6f}"
