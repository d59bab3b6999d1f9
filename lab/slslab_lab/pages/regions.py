"""The chart of the atlas: the best system over model sizes and numbers of workers, with its crossing lines."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slslab.report.page import Key
from slslab_lab.pages.scales import DATA, colour_scale, specification, tooltips

if TYPE_CHECKING:
    import altair as alt
else:
    from slslab_lab.pages.scales import alt

LINES, MARKS = "lines", "marks"
BAND = 34


def draw_regions(workers: Sequence[int], sizes: Sequence[float], keys: Sequence[Key]) -> Mapping[str, Any]:
    """Draw bands of workers over sizes of the model, MB, coloured by the best system; return the specification.

    Its data are the bands, crossing LINES of two systems, and MARKS at crossings that papers published.
    """
    scale = alt.Scale(type="log", domain=[min(sizes), max(sizes)], nice=False)

    def across(field: str) -> "alt.X":
        axis = alt.Axis(format="~g", tickCount=5, grid=False)
        return alt.X(f"{field}:Q", title="size of the model, MB", scale=scale, axis=axis)

    upright = alt.Y("workers:O", sort=list(workers), title="workers", axis=alt.Axis(domain=False, ticks=False))
    areas = (
        alt.Chart(alt.NamedData(name=DATA))
        .mark_rect()
        .encode(
            x=across("low"),
            x2="high:Q",
            y=upright,
            color=alt.Color("system:N", scale=colour_scale(keys), legend=None),
            opacity=alt.condition("datum.beyond == ''", alt.value(0.95), alt.value(0.5)),
            tooltip=tooltips(
                ("system:N", "best"),
                ("workers:O", "workers"),
                ("low:Q", "from, MB", ".3~r"),
                ("high:Q", "to, MB", ".3~r"),
                ("best:N", "at its middle"),
                ("beyond:N", "extrapolated"),
            ),
        )
    )
    cuts = alt.Chart(alt.NamedData(name=LINES)).encode(x=across("megabytes"), y=upright)
    ticks = cuts.mark_tick(color="var(--card)", thickness=3, size=BAND, orient="vertical")
    joined = cuts.mark_line(color="var(--text)", strokeWidth=1.5, point={"size": 26, "color": "var(--text)"}).encode(
        detail="pair:N", order=alt.Order("workers:O"), tooltip=tooltips(("pair:N", "crossing of"))
    )
    papers = alt.Chart(alt.NamedData(name=MARKS)).encode(
        y=upright,
        tooltip=tooltips(("pair:N", "published crossing"), ("told:N", "as published"), ("verdict:N", "the atlas")),
    )
    spans = papers.mark_rule(color="var(--c-limit)", strokeWidth=3, strokeDash=[6, 3]).encode(
        x=across("low"), x2="high:Q"
    )
    ends = papers.mark_point(shape="diamond", filled=True, size=70, color="var(--c-limit)").encode(x=across("high"))
    # On a phone only the tooltip has the names: they are longer than the chart is wide.
    names = papers.mark_text(align="right", dy=-9, fontSize=11, opacity=alt.ExprRef("width < 400 ? 0 : 1"))
    names = names.encode(x=across("high"), text="pair:N")
    chart = alt.layer(areas, ticks, joined, spans, ends, names, width="container", height=BAND * len(workers))
    return specification(chart)
