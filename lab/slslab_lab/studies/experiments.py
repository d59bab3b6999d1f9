"""The runs behind Table 2's reproduction: made now (`sampled`, `full`), or read from recordings (`replayed`)."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slslab.errors import RequestError, RunError
from slslab.run.directory import RunDirectory
from slslab_lab.replay.measured import Measured, read_measured
from slslab_lab.runs.planning import architectures, make_plan
from slslab_lab.runs.sweeps.sweep import LOCAL
from slslab_lab.studies import committed
from slslab_lab.studies.recording import Recording, is_done, make_missing, small_run
from slslab_lab.studies.study import Setup
from slslab_workers.architecture import read_plan

WORKERS, BATCH_SIZE, BATCHES = 4, 512, 24
CANONICAL, RELEASED = "canonical", "as released"
GPU = "gpu"
ARCHITECTURES = ("spirt", "scatterreduce", "allreduce", "mlless", GPU)
# Memory size of the recorded functions in MB. It is more than Table 2's, at which today's PyTorch is killed, and gives
# two threads as nearly all of Table 2's sizes do. The model replays with Table 2's own sizes.
RECORDED_MB = {"mobilenet": 3008, "resnet18": 3538}
# SPIRT's functions all start cold in the first epoch, so its time isn't typical.
EPOCHS = {"spirt": 2}
# MLLess's filter holds back the first updates; in the others' number of minibatches it would send none.
FILTERED, FILTERED_TIMES = "mlless", 3


@dataclass(frozen=True)
class Experiment:
    """One run: an architecture with a model, as released or canonical."""

    architecture: str
    model: str
    released: bool

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return f"{self.model}-{self.architecture}{'-as-released' * self.released}"

    @property
    def variant(self) -> str:
        """Return the variant in words."""
        return RELEASED if self.released else CANONICAL

    def values(self, batches: int, dataset: str) -> dict[str, Any]:
        """Return the values for `slslab run`, with this many minibatches of each worker, or more for a filter."""
        if self.architecture == FILTERED and not self.released:
            batches = min(BATCHES, batches * FILTERED_TIMES)
        shape = (WORKERS, BATCH_SIZE, batches, EPOCHS.get(self.architecture, 1), RECORDED_MB[self.model])
        # Four workers on a host with fewer processors slow each other down.
        return small_run(self.model, dataset, *shape, as_released=self.released, record="alone")


# Finished runs, and further sets of recordings of them; each set is made by one host.
Sets = Sequence[Mapping[Experiment, Measured]]


def experiments(models: Iterable[str]) -> tuple[Experiment, ...]:
    """Return all of Table 2: each architecture canonical, and as released if that differs."""
    known = architectures()
    return tuple(
        Experiment(architecture, model, released)
        for model in models
        for architecture in ARCHITECTURES
        for released in (False, True)
        if not released or any(option.released is not None for option in known[architecture].options)
    )


def read(setup: Setup) -> Sets:
    """Return the recorded runs of the chosen models."""
    return read_all(setup.options.get("recordings") or committed("table2"), experiments(setup.options["models"]))


def measure(setup: Setup) -> Sets:
    """Make the missing runs of the chosen models; RunError if one fails, after the others."""
    options = setup.options
    sample = setup.effort or options["batches"], options["dataset"]
    # On this host they are made one after another, too.
    where = None if options.get("on") == LOCAL else options.get("on")
    rows = experiments(options["models"])
    runs = [Recording(row.name, row.architecture, row.values(*sample)) for row in rows]
    make_missing(setup.out, runs, setup.watcher, is_kept, on=where)
    return read_all(setup.out, rows)


def read_all(directory: Path, rows: Iterable[Experiment]) -> Sets:
    """Return the finished runs in a directory, and the same of further sets next to it: DIRECTORY-2, DIRECTORY-3 and so
    on. RunError if no run is finished, or a further set lacks one."""
    folders = {experiment: directory / experiment.name for experiment in rows}
    done = {experiment: read_measured(folder) for experiment, folder in folders.items() if is_done(folder)}
    if not done:
        raise RunError(f"{directory} has no recordings of Table 2.", "record them with --fidelity sampled.")
    further = (directory.with_name(f"{directory.name}-{number}") for number in itertools.count(2))
    sets = [done]
    for one in itertools.takewhile(Path.is_dir, further):
        folders = {experiment: one / experiment.name for experiment in done}
        if absent := [folder for folder in folders.values() if not is_done(folder)]:
            raise RunError(f"{absent[0]} has no finished run.", f"record it, or move {one} elsewhere.")
        sets.append({experiment: read_measured(folder) for experiment, folder in folders.items()})
    return sets


def is_kept(folder: Path, recording: Recording) -> bool:
    """Return whether a finished run of this plan exists; RequestError for a run of another plan."""
    if not is_done(folder):
        return False
    plan = make_plan(architectures()[recording.architecture], recording.values, {}).to_document()
    recorded = read_plan(RunDirectory(folder).plan()).to_document()
    # `auto` may have become anything in the recorded run.
    recorded["options"] |= {name: value for name, value in plan["options"].items() if value == "auto"}
    differs = [name for name, value in recorded.items() if name != "run" and plan.get(name) != value]
    if differs:
        raise RequestError(
            f"{folder} contains a run with another {differs[0]}.", "choose another --out, or remove that folder."
        )
    return True
