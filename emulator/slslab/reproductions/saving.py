"""Writes a reproduction to files: its document, its cells (of a figure that has none: its points) as a table, and its
page."""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slslab.errors import RequestError
from slslab.trace import replacing

FIELDS = (
    "row", "group", "variant", "column", "unit", "published", "way", "recomputed", "measured", "measured_low",
    "measured_high", "modelled", "modelled_low", "modelled_high", "difference", "verdict", "reason",
)  # fmt: skip


def save(document: Mapping[str, Any], directory: Path) -> tuple[Path, ...]:
    """Write NAME.json, NAME.csv and NAME.html; what is there already is replaced. RequestError if it cannot be."""
    from slslab.reports.html.pages import reproduction_page

    name = document["reproduces"]
    texts = {
        directory / f"{name}.json": json.dumps(document, indent=2) + "\n",
        directory / f"{name}.csv": _table(document),
        directory / f"{name}.html": reproduction_page(document),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            with replacing(path) as file:
                file.write(text.encode())
    except OSError as error:
        raise RequestError(f"{directory} cannot be written: {error.strerror}.", "choose another --out.") from error
    return tuple(texts)


def _table(document: Mapping[str, Any]) -> str:
    import io

    text = io.StringIO()
    figure = not document["columns"] and document["curves"]
    fields = ("variant", "curve", *(document["curves"][0][axis]["name"] for axis in "xy")) if figure else FIELDS
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(points(document) if figure else cells(document))
    return text.getvalue()


def points(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One record per point of each line, under the names of its axes."""
    known = []
    for curve in document["curves"]:
        for line in curve["lines"]:
            # What has one variant alone is in the pictures of both.
            if line in known:
                continue
            known.append(line)
            for x, y in zip(line["x"], line["y"], strict=True):
                place = {curve["x"]["name"]: x, curve["y"]["name"]: y}
                yield {"variant": curve["variant"], "curve": line["name"], **place}


def cells(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One record per cell, and way of recomputing it."""
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
            }
            for basis in ("measured", "modelled"):
                if cell[basis] is not None:
                    record |= {basis: cell[basis]["value"]}
                    record |= {f"{basis}_{end}": cell[basis][end] for end in ("low", "high")}
            for again in cell["recomputed"] or [{}]:
                yield {**record, "way": again.get("way"), "recomputed": again.get("value")}
