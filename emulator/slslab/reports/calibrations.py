"""What `slslab calibrate` prints, made from its documents alone."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Document = Mapping[str, Any]
BUSY = "This host was busy: what threads do at once was not measured, and requests took longer than on an idle one."


def calibration(document: Document) -> RenderableType:
    """The figures that were measured, what they rest on, and where the profile is."""
    parts: list[RenderableType] = []
    if "lines" in document:
        parts += [_comparison(document), Text(_lines(document))]
    elif "step" in document:
        parts.append(_steps(document["step"]))
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("measured", no_wrap=True)
    table.add_column("value", justify="right")
    table.add_column("how")
    for figure in document["figures"]:
        where, _, how = figure["source"].partition(": ")
        table.add_row(figure["entry"], f"{figure['value']:g}", Text(how or where))
    if document.get("busy"):
        parts.append(Text(BUSY, "yellow"))
    parts += [table, Text(f"The profile {document['name']} is in {document['path']}.")]
    return Group(*parts)


def _comparison(document: Document) -> Table:
    title = f"{document['function']} at {document['memory_mb']} MB, medians"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    table.add_column("ms")
    for heading in ("REPORT lines", f"modelled by {document['base']}", "modelled after the fit"):
        table.add_column(heading, justify="right")
    for name, key in (("duration", "duration_ms"), ("init", "init_ms")):
        values = document[key]
        table.add_row(name, *(_milliseconds(values[of]) for of in ("real", "before", "after")))
    return table


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def _lines(document: Document) -> str:
    lines = document["lines"]
    return (
        f"{lines['read']} REPORT lines, {lines['failed']} of them of failed invocations; {lines['unread']} more could "
        f"not be read. Fitted to {lines['fitted']}, {lines['cold']} of them cold starts; {lines['billed_as_here']} are "
        f"billed as the emulator bills. Memory used: {document['max_memory_mb']:,.0f} MB."
    )


def _steps(step: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("threads of a training step")
    for heading in ("CPU s", "s"):
        table.add_column(heading, justify="right")
    for threads, times in step.items():
        table.add_row(threads, f"{times['cpu_seconds']:.3f}", f"{times['seconds']:.3f}")
    return table
