"""docs/profiles.md: every figure of the built-in profiles, with its status and source."""

import tomllib
from collections.abc import Iterator

from docs.pages.markdown import code

from slslab.predict.profiles.profile import PROFILES, Figure, figures, load_profile, profile_names
from slslab.report.page import Part, Table


def build() -> Iterator[Part]:
    """Yield the page."""
    yield "# Figures of the profiles"
    yield (
        "[Replay](replay.md#profiles) says what a profile is and what its entries mean. MB/s are 10⁶ bytes per "
        "second. A profile with a base contains only the figures that differ from it."
    )
    for name in profile_names():
        profile = load_profile(name)
        base = tomllib.loads((PROFILES / f"{name}.toml").read_text(encoding="utf-8")).get("base")
        known = dict(figures(load_profile(base))) if base else {}
        yield f"## {name}"
        yield f"{profile.description}. {profile.date:%-d %B %Y}."
        if base:
            yield f"Base: {code(base)}."
        rows = [
            (entry, value_of(figure), figure.status, figure.source)
            for entry, figure in figures(profile)
            if known.get(entry) != figure
        ]
        yield Table(("figure", "value", "status", "source"), rows, words=(0, 2, 3))


def value_of(figure: Figure) -> str:
    """Return a figure's value, with its range if it has one."""
    return f"{figure.value:g}" + ("" if figure.low is None else f" ({figure.low:g} to {figure.high:g})")
