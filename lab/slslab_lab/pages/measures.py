"""Cards of a run's figures: activity, phases, memory sizes, bill, learning, memory."""

from collections import Counter
from dataclasses import replace

from slslab.report import cards, formats, summaries
from slslab.report.bills import bill_table
from slslab.report.cards import rank
from slslab.report.page import Card, Cell, Document, Key, Table
from slslab.run.metrics import PHASES, Records, Rows
from slslab_lab.pages import charts, scales

# With more bars of memory than this, show only the maximum of each function.
MEMORY_BARS = 24
# Of more classes the last ones share a colour.
MOST_CLASSES, REST = 7, "other classes"
# From this share of the limit on, memory use is marked.
NEAR = 0.9


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


def phases_card(document: Document) -> Card | None:
    """Return the seconds of each phase per worker."""
    if (card := cards.phases_card(document)) is None:
        return None
    # On a busy host `other` may be some ms below zero, which a bar can't show; the table does.
    bars = [(rank(each), phase, max(0.0, each["phases"][phase])) for each in document["per_worker"] for phase in PHASES]
    clock = "wall time, s" if document.get("instances") else "Lambda time, s"
    chart = charts.stacked_bars("phases", f"Bars: {clock} of each phase, per worker", bars, scales.PHASE_KEYS, clock)
    return replace(card, charts=(chart,))


def shares_card(document: Document) -> Card | None:
    """Return which worker has how many samples of each class, if the partition is uneven."""
    shares = document.get("details", {}).get("shares")
    if not shares:
        return None
    classes = [f"class {number}" if number < MOST_CLASSES else REST for number in range(len(shares[0]))]
    counts: Counter[tuple[str, str]] = Counter()
    for worker, own in enumerate(shares):
        for name, number in zip(classes, own, strict=True):
            counts[f"worker {worker}", name] += number
    bars, keys = [(*bar, number) for bar, number in counts.items()], scales.series_keys(list(dict.fromkeys(classes)))
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


def bill_card(document: Document) -> Card | None:
    """Return the bill line by line, with the price of this host's usage behind it, or alone without a model."""
    cost = document.get("cost")
    if not cost:
        return None
    found = summaries.replayed(document) or summaries.predicted(document)
    if found is not None:
        shown, title = found["cost"], f"Bill ({summaries.region(found)}, modelled)"
        behind: tuple[Table, ...] = (bill_table(cost, summaries.HOST_PRICED.capitalize(), folded=True),)
    else:
        shown, title = cost, summaries.HOST_PRICED.capitalize()
        behind = ()
    book, statuses = shown["book"], ", ".join(dict.fromkeys(line["status"] for line in shown["lines"]))
    return Card(
        "card-bill",
        title,
        tables=(bill_table(shown), *behind),
        notes=(f"Prices of {book['name']}, {book['date']}: {statuses}.",),
    )


def learning_card(document: Document) -> Card | None:
    """Return training loss and test accuracy per epoch."""
    if (card := cards.learning_card(document)) is None:
        return None
    lines = []
    for name, title, colour in (("loss", "training loss, nats", "1"), ("accuracy", "test accuracy, %", "3")):
        if values := document.get(name):
            series = title.partition(",")[0]
            points = [(series, number, value) for number, value in enumerate(values, 1)]
            label, keys = f"Line: {series} per epoch", (Key(series, colour),)
            lines.append(charts.lines(name, label, points, keys, ("epoch", title), percent=name == "accuracy"))
    return replace(card, charts=tuple(lines))


def memory_card(document: Document, events: Rows | None, invocations: Records) -> Card | None:
    """Return the peak memory of each function and worker against its limit; for instances, their usage."""
    launched = document.get("instances") or ()
    owner = {event["invocation"]: event["worker"] for event in events or () if event["worker"] >= 0}
    peaks: dict[tuple[str, int], tuple[int, int | None]] = {}
    for record in invocations:
        function = short_name(record["function"], str(document["run"])), owner.get(record["request_id"], -1)
        peaks[function] = max(record["max_memory_mb"], peaks.get(function, (0, 0))[0]), record["memory_mb"]
    for instance in launched:
        peaks[instance["type"], instance["worker"]] = instance["peak_memory_mb"], None
    if not peaks:
        return None
    caption = "Max Memory Used by function and worker."
    if len(peaks) > MEMORY_BARS:
        # The largest peak comes last, so it is kept.
        ascending = sorted(peaks.items(), key=lambda peak: peak[1][0])
        peaks = {(name, -1): peak for (name, _), peak in ascending}
        caption = "Max Memory Used by function: the largest of all its workers."
    rows = [
        (name if worker < 0 else f"{name} {worker}", peak, limit)
        for (name, worker), (peak, limit) in sorted(peaks.items())
    ]
    if launched:
        caption = "Resident memory of each instance; an instance type's memory is not enforced here."
    chart = charts.memory_bars("Bars: peak memory in MB, with a mark at the memory size", rows, caption)
    return Card("card-memory", "Memory against the limit", (chart,))


def short_name(function: str, run: str) -> str:
    """Return a function's name without its run's id."""
    return function.removeprefix(f"slslab-{run}").strip("-") or "worker"
