"""The page of a run with its charts, from its document, trace and metered invocations; as text and as a file."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

from slslab.errors import SlslabError, counted
from slslab.installation import require
from slslab.report import formats, summaries
from slslab.report.cards import rank, short_name
from slslab.report.html.page import make_content, make_page, write_page
from slslab.report.page import Card, Chart, Document, Key, Note, Page, Played
from slslab.report.run import run_page
from slslab.run.metrics import PHASES, Records, Rows, grouped
from slslab.run.run import Run
from slslab_lab.pages import charts, scales
from slslab_lab.pages.communication import Communication, build_communication
from slslab_lab.pages.timeline import Timeline, build_timeline

PAGE = "report.html"
# With more bars of memory than this, show only the maximum of each function.
MEMORY_BARS = 24
# Of more classes the last ones share a colour.
MOST_CLASSES, REST = 7, "other classes"


def leave_page(path: Path, run: Run) -> dict[str, str | None]:
    """Write the page of a finished run; return the file's name, or the error.

    It raises no error: the run's results are valid without a page."""
    try:
        require("altair")
        write_page(path, page_of(run))
    except SlslabError as error:
        return {"file": None, "error": f"{error.message} Hint: {error.hint}"}
    except Exception as error:
        return {"file": None, "error": f"{type(error).__name__}: {error}"}
    return {"file": path.name, "error": None}


def page_of(run: Run, live: str = "") -> str:
    """Return the page of a run; with the URL `live`, the page fetches `content_of` from below it when that changes."""
    return make_page(_described(run), live)


def content_of(run: Run) -> str:
    """Return the changing part of a run's page: its main part and the data of its charts, as HTML."""
    return make_content(_described(run))


def _described(run: Run) -> Page:
    """Return the content of a run's page. An unreadable trace is left out, and the page says so."""
    try:
        events = run.events
    except SlslabError:  # for instance from another version of slslab
        events = None
    modelled = None
    if events is not None and summaries.replayed(run.summary()) is not None:
        from slslab_lab.replay.as_trace import as_trace
        from slslab_lab.replay.modelled import play_on_platform

        modelled = as_trace(play_on_platform(run))
    return describe_run(run.summary(), events, run.invocations, modelled)


def describe_run(document: Document, events: Rows | None, invocations: Records, modelled: Played | None = None) -> Page:
    """Return the page of a run, without missing parts of the document; `modelled` is its trace on Lambda."""
    drawn = (
        sizes_card(document),
        timeline_card(document, events, invocations, modelled),
        phases_card(document),
        shares_card(document),
        learning_card([document], [Key("this run", "1")]),
        memory_card(document, events, invocations),
        communication_card(document, events),
    )
    return run_page(document, filter(None, drawn), _notes(document, events))


def _notes(document: Document, events: Rows | None) -> Iterator[Note]:
    if waits := [event for event in events or () if event["op"] == "host.wait"]:
        waited_s = sum(event["end_ns"] - event["start_ns"] for event in waits) / 1e9
        times = counted(len(waits), "time")
        yield Note(
            f"Invocations waited for this host's memory ({times}, {formats.seconds(waited_s)} in all). Their durations "
            "don't include that, but functions that waited for their answers include it."
        )
    if events is None and document["status"] != "running":
        yield Note("The trace could not be read, so this page lacks the timeline and the communication matrix.")


def phases_card(document: Document) -> Card | None:
    """Return the seconds of each phase per worker."""
    if not document.get("per_worker"):
        return None
    # On a busy host `other` may be some ms below zero, which a bar can't show; the table does.
    bars = [(rank(each), phase, max(0.0, each["phases"][phase])) for each in document["per_worker"] for phase in PHASES]
    clock = "wall time, s" if document.get("instances") else "Lambda time, s"
    chart = charts.stacked_bars("phases", f"Bars: {clock} of each phase, per worker", bars, scales.PHASE_KEYS, clock)
    return Card("card-phases", "Phases per worker", (chart,))


def shares_card(document: Document) -> Card | None:
    """Return which worker has how many samples of each class, if the partition is uneven."""
    shares = document.get("details", {}).get("shares")
    if not shares:
        return None
    classes = [f"class {number}" if number < MOST_CLASSES else REST for number in range(len(shares[0]))]
    counts = grouped(
        ((f"worker {worker}", name), number)
        for worker, own in enumerate(shares)
        for name, number in zip(classes, own, strict=True)
    )
    bars = [(*bar, sum(numbers)) for bar, numbers in counts.items()]
    keys = scales.series_keys(list(dict.fromkeys(classes)))
    chart = charts.stacked_bars("shares", "Bars: samples of each class, per worker", bars, keys, "samples", format=",")
    return Card("card-shares", "Samples of each worker", (chart,))


def sizes_card(document: Document) -> Card | None:
    """Return the run's cost and time with other memory sizes, next to its own."""
    own = summaries.own_size(document)
    if own is None:
        return None
    keys = (Key("this run", "modelled"), Key("other memory sizes", "8"))
    rows = [
        charts.Point(
            keys[size is not own].label,
            size["seconds"],
            float(size["cost"]),
            formats.megabytes(size["memory_mb"]),
            document["lambda"].get("ranges") if size is own else None,
        )
        for size in document["lambda"]["memory_sizes"]
    ]
    caption = (
        "Each point is this run, replayed with another memory size of its training functions: further left is faster, "
        "further down cheaper. Sizes at which functions exceed their time-out are left out, and so are sizes below "
        f"their peak memory as measured here{summaries.build_note(document['torch'])}. The bars are the run's 80 % "
        "ranges; the other sizes are about as uncertain."
    )
    label = "Points: cost and time on AWS with each memory size"
    chart = charts.scatter("sizes", label, rows, keys, ("time on AWS, s", "bill, USD"), caption)
    return Card("card-sizes", "Cost and time on AWS by memory size", (replace(chart, legend=keys),), wide=True)


def learning_card(documents: Sequence[Document], keys: Sequence[Key]) -> Card | None:
    """Return training loss and test accuracy per epoch, a line for each run."""
    drawn = []
    for name, title in (("loss", "training loss, nats"), ("accuracy", "test accuracy, %")):
        points = [
            (key.label, number, value)
            for key, document in zip(keys, documents, strict=True)
            for number, value in enumerate(document.get(name) or (), 1)
        ]
        if points:
            label, titles = f"Lines: {title.partition(',')[0]} per epoch", ("epoch", title)
            drawn.append(charts.lines(name, label, points, keys, titles, percent=name == "accuracy"))
    return Card("card-learning", "Loss and accuracy", tuple(drawn)) if drawn else None


def memory_card(document: Document, events: Rows | None, invocations: Records) -> Card | None:
    """Return the peak memory of each function and worker against its limit; for instances, their usage."""
    launched = document.get("instances") or ()
    owner = {event["invocation"]: event["worker"] for event in events or () if event["worker"] >= 0}
    run = str(document["run"])
    used: list[tuple[tuple[str, int], tuple[int, int | None]]] = [
        (
            (short_name(each["function"], run), owner.get(each["request_id"], -1)),
            (each["max_memory_mb"], each["memory_mb"]),
        )
        for each in invocations
    ]
    used += [((each["type"], each["worker"]), (each["peak_memory_mb"], None)) for each in launched]
    if not used:
        return None
    peaks, caption = grouped(used), "Max Memory Used by function and worker."
    if len(peaks) > MEMORY_BARS:
        peaks = grouped(((name, -1), peak) for (name, _), peak in used)
        caption = "Max Memory Used by function: the largest of all its workers."
    rows = [
        (name if worker < 0 else f"{name} {worker}", *max(own, key=itemgetter(0)))
        for (name, worker), own in sorted(peaks.items())
    ]
    if launched:
        caption = "Resident memory of each instance; an instance type's memory is not enforced here."
    chart = charts.memory_bars("Bars: peak memory in MB, with a mark at the memory size", rows, caption)
    return Card("card-memory", "Memory against the limit", (chart,))


def timeline_card(
    document: Document, events: Rows | None, invocations: Records, modelled: Played | None
) -> Card | None:
    """Return each worker's activity over time, on Lambda and on this host."""
    there, platform = modelled and build_timeline(*modelled), summaries.platform_of(document) or "AWS"
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
    chart = charts.heat_map(label, communication)
    return Card("card-communication", "Communication", (chart,), notes=(_about(communication),))


def _about(communication: Communication) -> str:
    stores = " and ".join(dict.fromkeys(transfer.store for transfer in communication.transfers))
    text = (
        f"Bytes received by each worker, by the worker that made them; they went through the {stores}. The driver puts "
        "minibatches and gets results. The colour scale is the square root."
    )
    if communication.unknown_bytes:
        text += f" {formats.size(communication.unknown_bytes)} more were received from makers that aren't in the trace."
    return f"{text} {communication.grouped}".strip()
