"""Charts as Vega-Lite specifications, made with Altair; what is drawn, not how wide: they fill their containers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slslab.reports.html.parts import Chart, Data, Key

if TYPE_CHECKING:
    import altair as alt

PHASES = ("init", "fetch", "compute", "synchronise", "update", "wait", "other")
PHASE_KEYS = tuple(Key(phase, phase) for phase in PHASES)
DATA = "data"
Rows = Sequence[Sequence[str | int | float | None]]


def series_keys(names: Sequence[str]) -> tuple[Key, ...]:
    """A colour for each of up to eight names; further ones share the last."""
    return tuple(Key(name, str(min(number, 8))) for number, name in enumerate(names, 1))


def specification(chart: "alt.TopLevelMixin") -> Mapping[str, Any]:
    """A chart as a Vega-Lite document without what the page itself adds."""
    document: dict[str, Any] = chart.to_dict()
    for name in ("$schema", "config"):
        document.pop(name, None)
    return {"autosize": {"type": "fit-x", "contains": "padding"}, **document}


def colours(keys: Sequence[Key]) -> "alt.Scale":
    """The colours of a legend, which is drawn in HTML, where it wraps."""
    import altair as alt

    return alt.Scale(domain=[key.label for key in keys], range=[f"var(--c-{key.colour})" for key in keys])


def stacked_bars(
    identifier: str, label: str, rows: Rows, keys: Sequence[Key], title: str, *, format: str = ",.3f", caption: str = ""
) -> Chart:
    """Horizontal bars of parts: rows of (bar, part, value), the parts in the order of `keys`."""
    import altair as alt

    order = {key.label: number for number, key in enumerate(keys)}
    data = Data(("bar", "part", "value", "order"), [(*row, order[str(row[1])]) for row in rows])
    chart = (
        alt.Chart(alt.NamedData(name=DATA), width="container", height=alt.Step(28))
        .mark_bar()
        .encode(
            x=alt.X("value:Q", title=title, stack="zero", axis=alt.Axis(tickCount=_ticks())),
            y=alt.Y("bar:N", title=None, sort=None, axis=alt.Axis(labelLimit=150, domain=False, ticks=False)),
            color=alt.Color("part:N", scale=colours(keys), legend=None),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("bar:N", title="of"),
                alt.Tooltip("part:N", title="part"),
                alt.Tooltip("value:Q", title=title, format=format),
            ],
        )
    )
    return Chart(identifier, label, specification(chart), {DATA: data}, tuple(keys), caption)


def _ticks() -> "alt.ExprRef":
    """About one tick per 90 pixels of an axis' length."""
    import altair as alt

    return alt.ExprRef("max(2, round(width / 90))")
