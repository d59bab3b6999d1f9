"""The parts of docs/atlas.md that are built: the atlas that was saved with its recordings, and its checks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.pages.results import with_headings

from slslab.report.page import Note, Part
from slslab_lab.pages import atlas
from slslab_lab.studies import committed
from slslab_lab.studies.saving import ATLAS, CHECKS


def find_best() -> Iterator[Part]:
    """Yield what `slslab atlas` prints, and the papers' crossings that aren't on its axes."""
    document = _read(Path(ATLAS))
    for part in with_headings(atlas.shown(document)):
        # Groups of systems are headings here.
        yield f"## {part.text}" if isinstance(part, Note) and part.mood == "answer" else part
    yield "Not on these axes:"
    yield "\n".join(f"{each['crossing']}: {each['why']}." for each in document["elsewhere"])


def compare_runs() -> Iterator[Part]:
    """Yield what `slslab atlas --check` prints."""
    return atlas.checked(_read(Path("checks", CHECKS)))


def _read(name: Path) -> Any:
    return json.loads((committed("atlas") / name).read_text(encoding="utf-8"))
