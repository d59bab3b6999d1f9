"""Accuracy by time, compactly: some of the epochs of every line as a table, and all of them as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from slslab.reports.plots import open_figure, save_figure
from slslab.reports.tables import plain_table

Document = Mapping[str, Any]
# Of an epoch's number, the digits that begin those that are shown.
SHOWN = (1, 2, 5)


def points(document: Document) -> RenderableType:
    """What `slslab reproduce fig4` prints: accuracy and modelled minutes after some epochs, a row for each line."""
    table, curves = document["table"], document["curves"]
    longest = max((len(line["x"]) for curve in curves for line in curve["lines"]), default=0)
    epochs = _some(longest)
    title = f"{table['title']} ({table['source']}): test accuracy, minutes"
    shown = plain_table("after epoch", *map(str, epochs), "last", title=title)
    known = []
    for curve in curves:
        for line in curve["lines"]:
            # What has one variant alone is in the pictures of both.
            if line in known:
                continue
            known.append(line)
            marks = list(zip(line["x"], line["y"], strict=True))
            cells = [_cell(*marks[epoch - 1]) if epoch <= len(marks) else "–" for epoch in epochs]
            shown.add_row(f"{line['name']}, {curve['variant']}", *cells, f"{_cell(*marks[-1])} ({len(marks)})")
    notes = ["≈ modelled; accuracies are measured.", *document["table"]["notes"], *document["notes"]]
    return Group(shown, Text("\n".join(notes), "dim"))


def draw_points(document: Document, path: Path) -> None:
    """Test accuracy over modelled minutes, which are logarithmic, a panel for each variant; RequestError if the file
    cannot be written."""
    figure, curves = open_figure(), document["curves"]
    panels = figure.subplots(1, len(curves), squeeze=False, sharey=True)[0]
    for panel, curve in zip(panels, curves, strict=True):
        for line in curve["lines"]:
            panel.plot(line["x"], line["y"], marker=".", label=line["name"])
        titles = {axis: ", ".join(filter(None, (curve[axis]["title"], curve[axis]["unit"]))) for axis in ("x", "y")}
        panel.set(xscale="log", xlabel=f"{titles['x']}, {curve['variant']}", ylabel=titles["y"])
        if curve["lines"]:
            panel.legend(fontsize="small")
    save_figure(figure, f"{document['table']['title']}, modelled on {document['profile']['name']}", path)


def _some(epochs: int) -> Sequence[int]:
    """1, 2, 5, 10, 20, 50, ... up to the number of epochs."""
    found, power = [], 1
    while power <= epochs:
        found += [digit * power for digit in SHOWN if digit * power <= epochs]
        power *= 10
    return found


def _cell(minutes: float, accuracy: float) -> str:
    return f"{accuracy:.1f} %\n≈{minutes:,.1f} min"
