"""The output of `slslab export`, for a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from slslab.report.bills import bill_table
from slslab.report.formats import listed
from slslab.report.page import WORDS, Note, Part, Table
from slslab.report.summaries import IMPORTS_UNKNOWN


def export(document: Mapping[str, Any]) -> Table:
    """Return one line per file or run."""
    written = document["written"]
    if document["to"] == "mlflow":
        title = f"Experiment {document['experiment']} at {document['tracking_uri']}"
        rows = [(each["run"], each["state"], each["mlflow_run"]) for each in written]
        return Table(("run", "", "MLflow run"), rows, caption=title, words=WORDS)
    rows = [(each["table"], f"{each['rows']:,}", each["path"]) for each in written]
    return Table(("table", "rows", "file"), rows, words=WORDS)


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
