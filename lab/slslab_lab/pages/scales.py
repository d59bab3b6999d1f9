"""Common parts of all charts: their frame, axes, colours and legends."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from slslab.report.page import Key
from slslab.run.metrics import PHASES
from slslab_workers.architecture import architectures

if TYPE_CHECKING:
    import altair as alt
else:

    class _Altair:
        """Import Altair on first use: that takes a second, and a terminal doesn't need it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(import_module("altair"), name)

    alt = _Altair()

PHASE_KEYS = tuple(Key(phase, phase) for phase in PHASES)
DATA = "data"
SERIES = 8


def series_keys(names: Sequence[str]) -> tuple[Key, ...]:
    """Return a colour for each name, repeating from the eighth on; different architectures get their own."""
    known = {each.title.partition(" ")[0]: each.colour for each in architectures().values() if each.colour}
    own = [next((colour for word, colour in known.items() if word in name.split()), "") for name in names]
    numbered = [str(min(number, SERIES)) for number in range(1, len(names) + 1)]
    colours = own if all(own) and len(set(own)) == len(own) else numbered
    return tuple(map(Key, names, colours))


def basis_keys(*names: str) -> tuple[Key, ...]:
    """Return the colours of measured, modelled and other bases."""
    return tuple(Key(name, name) for name in names)


def specification(chart: "alt.TopLevelMixin") -> Mapping[str, Any]:
    """Return a chart as a Vega-Lite document without the parts that the page adds."""
    document: dict[str, Any] = chart.to_dict()
    for name in ("$schema", "config"):
        document.pop(name, None)
    return {"autosize": {"type": "fit-x", "contains": "padding"}, **document}


def step(bars: int, most: int = 26, least: int = 4) -> int:
    """Return the height in pixels of each of `bars` bars: less if there are many."""
    return max(least, min(most, 720 // max(1, bars)))


def open_chart(height: Any) -> "alt.Chart":
    return alt.Chart(alt.NamedData(name=DATA), width="container", height=height)


def number_axis(**more: Any) -> "alt.Axis":
    """Return a horizontal axis of numbers with about one tick per 90 pixels; labels near its ends stay inside."""
    return alt.Axis(tickCount=alt.ExprRef("max(3, round(width / 90))"), labelOverlap=True, labelFlush=24, **more)


def title_lines(title: str) -> list[str]:
    """Return a horizontal axis's title in lines that fit a phone, with the unit next to the word before it."""
    name, comma, unit = title.rpartition(", ")
    return wrap(f"{name},\N{NO-BREAK SPACE}{unit}" if comma else title, 24)


def name_axis(sort: list[str] | None = None) -> "alt.Y":
    """Return a vertical axis of names in the order of the data, splitting names at line breaks."""
    lines = r"split(datum.label, '\n')"
    axis = alt.Axis(
        labelExpr=lines,
        # A text of two lines hangs from the middle of its first line.
        labelOffset=alt.ExprRef(rf"length({lines}) > 1 ? -7 : 0"),
        labelLimit=185,
        labelOverlap=True,
        domain=False,
        ticks=False,
    )
    return alt.Y("bar:N", title=None, sort=sort, axis=axis)


def colour_scale(keys: Sequence[Key]) -> "alt.Scale":
    return alt.Scale(domain=[key.label for key in keys], range=[f"var(--c-{key.colour})" for key in keys])


def tooltips(*fields: Sequence[str]) -> "list[alt.Tooltip]":
    """Return tooltips of a mark: fields with their titles and, for numbers, their formats."""
    return [
        alt.Tooltip(field, title=title, format=form[0] if form else alt.Undefined) for field, title, *form in fields
    ]
