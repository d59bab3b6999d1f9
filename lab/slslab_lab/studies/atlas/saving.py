"""The files of the atlas: its page, its document without the points, and the points as a table."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slslab_lab.studies.kept import csv_text, write_texts

ATLAS, CHECKS = "atlas.json", "checks.json"


def save(document: Mapping[str, Any], directory: Path) -> tuple[Path, ...]:
    """Write atlas.html, atlas.json and points.csv, replacing earlier ones; RequestError if they cannot be written."""
    from slslab.report.html.page import make_page
    from slslab_lab.pages.atlas import describe_atlas

    points = document["points"]
    records = ({**point, "reasons": "; ".join(point["reasons"])} for point in points)
    return write_texts(
        directory,
        {
            "atlas.html": make_page(describe_atlas(document)),
            ATLAS: _text({name: value for name, value in document.items() if name != "points"}),
            "points.csv": csv_text(tuple(points[0]), records),
        },
    )


def save_checks(document: Mapping[str, Any], directory: Path) -> Path:
    """Write checks.json, replacing an earlier one; RequestError if it cannot be written."""
    (path,) = write_texts(directory, {CHECKS: _text(document)})
    return path


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps({"schema": 1, **document}, indent=1) + "\n"
