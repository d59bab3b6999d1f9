"""Cards of what a run's trace shows: the timeline, who sent bytes to whom, and messages."""

from collections import defaultdict

from slslab.metrics import Records, Rows
from slslab.reports.html import charts, formats, scales
from slslab.reports.html.communication import Communication, build_communication
from slslab.reports.html.measures import short_name
from slslab.reports.html.parts import Card, Cell, Document, Table
from slslab.reports.html.timeline import build_timeline


def timeline_card(document: Document, events: Rows | None, invocations: Records) -> Card | None:
    """What each worker did when."""
    found = build_timeline(events or (), invocations, document.get("instances") or ())
    if found is None:
        return None
    hidden = f" {found.left_out:,} more rows are not drawn." if found.left_out else ""
    caption = f"{found.thinned}{hidden} Drag to move, Shift and wheel to magnify, double click to go back.".strip()
    label = "Timeline: phases of each worker over wall time in seconds"
    chart = charts.gantt("timeline", label, found, lambda name: short_name(name, str(document["run"])), caption)
    return Card("card-timeline", "Timeline", (chart,), wide=True)


def communication_card(document: Document, events: Rows | None) -> Card | None:
    """Bytes between workers, by the causes of gets in the trace."""
    workers = document.get("workers") or document.get("plan", {}).get("workers")
    found = build_communication(events, workers) if events and workers else None
    if found is None or not found.transfers:
        return None
    label = "Heat map: bytes that each worker (column) got of what each worker (row) had made"
    return Card(
        "card-communication",
        "Communication",
        (charts.heat_map("communication", label, found, _by_store(found)),),
        (_transfers(found),),
        notes=(_about(found),),
    )


def _by_store(found: Communication) -> dict[tuple[str, str], str]:
    texts: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in found.transfers:
        texts[one.source, one.target].append(f"{one.store}: {formats.size(one.bytes)} in {one.messages:,}")
    return {ends: "; ".join(parts) for ends, parts in texts.items()}


def _transfers(found: Communication) -> Table:
    rows = [
        (
            one.source,
            one.target,
            one.store,
            f"{one.messages:,}",
            Cell(formats.size(one.bytes), title=f"{one.bytes:,} B"),
        )
        for one in sorted(found.transfers, key=lambda one: -one.bytes)
    ]
    return Table(("from", "to", "through", "gets", "bytes"), rows, words=frozenset({0, 1, 2}), folded=True)


def _about(found: Communication) -> str:
    stores = " and ".join(dict.fromkeys(one.store for one in found.transfers))
    text = (
        f"Bytes that were got, by who had made them; they went through the {stores}. The driver puts minibatches and "
        "gets results. Colours are by the square root."
    )
    if found.unknown_bytes:
        text += f" {formats.size(found.unknown_bytes)} more were got of what nothing in the trace made."
    return f"{text} {found.grouped}".strip()


def traffic_card(document: Document) -> Card | None:
    """Messages and bytes of the training protocol, and of everything beside it."""
    counts = document.get("counts")
    if counts is None:
        return None
    beside = document["overheads"]
    moved = [
        (f"worker {one['worker']}", name, one["bytes"][way] / 1e6)
        for one in document.get("per_worker", ())
        if one["worker"] >= 0
        for way, name in (("in", "to stores"), ("out", "from stores"))
    ]
    chart = charts.grouped_bars(
        "traffic", "Bars: megabytes to and from stores, per worker", moved,
        scales.series_keys(["to stores", "from stores"]), "bytes, MB",
    )  # fmt: skip
    rows = [
        (operation, f"{counts.get(operation, 0):,}", f"{beside['counts'].get(operation, 0):,}")
        for operation in sorted({*counts, *beside["counts"]})
    ]
    rows += [
        (meaning, f"{document['bytes'][way]:,}", f"{beside['bytes'][way]:,}")
        for way, meaning in (("in", "bytes to stores"), ("out", "bytes from stores"))
    ]
    table = Table(("operation", "protocol", "beside it"), rows)
    return Card("card-traffic", "Messages and bytes", (chart,) if moved else (), (table,))
