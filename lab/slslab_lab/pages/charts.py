"""Charts as Vega-Lite specifications, made with Altair. They fill their containers; legends are HTML, which wraps."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from slslab.report import formats
from slslab.report.page import Chart, Data, Document, Key
from slslab.run.metrics import grouped
from slslab_lab.pages.communication import Communication
from slslab_lab.pages.scales import (
    DATA,
    PHASE_KEYS,
    basis_keys,
    colour_scale,
    name_axis,
    number_axis,
    open_chart,
    series_keys,
    specification,
    step,
    title_lines,
    tooltips,
)
from slslab_lab.pages.timeline import Timeline

if TYPE_CHECKING:
    import altair as alt
else:
    from slslab_lab.pages.scales import alt

SHAPES = {"published": "diamond", "measured": "square", "modelled": "circle", "recomputed": "triangle-up"}
# Where a figure is from, in the order of legends.
BASES = ("published", "recomputed", "measured", "modelled", "exact")
Rows = Sequence[Sequence[str | int | float | None]]


def stacked_bars(
    identifier: str, label: str, rows: Rows, keys: Sequence[Key], title: str, *, format: str = ",.3f"
) -> Chart:
    """Draw horizontal bars of parts: rows of (bar, part, value), the parts in the order of `keys`."""
    bars, order = len({row[0] for row in rows}), {key.label: number for number, key in enumerate(keys)}
    data = Data(("bar", "part", "value", "order"), [(*row, order[str(row[1])]) for row in rows])
    chart = (
        open_chart(height=bars * step(bars))
        .mark_bar()
        .encode(
            x=alt.X("value:Q", title=title_lines(title), stack="zero", axis=number_axis()),
            y=name_axis(),
            color=alt.Color("part:N", scale=colour_scale(keys), legend=None),
            order=alt.Order("order:Q"),
            tooltip=tooltips(("bar:N", "of"), ("part:N", "part"), ("value:Q", title, format)),
        )
    )
    return Chart(identifier, label, specification(chart), {DATA: data}, tuple(keys))


def memory_bars(label: str, rows: Rows, caption: str = "") -> Chart:
    """Draw peak memory with a mark at each memory size, MB: rows of (bar, value, limit or None)."""
    title, limit = "peak memory, MB", "memory size, MB"
    data = Data(("bar", "value", "limit"), rows)
    keys = (*basis_keys("measured"), Key(limit, "limit"))
    tooltip = tooltips(("bar:N", "of"), ("value:Q", title, ",d"), ("limit:Q", limit, ",d"))
    base = alt.Chart(alt.NamedData(name=DATA)).encode(y=name_axis(), tooltip=tooltip)
    bars = base.mark_bar(color="var(--c-measured)").encode(
        x=alt.X("value:Q", title=title_lines(title), axis=number_axis())
    )
    marks = base.mark_tick(color="var(--c-limit)", thickness=3, size=step(len(rows)) - 3).encode(x="limit:Q")
    chart = alt.layer(bars, marks, width="container", height=len(rows) * step(len(rows)))
    return Chart("memory", label, specification(chart), {DATA: data}, keys, caption)


def lines(
    identifier: str,
    label: str,
    rows: Sequence[tuple[str, float, float | None]],
    keys: Sequence[Key],
    titles: tuple[str, str],
    *,
    percent: bool = False,
    whole: bool = True,
) -> Chart:
    """Draw lines through points: rows of (series, x, y); `percent` draws shares as percentages, `whole` says that x are
    whole numbers."""
    known = [(name, x, 100 * y if percent else y) for name, x, y in rows if y is not None]
    data = Data(("line", "x", "y"), known)
    points = len(data.rows) <= 60 * len(keys)
    y = [row[2] for row in known]
    across = number_axis(tickMinStep=1, format=",d") if whole else number_axis()
    # Without an explicit precision, 80 would become 8e+1.
    upright = alt.Axis(format=",.6~g", tickCount=5)
    # Equal percentages leave space above and below for ticks. Everything else begins at 0, or noise would look like
    # learning.
    within = alt.Scale(domain=[max(0, min(y) - 2), min(100, max(y) + 2)]) if percent else alt.Scale(zero=True)
    chart = (
        open_chart(height=220)
        .mark_line(point={"size": 34, "filled": True} if points else False)
        .encode(
            strokeWidth=alt.StrokeWidth("line:O", scale=_widths(known, keys), legend=None),
            x=alt.X("x:Q", title=title_lines(titles[0]), scale=alt.Scale(nice=False), axis=across),
            y=alt.Y("y:Q", title=titles[1], scale=within, axis=upright),
            color=alt.Color("line:N", scale=colour_scale(keys), legend=None),
            tooltip=tooltips(("line:N", "of"), ("x:Q", titles[0], ",~g"), ("y:Q", titles[1], ",.4~f")),
        )
    )
    return Chart(identifier, label, specification(chart), {DATA: data}, tuple(keys) if len(keys) > 1 else ())


def _widths(rows: Rows, keys: Sequence[Key]) -> "alt.Scale":
    """Return the width of each line; if lines coincide, the first is the broadest, so all are visible."""
    points = grouped((str(name), (x, y)) for name, x, y in rows)
    alike = grouped((tuple(of_line), name) for name, of_line in points.items())
    names = [key.label for key in keys]
    behind = {name: len(group) - 1 - position for group in alike.values() for position, name in enumerate(group)}
    return alt.Scale(domain=names, range=[2 + 3 * behind.get(name, 0) for name in names])


# Pixels: a chart's height, and the least widths of a wide one and of one on a phone.
HEIGHT, WIDE, NARROW = 300, 400, 240
# Pixels: half of a square in a point, a letter's width, a line's height, its distance from the point.
MARK, LETTER, LINE, AWAY = 5, 7.5, 12, 17


@dataclass(frozen=True)
class Point:
    """A named point of cost and time, with its text, and the 80 % ranges of both if known."""

    name: str
    seconds: float
    cost: float
    text: str
    ranges: Mapping[str, Mapping[str, float]] | None = None


def scatter(
    identifier: str, label: str, points: Sequence[Point], keys: Sequence[Key], titles: tuple[str, str], caption: str
) -> Chart:
    """Draw named points with their 80 % ranges as bars; both axes begin at 0.

    Each point has its text above or below, the part before its first comma if the whole would cover another text or
    point, and nothing if that would, too. A narrow chart only has these parts.
    """
    columns = ("line", "x", "y", "text", "x_low", "x_high", "y_low", "y_high", "wide", "side", "narrow", "narrow_side")
    short = [point.text.partition(", ")[0] for point in points]
    wide = _place_texts(points, [(point.text, part) for point, part in zip(points, short, strict=True)], WIDE)
    narrow = _place_texts(points, [(part,) for part in short], NARROW)
    rows: list[Sequence[str | float | None]] = []
    for point, *placed in zip(points, wide, narrow, strict=True):
        known = [(point.ranges or {}).get(name, {}) for name in ("seconds", "cost")]
        ends = [of_figure.get(end) for of_figure in known for end in ("low", "high")]
        rows.append((point.name, point.seconds, point.cost, point.text, *ends, *placed[0], *placed[1]))
    data = Data(columns, rows)

    def x(field: str) -> "alt.X":
        scale = alt.Scale(domain=[0, _most(points, "seconds")], nice=False)
        return alt.X(f"{field}:Q", title=title_lines(titles[0]), axis=number_axis(), scale=scale)

    def y(field: str) -> "alt.Y":
        scale = alt.Scale(domain=[0, _most(points, "cost")], nice=False)
        return alt.Y(f"{field}:Q", title=titles[1], axis=alt.Axis(format="$~g", tickCount=5), scale=scale)

    colour = alt.Color("line:N", scale=colour_scale(keys), legend=None)
    base = alt.Chart(alt.NamedData(name=DATA)).encode(
        x=x("x"),
        y=y("y"),
        tooltip=tooltips(
            ("line:N", "of"),
            *_with_range("x", titles[0], ",.4~r"),
            *_with_range("y", titles[1], "$,.4~r"),
            ("text:N", "is"),
        ),
    )
    marks = base.mark_point(filled=True, size=170, opacity=0.9).encode(color=colour)
    # At the sides, keep texts inside the picture.
    most = _most(points, "seconds")
    align = f"datum.x < {most / 4} ? 'left' : datum.x > {most * 3 / 4} ? 'right' : 'center'"
    names = (
        base.transform_calculate(
            shown=f"width < {WIDE} ? datum.narrow : datum.wide", up=f"width < {WIDE} ? datum.narrow_side : datum.side"
        )
        .mark_text(align=alt.ExprRef(align), dy=alt.ExprRef(f"-{AWAY} * datum.up"))
        .encode(text="shown:N")
    )
    bars = base.transform_filter("isValid(datum.x_low)").mark_rule(strokeWidth=2, opacity=0.55).encode(color=colour)
    ranges = (bars.encode(x=x("x_low"), x2="x_high:Q"), bars.encode(y=y("y_low"), y2="y_high:Q"))
    # An axis without any range would have no extent.
    layers = (*ranges, marks, names) if any(point.ranges for point in points) else (marks, names)
    chart = alt.layer(*layers, width="container", height=HEIGHT)
    return Chart(identifier, label, specification(chart), {DATA: data}, (), caption)


def _with_range(axis: str, title: str, form: str) -> tuple[tuple[str, str, str], ...]:
    return (f"{axis}:Q", title, form), (f"{axis}_low:Q", "80 % range from", form), (f"{axis}_high:Q", "to", form)


def _most(points: Sequence[Point], name: str) -> float:
    """Return the end of an axis, which leaves some room next to the last point."""
    most = max(max(getattr(point, name), point.ranges[name]["high"] if point.ranges else 0) for point in points)
    return 1.05 * most or 1.0


def _place_texts(points: Sequence[Point], texts: Sequence[Sequence[str]], width: int) -> list[tuple[str, int]]:
    """Return each point's text in a chart `width` pixels wide, and whether it is above the point (1) or below it (-1).

    It is the first of its `texts` that covers no other text or point, or an empty one. Points with ranges choose first.
    """
    seconds, cost = _most(points, "seconds"), _most(points, "cost")
    centres = [(width * point.seconds / seconds, HEIGHT * point.cost / cost) for point in points]
    taken = [(x - MARK, x + MARK, y - MARK, y + MARK) for x, y in centres]
    chosen = [("", 0)] * len(points)
    for number in sorted(range(len(points)), key=lambda number: points[number].ranges is None):
        x, y = centres[number]
        others = [centre for other, centre in enumerate(centres) if other != number]
        nearest = min(others, key=lambda centre: math.hypot(centre[0] - x, centre[1] - y), default=(x, y))
        away = 1 if nearest[1] <= y else -1
        for text, side in product(texts[number], (away, -away)):
            long, middle = LETTER * len(text), y + side * AWAY
            left = x if x < width / 4 else x - long if x > width * 3 / 4 else x - long / 2
            box = (left, left + long, middle - LINE / 2, middle + LINE / 2)
            if not any(
                box[0] < each[1] and each[0] < box[1] and box[2] < each[3] and each[2] < box[3] for each in taken
            ):
                taken.append(box)
                chosen[number] = text, side
                break
    return chosen


def gantt(
    identifier: str, label: str, timeline: Timeline, names: Callable[[str], str], title: str, caption: str, name: str
) -> Chart:
    """Draw a timeline in seconds from its start. Dragging moves it; turning the wheel with Shift magnifies it.

    `names` shortens the functions' names; `name` is the heading."""
    columns = ("bar", "start", "end", "phase", "function", "events")
    rows = [
        (
            bar.row,
            round((bar.start_ns - timeline.start_ns) / 1e9, 6),
            round((bar.end_ns - timeline.start_ns) / 1e9, 6),
            bar.phase,
            names(bar.function),
            bar.events,
        )
        for bar in timeline.bars
    ]
    span = (timeline.end_ns - timeline.start_ns) / 1e9
    zoom = alt.selection_interval(bind="scales", encodings=["x"], zoom="wheel![event.shiftKey]")
    chart = (
        open_chart(height=len(timeline.rows) * step(len(timeline.rows), 34, 10))
        .mark_bar(clip=True)
        .encode(
            x=alt.X("start:Q", title=title, scale=alt.Scale(domain=[0, span], nice=False), axis=number_axis()),
            x2="end:Q",
            y=name_axis(sort=list(timeline.rows)),
            color=alt.Color("phase:N", scale=colour_scale(PHASE_KEYS), legend=None),
            tooltip=tooltips(
                ("bar:N", "of"),
                ("phase:N", "phase"),
                ("function:N", "function"),
                ("start:Q", "from, s", ",.3f"),
                ("end:Q", "to, s", ",.3f"),
                ("events:Q", "events", ",d"),
            ),
        )
        .add_params(zoom)
    )
    return Chart(identifier, label, specification(chart), {DATA: Data(columns, rows)}, PHASE_KEYS, caption, name)


def heat_map(label: str, communication: Communication) -> Chart:
    """Draw bytes from participants (rows) to participants (columns), with each cell's bytes by store in its tooltip."""
    moved = grouped(((each.source, each.target), each.bytes) for each in communication.transfers)
    stores = grouped(
        ((each.source, each.target), f"{each.store}: {formats.size(each.bytes)} in {each.messages:,}")
        for each in communication.transfers
    )
    rows = [(*ends, sum(sizes), formats.size(sum(sizes)), "; ".join(stores[ends])) for ends, sizes in moved.items()]
    order = list(communication.participants)
    # A column too narrow for a number only shows it in the tooltip.
    opacity = alt.ExprRef(f"width / {len(order)} > 62 ? 1 : 0")
    base = alt.Chart(alt.NamedData(name=DATA)).encode(
        x=alt.X(
            "target:N",
            sort=order,
            title="to worker",
            axis=alt.Axis(
                labelAngle=0, orient="top", ticks=False, labelLimit=alt.ExprRef(f"max(30, width / {len(order)} - 4)")
            ),
        ),
        y=alt.Y("source:N", sort=order, title="from worker", axis=alt.Axis(ticks=False)),
        tooltip=tooltips(("source:N", "from"), ("target:N", "to"), ("bytes:Q", "bytes", ",d"), ("stores:N", "through")),
    )
    cells = base.mark_rect(fill="var(--c-1)", cornerRadius=2).encode(
        fillOpacity=alt.FillOpacity(
            "bytes:Q", legend=None, scale=alt.Scale(type="sqrt", domainMin=0, range=[0.05, 0.62])
        )
    )
    numbers = base.mark_text(color="var(--text)", fontSize=11, opacity=opacity).encode(text="size:N")
    chart = alt.layer(cells, numbers, width="container", height=len(order) * step(len(order), 34, 18))
    data = Data(("source", "target", "bytes", "size", "stores"), rows)
    return Chart("communication", label, specification(chart), {DATA: data})


def dots(
    identifier: str, label: str, figures: Mapping[str, Mapping[str, Document]], title: str, name: str = "", *,
    log: bool = False,
) -> Chart:  # fmt: skip
    """Draw figures by row and series as points, with their ranges if they have any; `name` is the heading."""
    rows = [
        (row, series, float(figure["value"]), figure.get("low"), figure.get("high"))
        for row, by_series in figures.items()
        for series, figure in by_series.items()
    ]
    data = Data(("bar", "part", "value", "low", "high"), rows)
    drawn = list(dict.fromkeys(series for _, series, *_ in rows))
    keys = basis_keys(*[basis for basis in BASES if basis in drawn]) if {*drawn} <= {*BASES} else series_keys(drawn)
    domain = [key.label for key in keys]
    tooltip = tooltips(
        ("bar:N", "of"),
        ("part:N", "which"),
        ("value:Q", title, ",.6~g"),
        ("low:Q", "from", ",.6~g"),
        ("high:Q", "to", ",.6~g"),
    )
    # In the rows' order; otherwise rows with a range would come first.
    names = list(figures)
    base = alt.Chart(alt.NamedData(name=DATA)).encode(
        y=name_axis(sort=names),
        yOffset=alt.YOffset("part:N", sort=domain),
        color=alt.Color("part:N", scale=colour_scale(keys), legend=None),
        tooltip=tooltip,
    )
    # Also by shape, for readers who can't tell the colours apart.
    shapes = alt.Scale(domain=domain, range=[SHAPES.get(name, "circle") for name in domain])
    scale = alt.Scale(type="log") if log else alt.Undefined
    marks = base.mark_point(filled=True, size=64, opacity=1).encode(
        x=alt.X("value:Q", title=title_lines(title), axis=number_axis(), scale=scale),
        shape=alt.Shape("part:N", scale=shapes, legend=None),
    )
    ranges = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    height = len(names) * max(8 * len(keys) + 12, 34 if any("\n" in bar for bar in names) else 0)
    # An axis without any range would have no extent.
    layers = (ranges, marks) if any(row[3] is not None for row in rows) else (marks,)
    chart = alt.layer(*layers, width="container", height=height)
    return Chart(identifier, label, specification(chart), {DATA: data}, tuple(keys), name=name)


def ratios(identifier: str, label: str, rows: Rows, keys: Sequence[Key], title: str, caption: str) -> Chart:
    """Draw ratios around one on a logarithmic axis: rows of (bar, series, ratio, tolerance, name). A bar shows which
    ratios are within 1 ± tolerance."""
    data = Data(("bar", "part", "value", "tolerance", "name"), rows)
    names = list(dict.fromkeys(str(row[0]) for row in rows))
    base = alt.Chart(alt.NamedData(name=DATA)).encode(y=name_axis(sort=names))
    values = [float(row[2] or 1) for row in rows]
    domain = [min(0.5, *values) / 1.1, max(2, *values) * 1.1]
    scale, axis = alt.Scale(type="log", nice=False, domain=domain), number_axis(format="~g")
    within = (
        base.transform_aggregate(tolerance="max(tolerance)", groupby=["bar"])
        .transform_calculate(low="1 - datum.tolerance", high="1 + datum.tolerance")
        .mark_bar(color="var(--line)", height=22)
        .encode(x=alt.X("low:Q", title=title_lines(title), scale=scale, axis=axis), x2="high:Q")
    )
    points = base.mark_point(filled=True, size=80, opacity=0.8).encode(
        x=alt.X("value:Q", scale=scale),
        color=alt.Color("part:N", scale=colour_scale(keys), legend=None),
        tooltip=tooltips(("name:N", "row"), ("bar:N", "number"), ("value:Q", title, ",.3~g"), ("part:N", "verdict")),
    )
    one = alt.Chart(alt.NamedData(name=DATA)).mark_rule(color="var(--muted)", strokeDash=[4, 3])
    chart = alt.layer(within, one.encode(x=alt.datum(1)), points, width="container", height=len(names) * 34)
    return Chart(identifier, label, specification(chart), {DATA: data}, tuple(keys), caption)
