"""Losses and curves made by hand."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from slslab_lab.runs.planning import architectures, make_plan
from slslab_lab.studies.curves import Curve, Point
from slslab_lab.studies.lambdaml.losses import Losses, Series, Training


def series(
    algorithm: str,
    losses: Mapping[int, Sequence[float]],
    model: str = "lr",
    dataset: str = "breast-cancer",
    **more: Any,
) -> Series:
    """The losses of a plan by seed."""
    plan = Training(model, dataset, algorithm, 2, 0, **more).plan().to_document()
    return Series(plan=plan, losses={seed: tuple(each) for seed, each in losses.items()})


def losses(*members: Series) -> Losses:
    """All series of a figure."""
    about: dict[str, Any] = {"host": {"cores": 2}, "versions": {"torch": "2"}, "command": "slslab reproduce"}
    return Losses(measured=date(2026, 11, 24), series=members, **about)


def network(algorithm: str, found: Sequence[float | None], accuracies: Sequence[float], **values: Any) -> Curve:
    """A curve of MobileNet with epochs of five minibatches."""
    shape = {"model": "mobilenet", "dataset": "cifar10", "batches": 5, "batch_size": 8, "epochs": len(found), **values}
    plan = make_plan(architectures()["allreduce"], shape, {"algorithm": algorithm})
    points = tuple(
        Point(epoch=epoch, accuracy=accuracy, updates=5 * epoch, loss=loss)
        for epoch, (loss, accuracy) in enumerate(zip(found, accuracies, strict=True), 1)
    )
    device = {"name": "a processor"}
    return Curve(
        name=f"mobilenet-{algorithm}", plan=plan, points=points, ended="epochs", device=device, started="2026-11-24T"
    )
