"""Tables and bars of replays, made from their documents alone.

A sign stands before what is no measurement: ≈ modelled, = exact."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slslab.reports.tables import plain_table

SIGNS = {"measured": "", "modelled": "≈", "exact": "="}
BAR_WIDTH = 40
Document = Mapping[str, Any]
Texts = tuple[tuple[str, str, Callable[[Any], str]], ...]


def _amount(value: float | Decimal) -> str:
    """A number with two decimals, as long as these matter."""
    return f"{value:,.2f}" if value < 10_000 else f"{value:,.0f}"


COLUMNS: Texts = (
    ("seconds", "seconds", _amount),
    ("billed s", "billed_seconds", _amount),
    ("GB-s", "gb_seconds", lambda value: _amount(Decimal(value))),
    ("USD", "cost", lambda value: f"{Decimal(value):.6f}"),
    ("waiting", "waiting_share", lambda value: f"{value:.0%}"),
    ("invocations", "invocations", lambda value: f"{value:,}"),
    ("cold", "cold_starts", lambda value: f"{value:,}"),
    ("over time-out", "over_timeout", lambda value: f"{value:,}"),
)


def replay(document: Document) -> RenderableType:
    """What `slslab replay` prints: a row per variant, bars of time and cost, and what must be known of them."""
    parts: list[RenderableType] = [variants(document), bars(document["rows"]), Text(footnote(document), "dim")]
    if late := [row for row in document["rows"] if row.get("late")]:
        parts.append(_late(late, document["timeout_s"]))
    return Group(*parts)


def variants(document: Document) -> Table:
    """A row per variant; a refused one says why."""
    headings = [heading for heading, _, _ in COLUMNS]
    table = plain_table("variant", *headings, title=f"Replay of {document['run']}")
    for row in document["rows"]:
        if row["trouble"]:
            table.add_row(Text(row["label"], "dim"), Text("–", "dim"))
        else:
            table.add_row(row["label"], *(signed(row[name], show) for _, name, show in COLUMNS))
    return table


def signed(figure: Document, show: Callable[[Any], str]) -> str:
    """A figure with the sign of what it rests on."""
    return SIGNS[figure["basis"]] + show(figure["value"])


def bars(rows: Sequence[Document]) -> Table:
    """Time and cost of each row as bars, each relative to the longest."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("", "seconds", "USD"):
        table.add_column(heading, no_wrap=True)
    shown = [row for row in rows if not row["trouble"]]
    ends = {name: max((float(row[name]["value"]) for row in shown), default=0.0) for name in ("seconds", "cost")}
    for row in shown:
        lengths = (Bar(ends[name] or 1.0, 0, float(row[name]["value"]), width=BAR_WIDTH) for name in ends)
        table.add_row(row["label"], *lengths)
    return table


def cheapest(document: Document) -> RenderableType:
    """The answer to `slslab ask cheapest`, and the sizes it was found among."""
    deadline, found = document["deadline_s"], document["cheapest"]
    fast = document["fastest"]
    if found is not None:
        row = next(row for row in document["rows"] if row["variant"].get("memory_mb") == found)
        told = f"{found:,} MB is the cheapest size that is done in {deadline:g} s: {_briefly(row)}."
    elif fast is not None:
        row = next(row for row in document["rows"] if row["variant"].get("memory_mb") == fast)
        told = f"No size is done in {deadline:g} s; the fastest is {fast:,} MB: {_briefly(row)}."
    else:
        told = "No size is done within the functions' time-out."
    return Group(Text(told, "bold"), *_swept(document))


def sweep(document: Document) -> RenderableType:
    """The answer to `slslab ask memory`."""
    if document["cheapest"] is None:
        told = "No size is done within the functions' time-out."
    else:
        told = (
            f"Cheapest {document['cheapest']:,} MB, fastest {document['fastest']:,} MB, least cost × time "
            f"{document['balanced']:,} MB."
        )
    return Group(Text(told, "bold"), *_swept(document))


def _swept(document: Document) -> tuple[RenderableType, ...]:
    return variants(document), bars(document["rows"]), Text(footnote(document), "dim")


def _briefly(row: Document) -> str:
    return f"≈{row['seconds']['value']:,.2f} s, ≈{Decimal(row['cost']['value']):.6f} USD"


def patterns(document: Document) -> RenderableType:
    """The answer to `slslab ask patterns`."""
    names = list(document["rows"][0]["step_seconds"])
    headings = [f"{name} s/step" for name in names]
    title = f"Patterns, gradients of {document['gradient_bytes']:,} bytes"
    table = plain_table("workers", *headings, "faster", "here", "latency × bandwidth ÷ size", title=title)
    for row in document["rows"]:
        spans = [f"{span['begin']:.3g} to {span['end']:.3g}: {span['winner'] or 'tie'}" for span in row["intervals"]]
        table.add_row(
            str(row["workers"]),
            *(signed(row["step_seconds"][name], lambda value: f"{value:,.4f}") for name in names),
            row["winner"] or "tie",
            f"≈{row['latency_bandwidth_size']['value']:.3g}",
            "\n".join(spans),
        )
    return Group(table, Text(footnote(document), "dim"))


def gpu(document: Document) -> RenderableType:
    """The answer to `slslab ask gpu`."""
    headings = ("functions s", "instances s", "faster", "functions USD", "instances USD", "cheaper")
    table = plain_table("workers", "epochs", *headings, title="Functions and GPU instances")
    for row in document["rows"]:
        cells = [str(row["workers"]), f"{row['epochs']:,}"]
        for name, form in (("seconds", ",.1f"), ("cost", ".6f")):
            values = [Decimal(str(row[way][name]["value"])) for way in ("functions", "instances")]
            cells += [f"≈{value:{form}}" for value in values]
            cells.append("functions" if values[0] <= values[1] else "instances")
        table.add_row(*cells)
    told = []
    for one in document["crossings"]:
        for figure, word in (("seconds", "faster"), ("cost", "cheaper")):
            at = one[figure]
            where = "never changes" if at is None else f"changes at {at:,} epochs"
            told.append(f"{one['workers']} workers: which is {word} {where}.")
    return Group(table, Text("\n".join(told), "bold"), Text(footnote(document), "dim"))


def waiting(document: Document) -> RenderableType:
    """The answer to `slslab ask waiting`."""
    share, cost = document["waiting_share"]["value"], document["waiting_cost"]["value"]
    told = (
        f"Of ≈{document['billed_seconds']['value']:,.2f} billed s ≈{document['waiting_seconds']['value']:,.2f} s "
        f"({share:.0%}) are waiting, ≈{Decimal(cost):.6f} of ≈{Decimal(document['cost']['value']):.6f} USD. "
        f"Measured, the pauses of waiting were {document['measured_share']['value']:.0%}."
    )
    table = plain_table("worker", "phase", "waiting s", "of its billed time", "USD", title="Waiting")
    for row in document["rows"]:
        rank = "none" if row["worker"] < 0 else str(row["worker"])
        table.add_row(rank, row["phase"], f"≈{row['seconds']:,.3f}", f"≈{row['share']:.1%}", f"≈{row['cost']:.8f}")
    return Group(Text(told, "bold"), table, Text(footnote(document), "dim"))


def footnote(document: Document) -> str:
    """What the signs mean, where the figures come from, and what was refused."""
    profile, prices = document["profile"], document["prices"]
    network = f", the network of {document['network']}" if document["network"] else ""
    lines = [
        f"≈ modelled on {profile['name']} of {profile['date']}{network}; = exact; without a sign measured on the run's "
        f"host. Prices: {_books(document['rows']) or prices['name'] + ' of ' + prices['date']}."
    ]
    if document["oversubscribed"]:
        lines.append("The host was oversubscribed: what was measured took longer than it would have on an idle one.")
    refused = [row for row in document["rows"] if row.get("trouble")]
    for trouble in dict.fromkeys(row["trouble"] for row in refused):
        lines.append(f"{'; '.join(row['label'] for row in refused if row['trouble'] == trouble)}: {trouble}")
    return "\n".join(lines)


def _books(rows: Sequence[Document]) -> str:
    """The price books of rows that have bills."""
    books = (row["bill"]["book"] for row in rows if "bill" in row)
    return ", ".join(dict.fromkeys(f"{book['name']} of {book['date']}" for book in books))


def _late(rows: Sequence[Document], timeout_s: float) -> Table:
    table = plain_table("variant", "function", "workers", "longest s", title=f"Over the time-out of {timeout_s:g} s")
    for row in rows:
        functions: dict[str, list[Document]] = {}
        for one in row["late"]:
            functions.setdefault(one["function"], []).append(one)
        for function, late in functions.items():
            workers = sorted({one["worker"] for one in late})
            named = ", ".join(map(str, workers[:8])) + (" …" if len(workers) > 8 else "")
            longest = max(one["seconds"] for one in late)
            table.add_row(row["label"], function, named, f"{SIGNS[row['over_timeout']['basis']]}{longest:,.1f}")
    return table
