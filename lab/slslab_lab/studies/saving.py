"""Save a reproduction: its document, its cells as a table, and its page; and the atlas, with its points in a separate
file."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slslab.errors import writable
from slslab.run.log import replacing
from slslab_lab.runs.accuracy.directory import csv_text

ATLAS, CHECKS = "atlas.json", "checks.json"
FIELDS = (
    "row", "group", "variant", "column", "unit", "published", "way", "recomputed", "measured", "measured_low",
    "measured_high", "modelled", "modelled_low", "modelled_high", "difference", "verdict", "reason",
)  # fmt: skip


def save(document: Mapping[str, Any], directory: Path) -> tuple[Path, ...]:
    """Write NAME.json, NAME.csv and NAME.html, replacing earlier ones; RequestError if they can't be written."""
    from slslab.report.html.page import make_page
    from slslab_lab.pages.reproduction import describe_reproduction

    name = document["reproduces"]
    return write_texts(
        directory,
        {
            f"{name}.json": json.dumps(document, indent=2) + "\n",
            f"{name}.csv": csv_text(FIELDS, cells(document)),
            f"{name}.html": make_page(describe_reproduction(document)),
        },
    )


def save_atlas(document: Mapping[str, Any], directory: Path) -> tuple[Path, ...]:
    """Write atlas.html, atlas.json and points.csv, replacing earlier ones; RequestError if they can't be written."""
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
    """Write checks.json, replacing an earlier one; RequestError if it can't be written."""
    (path,) = write_texts(directory, {CHECKS: _text(document)})
    return path


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps({"schema": 1, **document}, indent=1) + "\n"


def write_texts(directory: Path, texts: Mapping[str, str]) -> tuple[Path, ...]:
    """Write texts to files of a directory, by their names; RequestError if they can't be written."""
    with writable(directory, "choose another --out."):
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            with replacing(directory / name) as file:
                file.write(text.encode())
    return tuple(directory / name for name in texts)


def cells(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one record per cell and way of recomputing it."""
    units = {column["name"]: column["unit"] for column in document["columns"]}
    for row in document["rows"]:
        for column, cell in row["cells"].items():
            record: dict[str, Any] = {
                "row": row["name"],
                "group": row["group"],
                "variant": row["variant"],
                "column": column,
                "unit": units[column],
                **{name: cell[name] for name in ("published", "difference", "verdict", "reason")},
                **{
                    f"{basis}{suffix}": cell[basis][name]
                    for basis in ("measured", "modelled")
                    for suffix, name in (("", "value"), ("_low", "low"), ("_high", "high"))
                    if cell[basis] is not None
                },
            }
            for again in cell["recomputed"] or [{}]:
                yield {**record, "way": again.get("way"), "recomputed": again.get("value")}
