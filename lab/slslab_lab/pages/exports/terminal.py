"""The output of `slslab export`, for a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from slslab.report.bill_tables import bill_table
from slslab.report.formats import listed
from slslab.report.page import WORDS, Note, Part, Table
from slslab.report.summaries import IMPORTS_UNKNOWN

# Headings, and the document's entries below them.
COLUMNS = {
    "files": (("table", "rows", "file"), ("table", "rows", "path")),
    "tensorboard": (("run", "", "directory"), ("run", "state", "path")),
    "mlflow": (("run", "", "MLflow run"), ("run", "state", "mlflow_run")),
}


def export(document: Mapping[str, Any]) -> Table:
    """Return one line per file or run."""
    headings, names = COLUMNS.get(document["to"], COLUMNS["files"])
    title = f"Experiment {document['experiment']} at {document['tracking_uri']}" if "experiment" in document else ""
    written = ((entry[name] for name in names) for entry in document["written"])
    rows = [[f"{value:,}" if isinstance(value, int) else value for value in values] for values in written]
    return Table(headings, rows, caption=title, words=WORDS)


def sam(document: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the run's predicted cost, and the written files."""
    cost = document["cost"]
    yield f"{cost['sentence']}\n{cost['source']}"
    if cost["bill"] is not None:
        yield bill_table(cost["bill"], "Bill")
    if document["missing"] is None:
        yield Note(IMPORTS_UNKNOWN, "warn")
    elif missing := document["missing"]:
        yield Note(f"code/ lacks {listed(missing)}, which the functions imported from this machine.", "warn")
    yield f"{document['out']}: {', '.join(document['files'])}\nNext: follow its README.md"
