"""Pictures of replays as files: SVG, PNG or PDF. Equal figures give equal bytes."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slslab.errors import RequestError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from slslab_lab.replay.whatif import Row

FORMATS = (".svg", ".png", ".pdf")
# The axis of a picture, if only that differs between variants.
AXES = {"memory_mb": "memory size, MB", "workers": "workers"}
# Of rows, by the basis of their times.
COLOURS = {"measured": "0.6", "modelled": "tab:blue"}
PANELS = (("seconds", "seconds"), ("cost", "USD"))
# So many panels of curves are beside each other.
ACROSS = 3


def check_format(path: Path | None) -> None:
    """Raise RequestError for a file that cannot be drawn; None is accepted."""
    if path is not None and path.suffix.lower() not in FORMATS:
        raise RequestError(f"{path} cannot be drawn.", f"name a file that ends in {', '.join(FORMATS)}.")


def draw_rows(rows: Sequence["Row"], title: str, path: Path) -> None:
    """Time and cost of variants with their 80 % ranges: over the one number that they differ in, else as bars.

    Bars of measured rows are grey.
    """
    figure = open_figure()
    axes = figure.subplots(1, len(PANELS))
    over = _over(rows)
    for panel, (name, label) in zip(axes, PANELS, strict=True):
        values = [row.number(name) for row in rows]
        beyond = _beyond(rows, name)
        if over:
            places = [getattr(row.variant, over) for row in rows]
            panel.errorbar(places, values, yerr=beyond, marker="o", capsize=3)
            panel.set_xscale("log", base=2)
            panel.set_xticks(places, [f"{place:g}" for place in places], rotation=90)
            panel.set(xlabel=AXES[over], ylabel=label, ylim=(0, None))
        else:
            names = [row.label for row in rows]
            colours = [COLOURS[row.figures["seconds"].basis] for row in rows]
            panel.barh(range(len(rows)), values, xerr=beyond, color=colours, capsize=3)
            panel.set_yticks(range(len(rows)), names if name == PANELS[0][0] else [""] * len(rows))
            panel.invert_yaxis()
            panel.set(xlabel=label)
            panel.locator_params(axis="x", nbins=4)
    save_figure(figure, title, path)


def draw_lines(
    path: Path,
    at: Sequence[int],
    lines: Mapping[str, Sequence[float]],
    axes: tuple[str, str],
    title: str,
    ranges: Mapping[str, Sequence[tuple[float, float]]] | None = None,
) -> None:
    """Draw lines over workers or epochs, both axes logarithmic; bands are the 80 % ranges of lines that have some."""
    figure = open_figure()
    panel = figure.subplots()
    for name, values in lines.items():
        (line,) = panel.plot(at, values, marker="o", label=name)
        if ranges and name in ranges:
            lows, highs = zip(*ranges[name], strict=True)
            panel.fill_between(at, lows, highs, color=line.get_color(), alpha=0.2, linewidth=0)
    panel.set(xscale="log", yscale="log", xlabel=axes[0], ylabel=axes[1])
    panel.set_xticks(at, [f"{place:g}" for place in at])
    panel.minorticks_off()
    panel.legend()
    save_figure(figure, title, path)


def draw_curve(document: Mapping[str, Any], path: Path) -> None:
    """Draw losses and test accuracy over epochs."""
    figure = open_figure()
    plan, rows = document["plan"], document["epochs"]
    losses, accuracy = figure.subplots(1, 2)
    epochs = [row["epoch"] for row in rows]
    for name in ("training_loss", "validation_loss", "test_loss"):
        # Unknown values leave gaps.
        values = [float("nan") if row[name] is None else row[name] for row in rows]
        if any(value == value for value in values):
            losses.plot(epochs, values, marker=".", label=name.replace("_", " "))
            losses.legend()
    losses.set(xlabel="epochs", ylabel="mean cross-entropy")
    accuracy.plot(epochs, [100 * row["test_accuracy"] for row in rows], marker=".")
    accuracy.set(xlabel="epochs", ylabel="test accuracy, %")
    released = " as released" if plan["as_released"] else ""
    save_figure(figure, f"{plan['architecture']}{released}: {plan['model']} on {plan['dataset']}", path)


def draw_points(document: Mapping[str, Any], path: Path) -> None:
    """Draw the curves of a reproduction, a panel for each variant, over a logarithmic axis; those of accuracy by time
    share the other. A name has one colour in all panels."""
    figure, curves, modelled = open_figure(), document["curves"], "profile" in document
    across = min(len(curves), ACROSS)
    down = math.ceil(len(curves) / across)
    figure.set_size_inches(max(9, 4.5 * across), 4 * down)
    panels = figure.subplots(down, across, squeeze=False, sharey=modelled).flat
    names = list(dict.fromkeys(line["name"] for curve in curves for line in curve["lines"]))
    for curve, panel in zip(curves, panels, strict=False):
        for line in curve["lines"]:
            panel.plot(line["x"], line["y"], marker=".", label=line["name"], color=f"C{names.index(line['name'])}")
        titles = {axis: ", ".join(filter(None, (curve[axis]["title"], curve[axis]["unit"]))) for axis in ("x", "y")}
        panel.set(xscale="log", xlabel=f"{titles['x']}, {curve['variant']}", ylabel=titles["y"])
        if curve["lines"]:
            panel.legend(fontsize="small")
    for panel in panels:
        panel.remove()
    basis = f"modelled on {document['profile']['name']}" if modelled else "measured"
    save_figure(figure, f"{document['table']['title']}, {basis}", path)


def draw_bars(document: Mapping[str, Any], path: Path) -> None:
    """Draw the bars of a reproduction's document, a panel for each of its charts."""
    figure, charts = open_figure(), document["bars"]
    most = max(len({bar for bar, *_ in chart["values"]}) for chart in charts)
    figure.set_size_inches(5 * len(charts), 1.5 + 0.4 * most)
    for panel, chart in zip(figure.subplots(1, len(charts), squeeze=False)[0], charts, strict=True):
        bars = list(dict.fromkeys(bar for bar, *_ in chart["values"]))
        height = 0.8 / len(chart["series"])
        for place, series in enumerate(chart["series"]):
            points = [(bars.index(bar), value) for bar, name, value in chart["values"] if name == series]
            shift = (place - (len(chart["series"]) - 1) / 2) * height
            panel.barh(
                [number + shift for number, _ in points], [value for _, value in points], height=height, label=series
            )
        panel.set_yticks(range(len(bars)), [bar.replace("\n", ", ") for bar in bars])
        panel.invert_yaxis()
        panel.set(xlabel=f"{chart['axis']}, {chart['unit']}", title=chart["title"])
        panel.legend(fontsize="small")
    save_figure(figure, f"{document['table']['title']}, modelled on {document['profile']['name']}", path)


def _beyond(rows: Sequence["Row"], name: str) -> list[list[float]]:
    """Return how far the ends of the ranges are below and above the values; 0 for values without a range."""
    figures = [(float(row.figures[name].value), row.figures[name]) for row in rows]
    below = [0.0 if figure.low is None else value - figure.low for value, figure in figures]
    above = [0.0 if figure.high is None else figure.high - value for value, figure in figures]
    return [below, above]


def _over(rows: Sequence["Row"]) -> str:
    """Return the only number in which the variants differ; empty if there is none."""
    if len(rows) < 2 or any(row.variant is None for row in rows):
        return ""
    differing = [name for name in AXES if len({getattr(row.variant, name) for row in rows}) == len(rows)]
    complete = [name for name in differing if all(getattr(row.variant, name) is not None for row in rows)]
    return complete[0] if len(complete) == 1 else ""


def open_figure() -> "Figure":
    """Return an empty figure."""
    # Not pyplot, which keeps figures and looks for a display.
    from matplotlib.figure import Figure

    return Figure(figsize=(9, 4), layout="constrained")


def save_figure(figure: "Figure", title: str, path: Path) -> None:
    """Write the figure; RequestError if the file cannot be drawn or written."""
    import matplotlib

    check_format(path)
    figure.suptitle(title, fontsize="medium")
    # A picture has no date and no random names of its parts.
    undated: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})
    try:
        with matplotlib.rc_context({"svg.hashsalt": "slslab"}):
            figure.savefig(path, metadata=undated)
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}.", "choose another --plot.") from error
