"""Time against cost of an epoch: Table 2's rows as points, published and modelled.

What Figure 3 of Barrak et al. draws could not be established: its data are nowhere in the text. This is the
only comparison of the paper that no other table or figure of it shows, and the document says so."""

from collections.abc import Mapping
from typing import Any

from slslab_lab.studies.table2 import COST, EPOCH

NOTE = (
    "What Figure 3 draws could not be established, and its data are not in the text; drawn here are time and cost of "
    "Table 2's rows, the only comparison of the paper that no other table or figure of it shows."
)


def build(table2: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figure's document, made of Table 2's."""
    rows = [{**row, "cells": {name: row["cells"][name] for name in (EPOCH, COST)}} for row in table2["rows"]]
    return {
        **table2,
        "reproduces": "fig3",
        "columns": [column for column in table2["columns"] if column["name"] in (EPOCH, COST)],
        "rows": rows,
        "rankings": [],
        "bills": [],
        "curves": [_points(group, rows) for group in dict.fromkeys(row["group"] for row in rows)],
        "notes": [NOTE, *table2["notes"]],
    }


def _points(group: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a group's rows as points: a line of one point for each row, once published and once for each variant."""
    lines: dict[str, tuple[float, float]] = {}
    for row in rows:
        if row["group"] == group:
            seconds, cost = row["cells"][EPOCH], row["cells"][COST]
            lines[f"{row['name']}, published"] = (float(seconds["published"]), float(cost["published"]))
            if seconds["modelled"] and cost["modelled"]:
                lines[f"{row['name']}, {row['variant']}"] = (seconds["modelled"]["value"], cost["modelled"]["value"])
    return {
        "title": f"Time and cost of an epoch, {group}",
        "x": {"title": "Time per worker", "unit": "s"},
        "y": {"title": "Total cost", "unit": "USD"},
        "lines": [{"name": name, "x": [x], "y": [y]} for name, (x, y) in lines.items()],
    }
