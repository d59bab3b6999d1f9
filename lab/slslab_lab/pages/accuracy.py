"""Accuracy curves as tables, for `slslab accuracy`."""

from collections.abc import Callable, Iterator

from slslab.errors import counted
from slslab.report.formats import MISSING, percent
from slslab.report.page import Document, Part, Table

SHOWN = 40
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
    columns: list[tuple[str, Callable[[Document], str]]] = [
        ("epoch", lambda row: str(row["epoch"])),
        ("updates", lambda row: f"{row['updates']:,}"),
        ("training loss", lambda row: _loss(row["training_loss"])),
        ("test loss", lambda row: _loss(row["test_loss"])),
        ("test accuracy", lambda row: percent(row["test_accuracy"], ".2")),
        ("validation loss", lambda row: _loss(row["validation_loss"])),
        ("significant updates", lambda row: str(row["significant_updates"])),
        ("seconds", lambda row: f"{row['training_seconds']:.1f}"),
    ]
    absent = [
        name
        for name in ("validation loss", "significant updates")
        if all(row[name.replace(" ", "_")] is None for row in rows)
    ]
    columns = [column for column in columns if column[0] not in absent]
    every = -(-len(rows) // SHOWN) or 1
    shown = [
        row for row in rows if row["epoch"] % every == 0 or row is rows[-1] or (best and row["epoch"] == best["epoch"])
    ]
    yield Table([name for name, _ in columns], [[text(row) for _, text in columns] for row in shown])
    if best is None:
        yield "No epoch was trained."
        return
    ended = ENDINGS.get(document["ended"], f"it is {document['status']}")
    yield f"Best {percent(best['test_accuracy'], '.2')} after epoch {best['epoch']}; {ended}."


def _loss(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4f}"
