"""Pictures of replays as files: SVG, PNG or PDF. Equal figures give equal bytes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slslab.errors import RequestError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Document = Mapping[str, Any]
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


def draw_rows(document: Document, path: Path, title: str) -> None:
    """Draw time and cost of variants with their 80 % ranges: over the one number that they differ in, else as bars.

    Bars of measured rows are grey.
    """
    rows = [row for row in document["rows"] if not row["trouble"]]
    figure = open_figure()
    axes = figure.subplots(1, len(PANELS))
    over = _over(rows)
    for panel, (name, label) in zip(axes, PANELS, strict=True):
        values = [float(row[name]["value"]) for row in rows]
        beyond = _beyond([row[name] for row in rows])
        if over:
            places = [row["variant"][over] for row in rows]
            panel.errorbar(places, values, yerr=beyond, marker="o", capsize=3)
            panel.set_xscale("log", base=2)
            panel.set_xticks(places, [f"{place:g}" for place in places], rotation=90)
            panel.set(xlabel=AXES[over], ylabel=label, ylim=(0, None))
        else:
            names = [row["label"] for row in rows]
            colours = [COLOURS[row["seconds"]["basis"]] for row in rows]
            panel.barh(range(len(rows)), values, xerr=beyond, color=colours, capsize=3)
            panel.set_yticks(range(len(rows)), names if name == PANELS[0][0] else [""] * len(rows))
            panel.invert_yaxis()
            panel.set(xlabel=label)
            panel.locator_params(axis="x", nbins=4)
    save_figure(figure, title, path)


def draw_variants(document: Document, path: Path) -> None:
    """Draw the rows of `slslab replay`."""
    draw_rows(document, path, _on(document))


def draw_sizes(document: Document, path: Path) -> None:
    """Draw the rows of a question about memory sizes."""
    draw_rows(document, path, f"{document['run']}: memory sizes")


def draw_patterns(document: Document, path: Path) -> None:
    """Draw the seconds of a step in both patterns over the numbers of workers."""
    rows = document["rows"]
    lines = {name: [row["step_seconds"][name] for row in rows] for name in rows[0]["step_seconds"]}
    at = [row["workers"] for row in rows]
    _draw_lines(path, at, lines, ("workers", "seconds per step"), f"{_on(document)}, modelled", ranged=lines)


def draw_ways(document: Document, path: Path) -> None:
    """Draw what functions and instances cost over the epochs, with the last number of workers."""
    rows = [row for row in document["rows"] if row["workers"] == document["rows"][-1]["workers"]]
    lines = {name: [row[name]["cost"] for row in rows] for name in ("functions", "instances")}
    at = [row["epochs"] for row in rows]
    _draw_lines(path, at, lines, ("epochs", "USD"), f"{_on(document)}, modelled", ranged=lines)


def draw_model(document: Document, path: Path) -> None:
    """Draw the seconds of all four over the numbers of workers; the measured ones are a point."""
    rows = sorted(document["rows"], key=lambda row: row["workers"])
    names = ("model", "closed_form", "replay", "measured")
    lines = {name.replace("_", " "): [row[name] and row[name]["seconds"] for row in rows] for name in names}
    _draw_lines(path, [row["workers"] for row in rows], lines, ("workers", "seconds"), _on(document))


def _on(document: Document) -> str:
    return f"{document['run']} on {document['profile']['name']}"


def _draw_lines(
    path: Path,
    at: Sequence[int],
    lines: Mapping[str, Sequence[Document | None]],
    axes: tuple[str, str],
    title: str,
    ranged: Iterable[str] = (),
) -> None:
    """Draw lines of figures, of which some may be missing, both axes logarithmic; those `ranged` with their 80 % ranges
    as bands."""
    figure = open_figure()
    panel = figure.subplots()
    for name, figures in lines.items():
        values = [float("nan") if one is None else float(one["value"]) for one in figures]
        (line,) = panel.plot(at, values, marker="o", label=name)
        if name in ranged:
            lows, highs = zip(*((one["low"], one["high"]) for one in figures if one is not None), strict=True)
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


def _beyond(figures: Sequence[Document]) -> list[list[float]]:
    """Return how far the ends of the ranges are below and above the values; 0 for values without a range."""
    values = [float(one["value"]) for one in figures]
    below = [value - one.get("low", value) for value, one in zip(values, figures, strict=True)]
    above = [one.get("high", value) - value for value, one in zip(values, figures, strict=True)]
    return [below, above]


def _over(rows: Sequence[Document]) -> str:
    """Return the only number in which the variants differ; empty if there is none."""
    if len(rows) < 2:
        return ""
    places = {name: [row["variant"].get(name) for row in rows] for name in AXES}
    complete = [name for name, each in places.items() if len(set(each)) == len(rows) and None not in each]
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
