"""Accuracy curves as tables, for `slslab accuracy`."""

from collections.abc import Iterator

from slslab.errors import counted
from slslab.report.formats import MISSING, percent, significant
from slslab.report.page import Document, Part, Table

SHOWN = 40
HEADINGS = (
    *("epoch", "updates", "training loss", "test loss", "test accuracy", "validation loss", "significant updates"),
    "seconds",
)
ENDINGS = {
    "epochs": "all epochs were trained",
    "accuracy": "the accuracy was reached",
    "patience": "the validation loss did not improve for 10 epochs",
    "loss": "the loss was at or below the end threshold",
}


def curve(document: Document) -> Iterator[Part]:
    """Yield the training, its epochs (only some of many), and how it ended."""
    plan, rows, best = document["plan"], document["epochs"], document["best"]
    yield (
        f"{document['architecture']}{' as released' if plan['as_released'] else ''}: {plan['model']} on "
        f"{plan['dataset']}, {counted(plan['workers'], 'worker')} × {counted(plan['batches'], 'batch', 'batches')} × "
        f"{counted(plan['batch_size'], 'image')} an epoch, seed {plan['seed']}, on {document['device']['name']}"
    )
    every = -(-len(rows) // SHOWN) or 1
    shown = [
        (
            str(row["epoch"]),
            f"{row['updates']:,}",
            *(_loss(row[name]) for name in ("training_loss", "test_loss")),
            percent(row["test_accuracy"], ".2"),
            _loss(row["validation_loss"]),
            significant(row["significant_updates"]),
            f"{row['training_seconds']:.1f}",
        )
        for row in rows
        if row["epoch"] % every == 0 or row is rows[-1] or (best and row["epoch"] == best["epoch"])
    ]
    if best is None:
        yield "No epoch was trained."
        return
    yield Table(HEADINGS, shown).filled()
    ended = ENDINGS.get(document["ended"], f"it is {document['status']}")
    yield f"Best {percent(best['test_accuracy'], '.2')} after epoch {best['epoch']}; {ended}."


def _loss(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4f}"
