"""The runs behind a study: made one at a time, and kept once they are finished."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slslab.errors import RequestError, RunError
from slslab.run.bill import DEFAULT_BOOK
from slslab.run.directory import RunDirectory
from slslab.run.document import EndedDocument
from slslab_lab.runs.execution import run_plan
from slslab_workers.architecture import Progress
from slslab_workers.plan import Value


@dataclass(frozen=True)
class Recording:
    """A run to make: the name of its folder, its architecture, and the values for `slslab run`."""

    name: str
    architecture: str
    values: Mapping[str, Any]
    options: Mapping[str, Value] = field(default_factory=dict)


def small_run(
    model: str, dataset: str, workers: int, batch_size: int, batches: int, epochs: int, memory_mb: int, **more: Any
) -> dict[str, Any]:
    """Return the values for `slslab run` for a run without evaluation, made only for its times."""
    values = {"model": model, "dataset": dataset, "workers": workers, "batch_size": batch_size, "batches": batches}
    return {**values, "epochs": epochs, "memory_mb": memory_mb, "evaluation": False, **more}


def is_done(place: Path) -> bool:
    """Return whether a finished run exists; RequestError if another command is making it."""
    if not place.is_dir():
        return False
    status = RunDirectory(place).status()
    if status == "running":
        raise RequestError(f"{place} is being made by another command.", "wait until it ends.")
    return status == "done"


def make_run(
    place: Path | None, architecture: str, values: Mapping[str, Any], options: Mapping[str, Any], progress: Progress
) -> EndedDocument:
    """Make a run, replacing the one at `place` or (None) among all other runs; return its document, even if it failed.

    KeyboardInterrupt if it is interrupted, after the run has recorded that itself."""
    if place is not None and place.is_dir():
        shutil.rmtree(place)
    document = run_plan(architecture, values, options, out=place, book=DEFAULT_BOOK, progress=progress)
    if document["status"] == "interrupted":
        raise KeyboardInterrupt
    return document


def make_missing(
    directory: Path, recordings: Iterable[Recording], progress: Progress, is_kept: Callable[[Path], bool] = is_done
) -> Iterator[tuple[Recording, EndedDocument]]:
    """Make the missing runs of a directory, and yield each with its document; RunError if one fails."""
    for each in recordings:
        place = directory / each.name
        if not is_kept(place):
            document = make_run(place, each.architecture, each.values, each.options, progress)
            check_done(document, place)
            yield each, document


def check_done(document: Mapping[str, Any], name: Path | str) -> None:
    """Raise RunError for a run that failed."""
    if document["status"] != "done":
        trouble = document["error"]
        raise RunError(f"The run {name} failed: {trouble['message']}", trouble["hint"])
