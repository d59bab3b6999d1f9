"""Tables of what was published beside what is modelled, made from their documents alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slslab.reports.tables import plain_table

NAMES = {"allreduce": "AllReduce", "scatterreduce": "ScatterReduce", None: "tie"}
Document = Mapping[str, Any]


def rounds(document: Document) -> RenderableType:
    """What `slslab reproduce` prints of a table of AllReduce and ScatterReduce."""
    return Group(
        _seconds(document),
        _intervals(document["rows"]),
        Text(_differences(document["rows"])),
        Text(_notes(document), "dim"),
    )


def _seconds(document: Document) -> Table:
    title = f"{document['table']['title']} ({document['table']['source']} of {document['paper']['published']})"
    headings = ("AllReduce s", "Scatter-\nReduce s", "ratio", "faster")
    columns = [column for heading in headings for column in (heading, "modelled")]
    table = plain_table("row", "workers", *columns, "verdict", title=title)
    for row in document["rows"]:
        cells = [row["row"], str(row["workers"])]
        for name in ("allreduce", "scatterreduce"):
            cells.append(row["published"][name]["value"] if row["published"] else "–")
            cells.append(f"≈{row['modelled'][name]['value']:.2f}")
        ratio, faster = row["ratio"], row["winner"]
        cells.append(f"{ratio['published']:.2f}" if "published" in ratio else "–")
        cells.append(f"≈{ratio['modelled']:.2f}")
        cells.append(NAMES[faster["published"]] if "published" in faster else "–")
        cells += [f"≈{NAMES[faster['modelled']]}", row["verdict"] or "–"]
        table.add_row(*cells)
    return table


def _intervals(rows: Sequence[Document]) -> Table:
    table = plain_table(
        "row", "workers", "this row", "ScatterReduce wins", "tie", "AllReduce wins", "AllReduce s\nby formula",
        "ScatterReduce s\nby formula", title="Latency × bandwidth ÷ size of a gradient",
    )  # fmt: skip
    for row in rows:
        spans = (
            ", ".join(_span(one) for one in row["intervals"] if one["winner"] == name)
            for name in ("scatterreduce", None, "allreduce")
        )
        formula = (f"{row['formula'][name]:.2f}" for name in ("allreduce", "scatterreduce"))
        share = row["latency_bandwidth_size"]
        here = f"{share:.3g}" if share < 1000 else f"{share:,.0f}"
        table.add_row(row["row"], str(row["workers"]), here, *(span or "–" for span in spans), *formula)
    return table


def _span(one: Document) -> str:
    begin, end = one["begin"], one["end"]
    if begin is None and end is None:
        return "everywhere"
    if begin is None:
        return f"below {end:.3g}"
    return f"above {begin:.3g}" if end is None else f"{begin:.3g} to {end:.3g}"


def _differences(rows: Sequence[Document]) -> str:
    return "\n".join(f"{row['row']}, {row['workers']} workers: {row['reason']}" for row in rows if row["reason"])


def _notes(document: Document) -> str:
    profile, run = document["profile"], document["run"]
    compute = f"CPU seconds of {run}" if run else "no CPU time"
    lines = [
        f"≈ modelled on {profile['name']} of {profile['date']}, {compute}, polling {document['polling']}; without a "
        "sign published. A ratio is AllReduce's seconds ÷ ScatterReduce's; less than 15 % is a tie. Modelled is one "
        "round, until the last worker has the sum; by formula: its puts and gets alone, without lists, deletes "
        "and polls.",
        *document["table"]["notes"],
    ]
    seen = dict.fromkeys((row["row"], row["note"]) for row in document["rows"] if row["note"])
    lines += [f"{name}: {note}." for name, note in seen]
    return "\n".join(lines)
