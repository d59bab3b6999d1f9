"""What `slslab export` wrote, for a terminal."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from slslab.reports.tables import plain_table


def export(document: Mapping[str, Any]) -> Table:
    """One line per file or run."""
    if document["to"] in ("csv", "parquet"):
        table = plain_table("table", "rows", "file", words=True)
        for one in document["written"]:
            table.add_row(one["table"], f"{one['rows']:,}", one["path"])
    elif document["to"] == "tensorboard":
        table = plain_table("run", "", "directory", words=True)
        for one in document["written"]:
            table.add_row(one["run"], one["state"], one["path"])
    else:
        title = f"Experiment {document['experiment']} at {document['tracking_uri']}"
        table = plain_table("run", "", "MLflow run", title=title, words=True)
        for one in document["written"]:
            table.add_row(one["run"], one["state"], one["mlflow_run"])
    return table
