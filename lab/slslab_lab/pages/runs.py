"""The table that `slslab runs` prints, from the runs' documents."""

from collections.abc import Sequence

from slslab.report import summaries
from slslab.report.formats import percent
from slslab.report.page import Document, Table


def runs_table(documents: Sequence[Document]) -> Table:
    """Return a table with one line per run, with its seconds and bill on Lambda."""
    named = ("architecture", "model", "dataset", "workers")
    time = "modelled s" if any(map(summaries.platform_of, documents)) else "AWS s"
    rows = []
    for document in documents:
        found = summaries.replayed(document)
        rows.append(
            (
                document["run"],
                document["status"],
                *(str(document.get(name, "")) for name in named),
                f"{summaries.epochs_of(document):,}" if "epochs" in document else "",
                summaries.figure_text(found, "seconds") if found else "",
                summaries.figure_text(found, "cost") if found else "",
                percent(document["accuracy"][-1], ".1") if document.get("accuracy") else "",
            )
        )
    return Table(
        ("run", "status", *named, "epochs", time, "bill USD", "accuracy"),
        rows,
        note=summaries.range_note(*map(summaries.replayed, documents)),
        # The run's id contains the architecture and the model.
        dispensable=("dataset", "model", "architecture", "epochs", "workers", "accuracy", time),
    )
