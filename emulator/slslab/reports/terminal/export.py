"""What `slslab export` wrote, for a terminal."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from slslab.reports.terminal.tables import plain_table

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


def _text(value: str | int) -> str:
    return f"{value:,}" if isinstance(value, int) else value
