"""Charts as Vega-Lite specifications, made with Altair. They fill their containers' width; legends are HTML, and wrap."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from slslab.metrics import PHASES
from slslab.reports.html.parts import Chart, Data, Key
from slslab.reports.html.timeline import Timeline

if TYPE_CHECKING:
    import altair as alt

    from slslab.reports.html.communication import Communication

PHASE_KEYS = tuple(Key(phase, phase) for phase in PHASES)
DATA = "data"
SERIES = 8
# Pixels per bar, and characters per line of its name.
STEP, NAME = 26, 18
Rows = Sequence[Sequence[str | int | float | None]]


def series_keys(names: Sequence[str]) -> tuple[Key, ...]:
    """A colour for each name; from the eighth on they share one."""
    return tuple(Key(name, str(min(number, SERIES))) for number, name in enumerate(names, 1))


def basis_keys(*names: str) -> tuple[Key, ...]:
    """The colours of how numbers are known."""
    return tuple(Key(name, name) for name in names)


def stacked_bars(
    identifier: str, label: str, rows: Rows, keys: Sequence[Key], title: str, *, format: str = ",.3f", caption: str = ""
) -> Chart:
    """Horizontal bars of parts: rows of (bar, part, value), the parts in the order of `keys`."""
    import altair as alt

    order = {key.label: number for number, key in enumerate(keys)}
    data = Data(("bar", "part", "value", "order"), [(*row, order[str(row[1])]) for row in rows])
    chart = (
        _chart(height=alt.Step(STEP))
        .mark_bar()
        .encode(
            x=alt.X("value:Q", title=title, stack="zero", axis=_axis()),
            y=_names(),
            color=alt.Color("part:N", scale=_colours(keys), legend=None),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("bar:N", title="of"),
                alt.Tooltip("part:N", title="part"),
                alt.Tooltip("value:Q", title=title, format=format),
            ],
        )
    )
    return Chart(identifier, label, specification(chart), {DATA: data}, tuple(keys), caption)


def grouped_bars(
    identifier: str,
    label: str,
    rows: Rows,
    keys: Sequence[Key],
    title: str,
    *,
    format: str = ",.4~f",
    axis_format: str = "",
    caption: str = "",
) -> Chart:
    """Horizontal bars side by side: rows of (group, series, value); a group without one of the series has no bar."""
    import altair as alt

    data = Data(("bar", "part", "value"), rows)
    several = len(keys) > 1
    encoding: dict[str, Any] = {"yOffset": alt.YOffset("part:N", sort=[key.label for key in keys])} if several else {}
    chart = (
        _chart(height=alt.Step(15 if several else STEP, **({"for": "offset"} if several else {})))
        .mark_bar()
        .encode(
            x=alt.X("value:Q", title=title, axis=_axis(axis_format)),
            y=_names(),
            color=alt.Color("part:N", scale=_colours(keys), legend=None),
            tooltip=[
                alt.Tooltip("bar:N", title="of"),
                alt.Tooltip("part:N", title="which"),
                alt.Tooltip("value:Q", title=title, format=format),
            ],
            **encoding,
        )
    )
    return Chart(identifier, label, specification(chart), {DATA: data}, tuple(keys) if several else (), caption)


def bars_to_limit(identifier: str, label: str, rows: Rows, title: str, limit: str, caption: str = "") -> Chart:
    """Horizontal bars with a mark where each one's limit is: rows of (bar, value, limit or None)."""
    import altair as alt

    data = Data(("bar", "value", "limit"), rows)
    keys = (*basis_keys("measured"), Key(limit, "limit"))
    tooltip = [
        alt.Tooltip("bar:N", title="of"),
        alt.Tooltip("value:Q", title=title, format=",d"),
        alt.Tooltip("limit:Q", title=limit, format=",d"),
    ]
    base = alt.Chart(alt.NamedData(name=DATA)).encode(y=_names(), tooltip=tooltip)
    bars = base.mark_bar(color="var(--c-measured)").encode(x=alt.X("value:Q", title=title, axis=_axis()))
    marks = base.mark_tick(color="var(--c-limit)", thickness=3, size=STEP - 4).encode(x="limit:Q")
    chart = alt.layer(bars, marks, width="container", height=alt.Step(STEP))
    return Chart(identifier, label, specification(chart), {DATA: data}, keys, caption)


def lines(
    identifier: str,
    label: str,
    rows: Rows,
    keys: Sequence[Key],
    titles: tuple[str, str],
    *,
    percent: bool = False,
    whole: bool = True,
    caption: str = "",
) -> Chart:
    """Lines through points: rows of (series, x, y); `percent` for shares, `whole` where x are whole numbers."""
    import altair as alt

    data = Data(("line", "x", "y"), [row for row in rows if row[2] is not None])
    points = len(data.rows) <= 60 * len(keys)
    ticks = {"tickMinStep": 1} if whole else {}
    chart = (
        _chart(height=220)
        .mark_line(point={"size": 34, "filled": True} if points else False, strokeWidth=2)
        .encode(
            x=alt.X("x:Q", title=titles[0], scale=alt.Scale(nice=False), axis=_axis(",~d" if whole else "", **ticks)),
            y=alt.Y(
                "y:Q", title=titles[1], scale=alt.Scale(zero=False), axis=alt.Axis(format=".0%" if percent else "~g")
            ),
            color=alt.Color("line:N", scale=_colours(keys), legend=None),
            tooltip=[
                alt.Tooltip("line:N", title="of"),
                alt.Tooltip("x:Q", title=titles[0], format=",~g"),
                alt.Tooltip("y:Q", title=titles[1], format=".2%" if percent else ",.4~f"),
            ],
        )
    )
    return Chart(identifier, label, specification(chart), {DATA: data}, tuple(keys) if len(keys) > 1 else (), caption)


def gantt(identifier: str, label: str, timeline: Timeline, caption: str) -> Chart:
    """A timeline in seconds from its beginning; dragging moves it, and turning the wheel with Shift magnifies it."""
    import altair as alt

    columns = ("bar", "start", "end", "phase", "function", "events")
    rows = [
        (
            bar.row,
            round((bar.start_ns - timeline.start_ns) / 1e9, 6),
            round((bar.end_ns - timeline.start_ns) / 1e9, 6),
            bar.phase,
            bar.function,
            bar.events,
        )
        for bar in timeline.bars
    ]
    span = (timeline.end_ns - timeline.start_ns) / 1e9
    zoom = alt.selection_interval(bind="scales", encodings=["x"], zoom="wheel![event.shiftKey]")
    chart = (
        _chart(height=alt.Step(34 if len(timeline.rows) <= 8 else 22 if len(timeline.rows) <= 24 else 15))
        .mark_bar(clip=True)
        .encode(
            x=alt.X("start:Q", title="wall time, s", scale=alt.Scale(domain=[0, span], nice=False), axis=_axis()),
            x2="end:Q",
            y=_names(sort=list(timeline.rows)),
            color=alt.Color("phase:N", scale=_colours(PHASE_KEYS), legend=None),
            tooltip=[
                alt.Tooltip("bar:N", title="of"),
                alt.Tooltip("phase:N", title="phase"),
                alt.Tooltip("function:N", title="function"),
                alt.Tooltip("start:Q", title="from, s", format=",.3f"),
                alt.Tooltip("end:Q", title="to, s", format=",.3f"),
                alt.Tooltip("events:Q", title="events", format=",d"),
            ],
        )
        .add_params(zoom)
    )
    return Chart(identifier, label, specification(chart), {DATA: Data(columns, rows)}, PHASE_KEYS, caption)


def heat_map(identifier: str, label: str, found: "Communication", texts: Mapping[tuple[str, str], str]) -> Chart:
    """Bytes from participants (rows) to participants (columns); `texts` has those of each cell by store."""
    import altair as alt

    total: dict[tuple[str, str], int] = {}
    for one in found.transfers:
        total[one.source, one.target] = total.get((one.source, one.target), 0) + one.bytes
    rows = [(*ends, amount, texts[ends]) for ends, amount in total.items()]
    order = list(found.participants)
    # Where a column is narrower than a number, it has none; the tooltip has.
    room = alt.ExprRef(f"width / {len(order)} > 58 ? 1 : 0")
    base = alt.Chart(alt.NamedData(name=DATA)).encode(
        x=alt.X("target:N", sort=order, title="to worker", axis=alt.Axis(labelAngle=0, orient="top", ticks=False)),
        y=alt.Y("source:N", sort=order, title="from worker", axis=alt.Axis(ticks=False)),
        tooltip=[
            alt.Tooltip("source:N", title="from"),
            alt.Tooltip("target:N", title="to"),
            alt.Tooltip("bytes:Q", title="bytes", format=",d"),
            alt.Tooltip("stores:N", title="through"),
        ],
    )
    cells = base.mark_rect(fill="var(--c-1)", cornerRadius=2).encode(
        fillOpacity=alt.FillOpacity(
            "bytes:Q", legend=None, scale=alt.Scale(type="sqrt", domainMin=0, range=[0.05, 0.62])
        )
    )
    numbers = base.mark_text(color="var(--text)", fontSize=11, opacity=room).encode(text=alt.Text("bytes:Q", format=".3~s"))
    step = 34 if len(order) <= 12 else 18
    chart = alt.layer(cells, numbers, width="container", height=alt.Step(step))
    data = Data(("source", "target", "bytes", "stores"), rows)
    return Chart(identifier, label, specification(chart), {DATA: data})


def specification(chart: "alt.TopLevelMixin") -> Mapping[str, Any]:
    """A chart as a Vega-Lite document without what the page itself adds."""
    document: dict[str, Any] = chart.to_dict()
    for name in ("$schema", "config"):
        document.pop(name, None)
    return {"autosize": {"type": "fit-x", "contains": "padding"}, **document}


def _chart(height: Any) -> "alt.Chart":
    import altair as alt

    return alt.Chart(alt.NamedData(name=DATA), width="container", height=height)


def _axis(format: str = "", **more: Any) -> "alt.Axis":
    """A horizontal axis of numbers with about one tick per 90 pixels."""
    import altair as alt

    given = {"format": format} if format else {}
    return alt.Axis(tickCount=alt.ExprRef("max(2, round(width / 90))"), labelOverlap=True, **given, **more)


def _names(sort: list[str] | None = None) -> "alt.Y":
    """A vertical axis of names in the order of the data, those with line breaks on several lines."""
    import altair as alt

    axis = alt.Axis(labelExpr=r"split(datum.label, '\n')", labelLimit=150, domain=False, ticks=False)
    return alt.Y("bar:N", title=None, sort=sort, axis=axis)


def wrap(name: str) -> str:
    """A long name on several lines, as the names of bars are written."""
    return fill(name, NAME, break_long_words=False)


def _colours(keys: Sequence[Key]) -> "alt.Scale":
    import altair as alt

    return alt.Scale(domain=[key.label for key in keys], range=[f"var(--c-{key.colour})" for key in keys])
