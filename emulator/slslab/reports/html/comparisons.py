"""What the page of a comparison shows: two runs or more, each beside the first one."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from string import ascii_uppercase

from slslab.metrics import PHASES, Rows
from slslab.reports.html import charts, formats, scales
from slslab.reports.html.intervals import CONFIDENCE, Interval, step_samples, welch, worker_samples
from slslab.reports.html.parts import Card, Caution, Cell, Document, Figure, Key, Page, Table
from slslab.reports.html.runs import NAMES

Value = Callable[[Document], float | None]
Text = Callable[[float | None], str]


def describe_comparison(documents: Sequence[Document], traces: Sequence[Rows | None]) -> Page:
    """The page of runs side by side, in their order; `traces` has each one's events, None where there are none."""
    names = [f"{_letter(number)} {_name(document)}" for number, document in enumerate(documents)]
    keys = scales.series_keys(names)
    cards = (
        _differences(documents, traces, names),
        _figures(documents, names),
        _phases(documents, names),
        _bill(documents, names, keys),
        *_learning(documents, keys),
        _memory(documents, names),
        _conditions(documents, names),
    )
    return Page(
        title=" beside ".join(dict.fromkeys(_name(document) for document in documents)),
        subtitle="comparison of runs",
        cards=tuple(card for card in cards if card is not None),
        chips=tuple(f"{name}: {document['run']}" for name, document in zip(names, documents, strict=True)),
        warnings=tuple(_warnings(documents, names)),
        figures=_headline(documents) if len(documents) == 2 else (),
    )


# What is compared of whole runs: a title, the value, and how it is written.
FIGURES: tuple[tuple[str, Value, Text], ...] = (
    ("first to last, s", lambda d: d["seconds"].get("span"), formats.significant),
    ("billed time, s", lambda d: d["billed_seconds"], formats.significant),
    ("GB-seconds", lambda d: float(d["gb_seconds"]), formats.significant),
    ("cost, USD", lambda d: float(d["cost"]["total"]), formats.significant),
    ("modelled time, s", lambda d: d["seconds"]["modelled"], formats.significant),
    ("modelled cost, USD", lambda d: _modelled_cost(d), formats.significant),
    ("peak memory, MB", lambda d: d["peak_memory_mb"], formats.significant),
    ("bytes to stores, MB", lambda d: d["bytes"]["in"] / 1e6, formats.significant),
    ("bytes from stores, MB", lambda d: d["bytes"]["out"] / 1e6, formats.significant),
    ("invocations", lambda d: d["invocations"], formats.significant),
    ("cold starts", lambda d: d["cold_starts"], formats.significant),
    ("updates a worker", lambda d: d.get("updates"), formats.significant),
    ("training loss", lambda d: d["loss"][-1] if d["loss"] else None, formats.significant),
    ("test accuracy", lambda d: d["accuracy"][-1] if d["accuracy"] else None, formats.share),
)


def _figures(documents: Sequence[Document], names: Sequence[str]) -> Card:
    rows = []
    for title, value, text in FIGURES:
        values = [value(document) for document in documents]
        if all(one is None for one in values):
            continue
        first = values[0]
        cells: list[str | Cell] = [title, text(first)]
        cells += [Cell(text(one), formats.difference(_relative(first, one))) for one in values[1:]]
        rows.append(cells)
    note = f"Beneath each number stands its difference from {names[0]}."
    return Card("card-figures", "Figures of the runs", (), (Table(("", *names), rows),), notes=(note,))


def _differences(documents: Sequence[Document], traces: Sequence[Rows | None], names: Sequence[str]) -> Card | None:
    """Differences of means over minibatches and workers, with Welch's intervals."""
    samples = [
        {
            **{f"{name} a minibatch, s": values for name, values in step_samples(events or ()).items()},
            **worker_samples(document),
        }
        for document, events in zip(documents, traces, strict=True)
    ]
    found, tables = [], []
    for number in range(1, len(documents)):
        intervals = {
            name: interval
            for name, values in samples[0].items()
            if (interval := welch(values, samples[number].get(name, ()))) is not None
        }
        if not intervals:
            continue
        rows = [
            (name, one.difference / one.first, one.low / one.first, one.high / one.first)
            for name, one in intervals.items()
            if one.first
        ]
        if rows:
            title = f"difference from {names[0]}, %"
            label = f"Intervals: {names[number]} against {names[0]}"
            found.append(charts.differences(f"differences-{number}", label, rows, title, names[number]))
        tables.append(
            Table(
                ("mean", names[0], names[number], "difference", f"{CONFIDENCE:.0%} interval", "samples"),
                [_interval(name, one) for name, one in intervals.items()],
            )
        )
    if not tables:
        return None
    note = (
        f"Seconds on the Lambda clock and MB; {CONFIDENCE:.0%} intervals of the difference of means (Welch). "
        "Minibatches of one run are no repeated runs: what differs from run to run is not in the interval."
    )
    return Card(
        "card-differences", "Differences and their intervals", tuple(found), tuple(tables), notes=(note,), wide=True
    )


def _interval(name: str, one: Interval) -> tuple[str | Cell, ...]:
    span = f"{_signed(one.low)} … {_signed(one.high)}"
    mood = "" if one.significant else "muted"
    return (
        name,
        formats.significant(one.first),
        formats.significant(one.second),
        Cell(_signed(one.difference), formats.difference(one.difference / one.first if one.first else None)),
        Cell(span, "" if one.significant else "zero is within", mood=mood),
        f"{one.samples[0]:,} and {one.samples[1]:,}",
    )


def _phases(documents: Sequence[Document], names: Sequence[str]) -> Card:
    rows = [
        (name, phase, max(0.0, document["phases"][phase]) / document["workers"])
        for name, document in zip(names, documents, strict=True)
        for phase in PHASES
    ]
    label = "Bars: seconds of each phase per run, the mean of its workers"
    chart = charts.stacked_bars("phases", label, rows, scales.PHASE_KEYS, "Lambda time a worker, s")
    return Card("card-phases", "Phases, the mean of workers", (chart,))


def _bill(documents: Sequence[Document], names: Sequence[str], keys: Sequence[Key]) -> Card:
    items = list(dict.fromkeys(line["item"] for document in documents for line in document["cost"]["lines"]))
    amounts = {
        (item, name): sum(
            (Decimal(line["amount"]) for line in document["cost"]["lines"] if line["item"] == item), Decimal(0)
        )
        for item in items
        for name, document in zip(names, documents, strict=True)
    }
    shown = [item for item in items if any(amounts[item, name] for name in names)]
    rows = [(scales.short_line(item), name, float(amounts[item, name])) for item in shown for name in names]
    chart = charts.grouped_bars("bill", "Bars: USD of each line, per run", rows, keys, "amount, USD", axis_format="~g")
    table = Table(
        ("line, USD", *names),
        [(item, *(f"{amounts[item, name]:.8f}" for name in names)) for item in items],
        ("total", *(f"{Decimal(document['cost']['total']):.8f}" for document in documents)),
    )
    return Card("card-bill", "Cost by line", (chart,) if rows else (), (table,))


def _learning(documents: Sequence[Document], keys: Sequence[Key]) -> list[Card]:
    found = []
    for name, title, percent in (("loss", "training loss, nats", False), ("accuracy", "test accuracy, %", True)):
        rows = [
            (key.label, number, value)
            for key, document in zip(keys, documents, strict=True)
            for number, value in enumerate(document[name], 1)
        ]
        if rows:
            chart = charts.lines(
                name, f"Lines: {title} per epoch, per run", rows, keys, ("epoch", title), percent=percent
            )
            found.append(Card(f"card-{name}", title.partition(",")[0].capitalize(), (chart,)))
    return found


def _memory(documents: Sequence[Document], names: Sequence[str]) -> Card:
    rows = [
        (name, document["peak_memory_mb"], None if document.get("instances") else document["memory_mb"])
        for name, document in zip(names, documents, strict=True)
    ]
    chart = charts.bars_to_limit(
        "memory",
        "Bars: peak memory per run, with a mark at the memory size",
        rows,
        "peak memory, MB",
        "memory size, MB",
    )
    return Card("card-memory", "Memory against the limit", (chart,))


def _conditions(documents: Sequence[Document], names: Sequence[str]) -> Card | None:
    """What the plans differ in, and the parts of the stack."""
    plans = [{**document["plan"], **document["plan"].get("options", {}), **document["stack"]} for document in documents]
    keys = dict.fromkeys(key for plan in plans for key in plan if key not in ("run", "options"))
    differing = [key for key in keys if len({str(plan.get(key)) for plan in plans}) > 1]
    rows = [(key.replace("_", " "), *(str(plan.get(key, "–")) for plan in plans)) for key in differing]
    words = frozenset(range(len(names) + 1))
    return Card("card-plans", "What else differs", (), (Table(("", *names), rows, words=words),)) if rows else None


def _headline(documents: Sequence[Document]) -> tuple[Figure, ...]:
    found = []
    for title in ("cost, USD", "first to last, s", "billed time, s", "peak memory, MB", "bytes to stores, MB"):
        value, text = next((value, text) for name, value, text in FIGURES if name == title)
        first, second = (value(document) for document in documents)
        if first is None or second is None:
            continue
        basis = "exact" if title.startswith("bytes") else "measured"
        name, _, unit = title.partition(", ")
        note = f"{text(first)} → {text(second)} {unit}"
        found.append(Figure(name, formats.difference(_relative(first, second)), basis, note))
    first, second = (document["accuracy"][-1] if document["accuracy"] else None for document in documents)
    if first is not None and second is not None:
        points = f"{100 * (second - first):+.2f} points"
        found.append(Figure("test accuracy", points, "measured", f"{formats.share(first)} → {formats.share(second)}"))
    return tuple(found)


def _warnings(documents: Sequence[Document], names: Sequence[str]) -> list[Caution]:
    found = []
    for name, document in zip(names, documents, strict=True):
        if document["status"] != "done":
            found.append(Caution(f"{name} has {document['status']}.", "bad"))
        if document["host"]["oversubscribed"]:
            found.append(Caution(f"{name} was oversubscribed: its waits are this host's, not Lambda's."))
        if document.get("instances"):
            found.append(
                Caution(f"{name} ran on instances: its times are wall time, {', '.join(document['cost']['notes'])}.")
            )
    return found


def _modelled_cost(document: Document) -> float | None:
    cost = (document.get("modelled") or {}).get("cost")
    return float(cost["total"]) if cost else None


def _relative(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None or not first else second / first - 1


def _signed(value: float) -> str:
    text = formats.significant(value, 3)
    return text if value < 0 else f"+{text}"


def _name(document: Document) -> str:
    return NAMES.get(document["architecture"], str(document["architecture"]))


def _letter(number: int) -> str:
    return ascii_uppercase[number] if number < len(ascii_uppercase) else str(number + 1)
