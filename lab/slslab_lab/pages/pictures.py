"""Pictures that commands save: the pages' charts, as SVG, PNG or PDF. Equal figures give equal SVG and PNG files."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slslab.errors import RequestError, counted, writable
from slslab.report.html.page import page_file
from slslab.report.page import Chart, Document
from slslab_lab.pages import charts, scales

if TYPE_CHECKING:
    from slslab_lab.replay.kernel.timeline import Timeline

FORMATS = (".svg", ".png", ".pdf")
# Pixels, without labels next to the axes; and the number of charts next to each other.
WIDTH, ACROSS = 420, 3


def check_format(path: Path) -> Path:
    """Return the file of a picture; RequestError if its format can't be drawn."""
    if path.suffix.lower() not in FORMATS:
        raise RequestError(f"{path} cannot be drawn.", f"name a file that ends in {', '.join(FORMATS)}.")
    return path


def draw_variants(document: Document, path: Path) -> None:
    """Draw the rows of `slslab replay`, or of a question about memory sizes."""
    rows = [row for row in document["rows"] if not row["trouble"]]
    _draw(path, _on(document), [_dots({row["label"]: {row[name]["basis"]: row[name]} for row in rows}, label)
                                for name, label in (("seconds", "time, s"), ("cost", "bill, USD"))])  # fmt: skip


def draw_patterns(document: Document, path: Path) -> None:
    """Draw the seconds of a step in both patterns by the number of workers."""
    rows = {counted(row["workers"], "worker"): row["step_seconds"] for row in document["rows"]}
    _draw(path, f"{_on(document)}, modelled", [_dots(rows, "time of a step, s", log=True)])


def draw_ways(document: Document, path: Path) -> None:
    """Draw the cost of functions and instances by epochs, with the last number of workers."""
    rows = [row for row in document["rows"] if row["workers"] == document["rows"][-1]["workers"]]
    names = ("functions", "instances")
    costs = {counted(row["epochs"], "epoch"): {name: row[name]["cost"] for name in names} for row in rows}
    _draw(path, f"{_on(document)}, modelled", [_dots(costs, "bill, USD", log=True)])


def draw_model(document: Document, path: Path) -> None:
    """Draw the seconds of all four estimates by the number of workers."""
    rows = sorted(document["rows"], key=lambda row: row["workers"])
    names = ("model", "closed_form", "replay", "measured")
    seconds = {
        counted(row["workers"], "worker"): {name.replace("_", " "): row[name]["seconds"] for name in names if row[name]}
        for row in rows
    }
    _draw(path, _on(document), [_dots(seconds, "time, s", log=True)])


def _on(document: Document) -> str:
    return f"{document['run']} on {document['profile']['name']}"


def _dots(figures: Mapping[str, Mapping[str, Document]], title: str, *, log: bool = False) -> Chart:
    return charts.dots("dots", title, figures, title, log=log)


def draw_curve(document: Document, path: Path) -> None:
    """Draw losses and test accuracy over epochs."""
    plan, epochs = document["plan"], document["epochs"]
    losses = ("training_loss", "validation_loss", "test_loss")
    panels = (("mean cross-entropy", losses), ("accuracy, %", ("test_accuracy",)))
    drawn = []
    for title, names in panels:
        points = [(name.replace("_", " "), row["epoch"], row[name]) for name in names for row in epochs]
        if known := list(dict.fromkeys(name for name, _, value in points if value is not None)):
            percent = names == ("test_accuracy",)
            keys = scales.series_keys(known)
            drawn.append(charts.lines(title, title, points, keys, ("epochs", title), percent=percent))
    released = " as released" if plan["as_released"] else ""
    _draw(path, f"{plan['architecture']}{released}: {plan['model']} on {plan['dataset']}", drawn)


def draw_reproduction(document: Document, path: Path) -> None:
    """Draw the curves of a reproduction, or else the points of its columns."""
    from slslab_lab.pages.reproduction import pictured

    basis = f"modelled on {document['profile']['name']}" if "profile" in document else "measured"
    _draw(path, f"{document['table']['title']}, {basis}", pictured(document))


def draw_comparison(documents: Sequence[Document], path: Path) -> None:
    """Draw cost against time on AWS of the runs that are modelled; RequestError if none is."""
    from slslab_lab.pages.comparison import pictured, there

    if (chart := pictured(documents)) is None:
        raise RequestError("None of these runs is modelled on AWS.", "leave out --plot.")
    _draw(path, there(documents, "Cost and time on AWS"), [chart])


def draw_timeline(played: "Timeline", title: str, path: Path) -> None:
    """Draw each worker's activity over time, in seconds."""
    from slslab_lab.pages.timeline import build_timeline
    from slslab_lab.replay.as_trace import as_trace

    timeline = build_timeline(*as_trace(played))
    drawn = [charts.gantt("timeline", title, timeline, str, "seconds", "", "")] if timeline else []
    left_out = f", without {timeline.left_out:,} more rows" if timeline and timeline.left_out else ""
    _draw(path, f"{title}{left_out}", drawn)


def _draw(path: Path, title: str, drawn: Sequence[Chart]) -> None:
    import vl_convert

    check_format(path)
    kind = path.suffix.lower().removeprefix(".")
    spec = {
        "concat": [{**({"title": chart.name} if chart.name else {}), **_still(chart.spec, chart)} for chart in drawn],
        "columns": ACROSS,
        "title": title,
        "resolve": {"scale": dict.fromkeys(("color", "shape", "strokeWidth", "x", "y", "yOffset"), "independent")},
        "config": {"background": "white"},
    }
    picture = getattr(vl_convert, f"vegalite_to_{kind}")(spec, **({"scale": 2} if kind == "png" else {}))
    if isinstance(picture, str):
        # Their numbers continue from the picture before.
        clips = list(dict.fromkeys(re.findall(r"\bclip\d+\b", picture)))
        picture = re.sub(r"\bclip\d+\b", lambda found: f"clip{clips.index(found[0])}", picture).encode()
    with writable(path, "choose another --plot."):
        path.write_bytes(picture)


def _still(spec: Any, chart: Chart) -> Any:
    match spec:
        case {"name": str(name)} if name in chart.data:
            data = chart.data[name]
            return {"values": [dict(zip(data.columns, row, strict=True)) for row in data.rows]}
        case {"expr": str(text)}:
            return {"expr": re.sub(r"\bwidth\b", str(WIDTH), text)}
        case {"calculate": str(text), "as": name}:
            return {"calculate": re.sub(r"\bwidth\b", str(WIDTH), text), "as": name}
        case {"field": _, "legend": None, "scale": {"range": [str(first), *_]}} if chart.legend and "--" in first:
            return _still({**spec, "legend": {"title": None}}, chart)
        case dict():
            return {key: _still(value, chart) for key, value in spec.items() if key not in ("autosize", "tooltip")}
        case list():
            return [_still(value, chart) for value in spec]
        case "container":
            return WIDTH
        case str():
            return re.sub(r"var\(--([\w-]+)\)", lambda found: _colours()[found[1]], spec)
    return spec


@cache
def _colours() -> Mapping[str, str]:
    """Return the colours of light pages by name; they come first in the style."""
    return dict(reversed(re.findall(r"--([\w-]+): (#\w+);", page_file("page.css"))))
