"""Cards of a run's trace: the timeline, and bytes between workers."""

from slslab.report import formats
from slslab.report.page import Card, Chart, Document, Played
from slslab.report.summaries import platform_of
from slslab.run.metrics import Records, Rows, grouped
from slslab_lab.pages import charts
from slslab_lab.pages.communication import Communication, build_communication
from slslab_lab.pages.measures import short_name
from slslab_lab.pages.timeline import Timeline, build_timeline


def timeline_card(
    document: Document, events: Rows | None, invocations: Records, modelled: Played | None
) -> Card | None:
    """Return each worker's activity over time, on Lambda and on this host."""
    there, platform = modelled and build_timeline(*modelled), platform_of(document) or "AWS"
    here = build_timeline(events or (), invocations, document.get("instances") or ())
    drawn = (
        _timeline("timeline-modelled", f"On {platform}, modelled", f"time on {platform}, s", document, there),
        _timeline("timeline", "On this host, measured", "wall time on this host, s", document, here),
    )
    shown = tuple(chart for chart in drawn if chart is not None)
    return Card("card-timeline", "Timeline", shown, wide=True, switched=len(shown) > 1) if shown else None


def _timeline(identifier: str, name: str, times: str, document: Document, timeline: Timeline | None) -> Chart | None:
    if timeline is None:
        return None
    hidden = f" {timeline.left_out:,} more rows are not drawn." if timeline.left_out else ""
    caption = f"{timeline.thinned}{hidden} Drag to move, Shift and wheel to magnify, double click to reset.".strip()
    label = f"Timeline: phases of each worker, {times}"
    return charts.gantt(
        identifier, label, timeline, lambda name: short_name(name, str(document["run"])), times, caption, name
    )


def communication_card(document: Document, events: Rows | None) -> Card | None:
    """Return bytes between workers, by the causes of gets in the trace."""
    workers = document.get("workers") or document.get("plan", {}).get("workers")
    communication = build_communication(events, workers) if events and workers else None
    if communication is None or not communication.transfers:
        return None
    label = "Heat map: bytes that each worker (column) received from each worker (row)"
    return Card(
        "card-communication",
        "Communication",
        (charts.heat_map(label, communication, _by_store(communication)),),
        notes=(_about(communication),),
    )


def _by_store(communication: Communication) -> dict[tuple[str, str], str]:
    texts = grouped(
        ((each.source, each.target), f"{each.store}: {formats.size(each.bytes)} in {each.messages:,}")
        for each in communication.transfers
    )
    return {ends: "; ".join(parts) for ends, parts in texts.items()}


def _about(communication: Communication) -> str:
    stores = " and ".join(dict.fromkeys(transfer.store for transfer in communication.transfers))
    text = (
        f"Bytes received by each worker, by the worker that made them; they went through the {stores}. The driver puts "
        "minibatches and gets results. The colour scale is the square root."
    )
    if communication.unknown_bytes:
        text += f" {formats.size(communication.unknown_bytes)} more were received from makers that aren't in the trace."
    return f"{text} {communication.grouped}".strip()
