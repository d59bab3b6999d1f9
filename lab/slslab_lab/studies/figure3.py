"""Time against cost of an epoch: Table 2's rows as points, published and modelled.

Barrak et al. don't say what Figure 3 shows, and don't print its data. Time against cost is the paper's only comparison
that no other table or figure shows; the document says so."""

from collections.abc import Mapping
from typing import Any

from slslab_lab.studies import table2
from slslab_lab.studies.documents import make_curve
from slslab_lab.studies.experiments import Runs
from slslab_lab.studies.study import Setup
from slslab_lab.studies.table2 import COST, EPOCH

NOTE = (
    "The paper doesn't say what Figure 3 shows and doesn't print its data. Drawn here are time and cost of Table 2's "
    "rows, its only comparison that no other table or figure shows."
)


def build(setup: Setup, runs: Runs) -> dict[str, Any]:
    """Return the figure's document."""
    return of_table(table2.build(setup, runs))


def of_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figure's document, made from Table 2's."""
    rows = [{**row, "cells": {name: row["cells"][name] for name in (EPOCH, COST)}} for row in table["rows"]]
    return {
        **table,
        "columns": [column for column in table["columns"] if column["name"] in (EPOCH, COST)],
        "rows": rows,
        "rankings": [],
        "bills": [],
        "curves": [_points(group, rows) for group in dict.fromkeys(row["group"] for row in rows)],
        "notes": [NOTE, *table["notes"]],
    }


def _points(group: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    lines: dict[str, tuple[float, float]] = {}
    for row in rows:
        if row["group"] == group:
            seconds, cost = row["cells"][EPOCH], row["cells"][COST]
            lines[f"{row['name']}, published"] = (float(seconds["published"]), float(cost["published"]))
            if seconds["modelled"] and cost["modelled"]:
                lines[f"{row['name']}, {row['variant']}"] = (seconds["modelled"]["value"], cost["modelled"]["value"])
    axes = (EPOCH, "Time per worker", "s"), (COST, "Total cost", "USD")
    points = [(name, [x], [y]) for name, (x, y) in lines.items()]
    return make_curve(f"Time and cost of an epoch, {group}", "", *axes, points)
