"""docs/atlas.md: the fastest and the cheapest system, by the atlas that was saved with its recordings."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from docs.pages.markdown import code, paragraph, render

from slslab_lab.pages import atlas
from slslab_lab.studies import committed
from slslab_lab.studies.saving import ATLAS, CHECKS

TITLE = "# The atlas: fastest and cheapest"
COMMAND = "slslab atlas --recordings results/atlas --out results/atlas"
CHECK = "slslab atlas --check --out results/atlas/checks"
RECORD = "slslab atlas --record --recordings results/atlas --out results/atlas"


def build() -> str:
    """Return the whole page."""
    folder = committed("atlas")
    document, checks = (json.loads((folder / name).read_text()) for name in (ATLAS, f"checks/{CHECKS}"))
    return (
        "\n\n".join([TITLE, *_answers(document), *_maps(document), *_papers(document), *_basis(document, checks)])
        + "\n"
    )


def _answers(document: Mapping[str, Any]) -> Iterator[str]:
    for group, title in document["groups"].items():
        yield paragraph(f"Of {title}:")
        yield "\n".join(f"- {answer}" for answer in atlas.answers(document, group))
    yield paragraph(atlas.job(document))
    yield paragraph(
        f"`{COMMAND}` makes these figures, a page with charts (`atlas.html`) and all points (`points.csv`), in a "
        "minute on one processor. `--epochs`, `--profile` and `--prices` choose another job. A system is "
        "ARCHITECTURE/CHANNEL/ALGORITHM, the values of "
        "`slslab run ARCHITECTURE --channel CHANNEL --algorithm ALGORITHM`."
    )


def _maps(document: Mapping[str, Any]) -> Iterator[str]:
    for group in document["groups"]:
        yield f"## {atlas.GROUPS[group]}"
        yield from (render(atlas.strips(document, group, objective)) for objective in atlas.BEST)


def _papers(document: Mapping[str, Any]) -> Iterator[str]:
    yield "## The papers' own crossings"
    yield render(atlas.crossings(document))
    yield paragraph(
        "The atlas uses the nearest number of workers. The verdict compares the sizes between which the other system "
        "becomes better. LambdaML's ratios include the start of a node, and its jobs are longer than this one."
    )
    yield "Not on these axes:"
    yield "\n".join(f"- {each['crossing']}: {each['why']}." for each in document["elsewhere"])


def _basis(document: Mapping[str, Any], checks: Mapping[str, Any]) -> Iterator[str]:
    yield "## What the figures rest on"
    yield "\n".join(f"- {note}" for note in document["notes"])
    yield paragraph(f"{code(RECORD)} makes the atlas's own recordings; it repeats the ones that weren't quiet.")
    yield "## Three points next to real runs"
    yield paragraph(f"`{CHECK}` runs three points that the atlas has no recording of.")
    yield render(atlas.checks(checks))
    yield paragraph(" ".join(checks["notes"]))
