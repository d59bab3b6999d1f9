"""The parts of docs/atlas.md that are built: the atlas that was saved with its recordings, and its checks."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from slslab.report.formats import capitalised
from slslab.report.page import Part
from slslab_lab.pages import atlas
from slslab_lab.studies import committed
from slslab_lab.studies.saving import ATLAS, CHECKS

SYSTEM = (
    "A system is ARCHITECTURE/CHANNEL/ALGORITHM, the values of "
    "`slslab run ARCHITECTURE --channel CHANNEL --algorithm ALGORITHM`."
)


def find_best() -> Iterator[Part]:
    """Yield what `slslab atlas` prints, under headings, and the papers' crossings that aren't on its axes."""
    document = _read(Path(ATLAS))
    for group, title in document["groups"].items():
        yield f"## {capitalised(title)}"
        yield "\n".join(atlas.answers(document, group))
        if group == "equal":
            yield atlas.job(document)
            yield SYSTEM
        yield from (atlas.strips(document, group, objective) for objective in atlas.BEST)
    crossings = atlas.crossings(document)
    yield f"## {crossings.caption}"
    yield replace(crossings, caption="")
    yield "Not on these axes:"
    yield "\n".join(f"{each['crossing']}: {each['why']}." for each in document["elsewhere"])
    yield "## What the figures rest on"
    yield "\n".join(document["notes"])


def compare_runs() -> Iterator[Part]:
    """Yield what `slslab atlas --check` prints."""
    return atlas.checked(_read(Path("checks", CHECKS)))


def _read(name: Path) -> Any:
    return json.loads((committed("atlas") / name).read_text(encoding="utf-8"))
