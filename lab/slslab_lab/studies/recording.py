"""The runs behind a study: made one at a time, and kept once they are finished."""

import shutil
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slslab.errors import RequestError, RunError, counted
from slslab.installation import RECORDINGS, plugin
from slslab.run.bill import DEFAULT_BOOK
from slslab.run.directory import RunDirectory
from slslab.run.document import RunDocument
from slslab_lab.runs.accuracy.curve import Watcher
from slslab_lab.runs.execution import Order, run_plan
from slslab_lab.runs.sweeps.sweep import RAY
from slslab_workers.architecture import Progress
from slslab_workers.channels.choice import CHANNEL, PARAMETER_SERVER, SERIALISATION
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


def channel_options(channel: str) -> dict[str, Value]:
    """Return the options of a run with a channel; LambdaML's code sends doubles to its parameter server."""
    serialisation: dict[str, Value] = {SERIALISATION.name: "doubles"} if channel == PARAMETER_SERVER else {}
    return {CHANNEL.name: channel, **serialisation}


def is_done(directory: Path) -> bool:
    """Return whether a finished run exists; RequestError if another command is making it."""
    if not directory.is_dir():
        return False
    status = RunDirectory(directory).status()
    if status == "running":
        raise RequestError(f"{directory} is being made by another command.", "wait until it ends.")
    return status == "done"


def make_run(
    directory: Path | None, architecture: str, values: Mapping[str, Any], options: Mapping[str, Any], progress: Progress
) -> RunDocument:
    """Make a run, replacing the one in `directory` or (None) among all other runs; return its document, even if it
    failed.

    KeyboardInterrupt if it is interrupted, after the run has recorded that itself."""
    if directory is not None and directory.is_dir():
        shutil.rmtree(directory)
    document = run_plan(architecture, values, options, out=directory, book=DEFAULT_BOOK, progress=progress)
    if document["status"] == "interrupted":
        raise KeyboardInterrupt
    return document


def check_done(document: Mapping[str, Any], name: Path | str) -> None:
    """Raise RunError for a run that failed."""
    if document["status"] != "done":
        trouble = document["error"]
        raise RunError(f"The run {name} failed: {trouble['message']}", trouble["hint"])


def describe_done(directory: Path, document: Mapping[str, Any]) -> str:
    """Return how long a run took, and on which node if not here, in words; RunError if it failed."""
    check_done(document, directory)
    node = document.get("host", {}).get("name")
    return f"{document['seconds']['measured']:.0f} s{f' on {node}' if node else ''}"


def make_missing(
    directory: Path,
    recordings: Sequence[Recording],
    watcher: Watcher,
    is_kept: Callable[[Path, Recording], bool] = lambda run, _: is_done(run),
    describe: Callable[[Path, Mapping[str, Any]], str] = describe_done,
    on: str | None = None,
) -> None:
    """Make the missing runs of a directory, here one after another or `on` a Ray cluster, and say how each ended.

    `describe` returns that in words, or raises RunError; the first is raised after the other runs.
    KeyboardInterrupt if a run is interrupted: the same call continues with the missing ones."""
    missing = {run: each for each in recordings if not is_kept(run := directory / each.name, each)}
    kept, number, began = len(recordings) - len(missing), 0, time.monotonic()
    errors: list[RunError] = []
    watcher.say(f"{counted(len(missing), 'run')} to make, {kept} of {len(recordings)} are kept.")
    try:
        with closing(_make(missing, watcher, on)) as making:
            for number, (run, document) in enumerate(making, 1):
                rest = len(missing) - number
                try:
                    ended = describe(run, document)
                except RunError as error:
                    errors.append(error)
                    ended = "failed"
                minutes = (time.monotonic() - began) / number * rest / 60
                watcher.say(f"{run.name}: {ended}; {number} of {len(missing)} runs, about {minutes:.0f} min to go.")
    except KeyboardInterrupt:
        there = f"{kept + number} of {len(recordings)} runs exist"
        watcher.say(f"Interrupted: {there}; the same command makes the others.")
        raise
    if errors:
        raise errors[0]


def _make(
    missing: Mapping[Path, Recording], watcher: Watcher, on: str | None
) -> Generator[tuple[Path, Mapping[str, Any]], None, None]:
    if on is not None:
        orders = [Order(run, each.architecture, each.values) for run, each in missing.items()]
        with closing(plugin(RECORDINGS, RAY)(on, orders, watcher.say)) as made:
            yield from made
        return
    for run, each in missing.items():
        yield run, make_run(run, each.architecture, each.values, each.options, watcher)
