"""The parts of docs/atlas.md that are built: the atlas that was saved with its recordings, and its checks."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from slslab.report.page import Document, Part
from slslab_lab.pages import atlas
from slslab_lab.studies import committed
from slslab_lab.studies.saving import ATLAS, CHECKS


def find_best() -> Iterator[Part]:
    """Yield the answers, the job behind all figures, and the rest of the atlas under headings."""
    document = _read(Path(ATLAS))
    equal, everything = document["groups"]
    yield from _answers(document, equal)
    yield atlas.job(document)
    yield (
        "A system is ARCHITECTURE/CHANNEL/ALGORITHM, the values of "
        "`slslab run ARCHITECTURE --channel CHANNEL --algorithm ALGORITHM`."
    )
    yield f"## {atlas.GROUPS[equal]}"
    yield from (atlas.strips(document, equal, objective) for objective in atlas.BEST)
    yield f"## {atlas.GROUPS[everything]}"
    yield from _answers(document, everything)
    yield from (atlas.strips(document, everything, objective) for objective in atlas.BEST)
    crossings = atlas.crossings(document)
    yield f"## {crossings.caption}"
    yield replace(crossings, caption="")
    yield (
        "The atlas uses the nearest number of workers. The verdict compares the sizes between which the other system "
        "becomes better. LambdaML's ratios include the start of a node, and its jobs are longer than this one."
    )
    yield "Not on these axes:"
    yield "\n".join(f"{each['crossing']}: {each['why']}." for each in document["elsewhere"])
    yield "## What the figures rest on"
    yield "\n".join(document["notes"])


def _answers(document: Document, group: str) -> Iterator[Part]:
    yield f"Of {document['groups'][group]}:"
    yield "\n".join(atlas.answers(document, group))


def compare_runs() -> Iterator[Part]:
    """Yield what `slslab atlas --check` prints."""
    return atlas.checked(_read(Path("checks", CHECKS)))


def _read(name: Path) -> Any:
    return json.loads((committed("atlas") / name).read_text(encoding="utf-8"))
