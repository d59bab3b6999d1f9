"""What `slslab export` wrote, for a terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from slslab.report.terminal.bills import bill
from slslab.report.terminal.tables import plain_table

# Headings, and the entries of the document below them.
COLUMNS = {
    "files": (("table", "rows", "file"), ("table", "rows", "path")),
    "tensorboard": (("run", "", "directory"), ("run", "state", "path")),
    "mlflow": (("run", "", "MLflow run"), ("run", "state", "mlflow_run")),
}


def export(document: Mapping[str, Any]) -> Table:
    """Return one line per file or run."""
    headings, names = COLUMNS.get(document["to"], COLUMNS["files"])
    title = f"Experiment {document['experiment']} at {document['tracking_uri']}" if "experiment" in document else None
    rows = ((_text(entry[name]) for name in names) for entry in document["written"])
    return plain_table(headings, map(tuple, rows), title=title, words=True)


def sam(document: Mapping[str, Any]) -> Group:
    """Return what the run will cost, and below it what was written."""
    cost = document["cost"]
    table = [] if cost["bill"] is None else [bill(cost["bill"])]
    written = f"{document['out']}: {', '.join(document['files'])}\nNext: what its README.md says"
    return Group(Text(f"{cost['sentence']}\n{cost['source']}"), *table, Text(written))


def _text(value: str | int) -> str:
    return f"{value:,}" if isinstance(value, int) else value
