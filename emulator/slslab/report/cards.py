"""Cards of runs, services and sessions of tests, made from their documents, without charts, which pages add."""

from collections.abc import Mapping
from datetime import UTC, datetime

from slslab.aws.limits import MB
from slslab.errors import counted
from slslab.report import formats
from slslab.report.formats import percent
from slslab.report.page import WORDS, Card, Cell, Document, Row, Table
from slslab.report.summaries import (
    cost_text,
    cpu_share_enforced,
    figure_text,
    half_widths,
    platform_of,
    processor_note,
    replayed,
)
from slslab.run.metrics import PHASES
from slslab.run.oversubscription import OVERSUBSCRIBED

# As a REPORT line names its figures, except the last, and as the document does.
REPORTED = (
    ("Duration, ms", "duration_ms"),
    ("Init Duration, ms", "init_ms"),
    ("Billed Duration, ms", "billed_ms"),
    ("Max Memory Used, MB", "max_memory_mb"),
    ("GPU memory, MB", "max_gpu_memory_mb"),
)
SPREAD = ("min", "median", "max")
# From this share of the limit on, memory use is marked.
NEAR = 0.9


def rank(worker: Document) -> str:
    """Return a worker's name."""
    return "unknown" if worker["worker"] < 0 else f"worker {worker['worker']}"


def faults_card(document: Document) -> Card | None:
    """Return what each fault of the plan did: how often it happened, where first, how long it held workers up."""
    rows = []
    for fault in document.get("faults") or ():
        at = [f"{name} {fault[name]}" for name in ("worker", "epoch", "step") if fault["times"] and fault[name] >= 0]
        where = ", ".join([*at, fault["phase"]]) if at else f"function {fault['function']}"
        where = where if fault["times"] else "did not happen"
        held_up = f"{fault['held_up_seconds']:,.3f}"
        rows.append((f"{fault['number']} {fault['kind']}", f"{fault['times']:,}", where, held_up))
    table = Table(("fault", "times", "first at", "held up, s"), rows)
    return Card("card-faults", "Faults of the plan", tables=(table,)) if rows else None


def functions_card(document: Document) -> Card | None:
    """Return what each function of a service or test session did, and what that costs on Lambda."""
    functions = document.get("functions")
    if not functions:
        return None
    durations = (*(f"{key} ms" for key in SPREAD), "Lambda: median ms")
    columns = ("function", "memory size", "invocations", "cold", "errors", *durations, "billed s", "peak memory")
    rows = []
    for each in functions:
        used = f"{percent(each['peak_memory_mb'] / each['memory_mb'])} of it"
        row = _function(each["function"], formats.megabytes(each["memory_mb"]), each, used)
        rows.append((*row, cost_text(each["predicted"])))
    total = {**document, "errors": sum(each["errors"] for each in functions)}
    totals = [(*_function("all", "", total), "")] if "reports" in document else ()
    spare = ("min ms", "peak memory", "memory size", "max ms")
    table = Table((*columns, "Lambda: cost"), rows, totals, dispensable=spare)
    return Card("card-functions", "Functions, as this host ran them and as Lambda would", (), (table,), wide=True)


def _function(name: str, memory: str, figures: Document, about: str = "") -> Row:
    return (
        name,
        memory,
        *(formats.significant(figures[key]) for key in ("invocations", "cold_starts", "errors")),
        *(f"{figures['reports']['duration_ms'][key]:,.2f}" for key in SPREAD),
        figure_text(figures["predicted"], "duration_ms"),
        f"{figures['billed_seconds']:,.3f}",
        Cell(formats.megabytes(figures["peak_memory_mb"]), about),
    )


def phases_card(document: Document) -> Card | None:
    """Return seconds per worker and phase, on the Lambda clock (wall time for instances), and what each worker used."""
    per_worker = document.get("per_worker")
    if not per_worker:
        return None

    def row(name: str, figures: Document) -> Row:
        spent = (*(figures["phases"][phase] for phase in PHASES), figures["billed_seconds"])
        used = (f"{figures[key]:,}" for key in ("invocations", "peak_memory_mb"))
        return (name, *(f"{value:,.3f}" for value in spent), *used)

    table = Table(
        ("worker", *(f"{phase} s" for phase in PHASES), "billed s", "invocations", "peak MB"),
        [row(rank(worker), worker) for worker in per_worker],
        (row("all", document),),
        folded=True,
        dispensable=("invocations", "peak MB", "other s", "update s", "init s"),
    )
    return Card("card-phases", "Phases per worker", tables=(table,))


def modelled_card(document: Document) -> Card | None:
    """Return what the ranges of the replayed trace come from, and what it was played on."""
    found = replayed(document)
    if found is None:
        return None
    of_cost = dict(half_widths(found, "cost"))
    sources = Table(
        ("the range comes from", "of the seconds", "of the cost"),
        [
            (name, *(formats.MISSING if each is None else percent(each) for each in (width, of_cost.get(name))))
            for name, width in half_widths(found)
        ],
        caption="Half-widths of the 80 % ranges, with only one source of error each",
    )
    note = (
        f"Modelled on the profile {found['profile']['name']} of {found['profile']['date']}. {found['critical_path']} "
        f"Of the billed time {percent(found['waiting_share'])} is waiting (modelled)."
    )
    return Card(
        "card-modelled",
        f"Modelled on {platform_of(document) or 'Lambda'}",
        tables=(sources,) if sources.rows else (),
        notes=tuple(filter(None, (note, processor_note(document)))),
    )


def invocations_card(document: Document) -> Card | None:
    """Return a summary of each figure in the invocations' REPORT lines."""
    reports = document.get("reports")
    if not reports or not reports["endings"]:
        return None
    rows = [(label, *(f"{reports[name][key]:,.2f}" for key in SPREAD)) for label, name in REPORTED if reports.get(name)]
    endings = ", ".join(f"{number:,} {ending}" for ending, number in reports["endings"].items())
    return Card(
        "card-invocations", "Invocations", (), (Table(("REPORT", *SPREAD), rows),), notes=(f"Endings: {endings}.",)
    )


def traffic_card(document: Document) -> Card | None:
    """Return messages and bytes of the training protocol, and of its overheads; for a service, its requests."""
    counts = document.get("counts")
    if not counts:
        return None
    if "overheads" not in document:
        requests = [(name, f"{number:,}") for name, number in counts.items()]
        return Card("card-traffic", "Requests", (), (Table(("operation", "requests"), requests),))
    sides = counts, document["overheads"]["counts"]
    rows = [(name, *(f"{side.get(name, 0):,}" for side in sides)) for name in sorted({*sides[0], *sides[1]})]
    moved = [
        (label, *(f"{side['bytes'][way]:,}" for side in (document, document["overheads"])))
        for way, label in (("in", "bytes sent"), ("out", "bytes received"))
    ]
    return Card("card-traffic", "Messages and bytes", (), (Table(("operation", "protocol", "overheads"), rows, moved),))


def learning_card(document: Document) -> Card | None:
    """Return training loss and test accuracy per epoch."""
    loss, accuracy = document.get("loss") or [], document.get("accuracy") or []
    rows = [
        (
            str(number + 1),
            f"{loss[number]:.4f}" if number < len(loss) else formats.MISSING,
            formats.share(accuracy[number]) if number < len(accuracy) else formats.MISSING,
        )
        for number in range(max(len(loss), len(accuracy)))
    ]
    table = Table(("epoch", "training loss", "test accuracy"), rows, folded=True)
    return Card("card-learning", "Loss and accuracy", tables=(table,)) if rows else None


def host_card(document: Document) -> Card | None:
    """Return what the host was, and which of Lambda's limits it enforced."""
    host = document.get("host")
    if not host:
        return None
    launched = document.get("instances")
    if host["cores"] is None:
        share = "not recorded"
    elif launched:
        share = f"not enforced: instances have this host's vCPUs and memory, unlike {launched[0]['type']}"
    else:
        shares = {True: "enforced", False: "not enforced on this host", None: "no function ran"}
        share = shares[cpu_share_enforced(document)]
    facts = [
        *([("host", f"{host['name']}, {host['processors']}")] if "name" in host else []),
        ("cores", formats.significant(host["cores"])),
        ("Lambda's CPU share", share),
        ("host delay", _delay(document)),
        ("confinement", document.get("confinement") or "not recorded"),
        ("environments", str(document.get("environment", ""))),
        *((f"node {node['name']}", _node(node)) for node in host.get("nodes", ())),
    ]
    if document.get("threads"):
        facts.append(("threads a worker", str(document["threads"])))
    package = document.get("package")
    if package and package["needs_container_image"] and not launched and not platform_of(document):
        # In MB of 2^20 bytes, as AWS names the limit.
        size, limit = (package["unzipped_bytes"] + package["layer_bytes"]) / MB, package["limit_bytes"] / MB
        facts.append(
            (
                "package",
                f"needs a container image on AWS: {formats.megabytes(size)} with the layer {package['layer']} exceeds "
                f"the {formats.megabytes(limit)} limit for zip packages",
            )
        )
    return Card("card-host", "Host and what it enforced", facts=tuple(facts))


def _node(node: Document) -> str:
    lost = "; it was lost" if node["lost"] else ""
    size = f"{counted(node['cores'], 'core')}, {node['memory_mb']:,} MB"
    return f"{size}, its clock within {node['clock_error_ms']:g} ms{lost}"


def _delay(document: Document) -> str:
    host, of = document["host"], "instances" if document.get("instances") else "functions"
    delay = formats.seconds(host["delay_seconds"])
    if not host["oversubscribed"]:
        return delay
    share = percent(OVERSUBSCRIBED)
    return f"{delay}: this machine was overloaded. The {of} waited for it for more than {share} of their time"


def present_card(document: Document) -> Card | None:
    """Return each worker's last operation, and the running invocations with their memory against the limit."""
    if "now" not in document:
        return None
    tables = tuple(table for table in (_present_workers(document), _running(document)) if table is not None)
    if not tables:
        return None
    return Card(
        "card-now",
        "Now",
        tables=tables,
        notes=("For each worker, the operation that ended last; the current one is recorded at its end.",),
        wide=True,
    )


def _present_workers(document: Document) -> Table | None:
    rows = [
        (
            f"worker {worker['worker']}",
            Cell("running", mood="good") if worker["under_way"] else "between invocations",
            _counted(worker["epoch"]),
            _counted(worker["step"]),
            f"{worker['op']} ({worker['phase']})",
            formats.seconds(worker["seconds_ago"]),
        )
        for worker in document["now"]["workers"]
    ]
    columns = ("worker", "state", "epoch", "minibatch", "latest operation", "ended ago")
    return Table(columns, rows, caption="Workers", words=frozenset({0, 1, 4})) if rows else None


def _running(document: Document) -> Table | None:
    rows = [
        (
            short_name(invocation["function"], str(document["run"])),
            _counted(invocation["worker"], 0),
            formats.seconds(invocation["seconds"]),
            Cell(
                formats.megabytes(invocation["peak_memory_mb"]),
                mood="bad" if invocation["peak_memory_mb"] >= NEAR * invocation["memory_mb"] else "",
            ),
            formats.megabytes(invocation["memory_mb"]),
        )
        for invocation in document["now"]["invocations"]
    ]
    columns = ("function", "worker", "for", "peak memory so far", "memory size")
    return Table(columns, rows, caption="Running invocations") if rows else None


def _counted(number: int, first: int = 1) -> str:
    return formats.MISSING if number < 0 else str(number + first)


def short_name(function: str, run: str) -> str:
    """Return a function's name without its run's id."""
    return function.removeprefix(f"slslab-{run}").strip("-") or "worker"


def details_card(document: Document) -> Card | None:
    """Return a table for each of an architecture's own lists: of joins, failed peers, decisions to scale in ..."""
    tables = []
    for name, entries in document.get("details", {}).items():
        if isinstance(entries, list) and entries and isinstance(entries[0], Mapping):
            columns, title = [column.replace("_", " ") for column in entries[0]], name.replace("_", " ").capitalize()
            rows = [[_detail(column, entry.get(column)) for column in entries[0]] for entry in entries]
            tables.append(Table(columns, rows, caption=title, words=WORDS, dispensable=()))
    return Card("card-details", "What happened to the workers", tables=tuple(tables)) if tables else None


def _detail(name: str, value: object) -> str:
    match name, value:
        case "epoch", int():
            return str(value + 1)
        case "time", float():
            return datetime.fromtimestamp(value, UTC).isoformat(timespec="milliseconds")
        case _, float():
            return f"{value:.4g}"
    return formats.MISSING if value is None else str(value)


def versions_card(document: Document) -> Card | None:
    """Return the versions of the stack's parts, and the trained parameters."""
    facts = [(name, str(text)) for name, text in document.get("stack", {}).items()]
    facts += [("torch", document["torch"])] if document.get("torch") else []
    if document.get("parameters"):
        facts.append(
            ("parameters", f"{document['parameters']:,} ({formats.size(document['gradient_bytes'])} a gradient)")
        )
    if document.get("parameters_sha256"):
        facts.append(("SHA-256 of the parameters", document["parameters_sha256"]))
    return Card("card-versions", "Parts and result", facts=tuple(facts)) if facts else None
