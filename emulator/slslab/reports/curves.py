"""An accuracy curve as a table."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

SHOWN = 40


def curve(document: Mapping[str, Any]) -> RenderableType:
    """The epochs, and above them what was trained; of a long curve, some of the epochs."""
    plan, rows = document["plan"], document["epochs"]
    head = (
        f"{document['architecture']}{' as released' if plan['as_released'] else ''}: {plan['model']} on "
        f"{plan['dataset']}, {plan['workers']} workers × {plan['batches']} batches × {plan['batch_size']} images an "
        f"epoch, seed {plan['seed']}, on {document['device']['name']}"
    )
    table = Table(box=None, pad_edge=False)
    filtered = any(row["significant_updates"] is not None for row in rows)
    held_out = any(row["validation_loss"] is not None for row in rows)
    names = ["epoch", "updates", "training loss", "test loss", "test accuracy"]
    names += ["validation loss"] * held_out + ["significant updates"] * filtered + ["seconds"]
    for name in names:
        table.add_column(name, justify="right")
    every = -(-len(rows) // SHOWN) or 1
    for row in rows:
        if row["epoch"] % every and row is not rows[-1] and row["epoch"] != document["best"]["epoch"]:
            continue
        cells = [str(row["epoch"]), f"{row['updates']:,}", _loss(row["training_loss"]), _loss(row["test_loss"])]
        cells += [f"{row['test_accuracy']:.2%}"]
        cells += [_loss(row["validation_loss"])] * held_out
        cells += [str(row["significant_updates"])] * filtered
        table.add_row(*cells, f"{row['training_seconds']:.1f}")
    return Group(head, table, _end(document))


def _end(document: Mapping[str, Any]) -> str:
    if document["best"] is None:
        return "No epoch was trained."
    reasons = {
        "epochs": "all epochs were trained",
        "accuracy": "the accuracy was reached",
        "patience": "the validation loss was not beaten for 10 epochs",
        "loss": "the loss was at or below the end threshold",
    }
    ended = reasons.get(document["ended"], f"it is {document['status']}")
    best = document["best"]
    return f"Best {best['test_accuracy']:.2%} after epoch {best['epoch']}; {ended}."


def _loss(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
