"""Accuracy curves made by hand, and the recordings of LeNet in the place of MobileNet's."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.lab.replay.recordings import TRACES

from slslab_lab.runs.planning import architectures, make_plan


def write_curve(
    directory: Path, architecture: str, accuracies: Sequence[float], sent: int | None = None, **more: Any
) -> Path:
    """A curve of MobileNet on CIFAR-10, Table 2's minibatches; `more` are `options`, the plan's values, or entries."""
    options, ended, name = more.pop("options", {}), more.pop("ended", "epochs"), more.pop("name", architecture)
    dataset = more.pop("dataset", "cifar10")
    values = {
        "model": "mobilenet",
        "dataset": "cifar10",
        "workers": 4,
        "batches": 24,
        "batch_size": 512,
        "epochs": len(accuracies),
        **more,
    }
    each = 1 if architecture == "spirt" else 24
    epochs = [
        {"epoch": number, "updates": each * number, "test_accuracy": accuracy, "significant_updates": sent}
        for number, accuracy in enumerate(accuracies, 1)
    ]
    document = {
        "schema": 1,
        "ended": ended,
        # The images may be on another host.
        "plan": make_plan(architectures()[architecture], values, options).to_document() | {"dataset": dataset},
        "device": {"kind": "cpu", "name": "2 × a processor"},
        "started": "2026-11-22T00:00:00+00:00",
        "epochs": epochs,
    }
    path: Path = directory / name / "curve.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(document))
    return path


def link_recordings(directory: Path, *names: str) -> Path:
    """Recordings of LeNet under the names of Table 2's of MobileNet."""
    directory.mkdir()
    for name in names:
        (directory / f"mobilenet-{name}").symlink_to(TRACES / name)
    return directory
