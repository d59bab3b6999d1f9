"""The runs that Table 2 is made again from: made now (`sampled`, `full`), or read from recordings (`replayed`)."""

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slslab.errors import RequestError, RunError
from slslab.execution import DEFAULT_BOOK, architectures, make_plan, run_plan
from slslab.replay.measured import Measured, read_measured
from slslab.reproductions import FOLDERS
from slslab.runs import RunDirectory
from slslab_workers.architecture import Progress

WORKERS, BATCH_SIZE, BATCHES = 4, 512, 24
GPU = "gpu"
ARCHITECTURES = ("spirt", "scatterreduce", "allreduce", "mlless", GPU)
# Memory size of the recorded functions, MB: more than Table 2's, by which today's PyTorch is killed, and two threads as
# nearly all of Table 2's sizes have. The model plays Table 2's own.
RECORDED_MB = {"mobilenet": 3008, "resnet18": 3538}
# Failures that are findings: what Lambda's limits end is a row's answer, anything else no row's.
ENDED = {
    "Runtime.OutOfMemory": "its functions were killed at their memory limit of {memory:,} MB",
    "Sandbox.Timedout": "its functions were ended at their time-out",
}
# SPIRT's functions are all new in the first epoch, and what they take then is no epoch's usual time.
EPOCHS = {"spirt": 2}
# MLLess's filter keeps the first updates back: in as few minibatches as suffice for others it would send none.
FILTERED, FILTERED_TIMES = "mlless", 3


@dataclass(frozen=True)
class Experiment:
    """One run: an architecture with a model, as released or canonical."""

    architecture: str
    model: str
    released: bool

    @property
    def name(self) -> str:
        """Its folder."""
        return f"{self.model}-{self.architecture}{'-as-released' * self.released}"

    @property
    def variant(self) -> str:
        """In words."""
        return "as released" if self.released else "canonical"

    def batches(self, sample: "Sample") -> int:
        """Minibatches of each worker and epoch."""
        filtered = self.architecture == FILTERED and not self.released
        return min(BATCHES, sample.batches * FILTERED_TIMES) if filtered else sample.batches

    def values(self, sample: "Sample") -> dict[str, Any]:
        """What `slslab run` would be given."""
        return {
            "model": self.model,
            "dataset": sample.dataset,
            "workers": WORKERS,
            "batch_size": BATCH_SIZE,
            "batches": self.batches(sample),
            "epochs": EPOCHS.get(self.architecture, 1),
            "memory": str(RECORDED_MB[self.model]),
            "as_released": self.released,
            "memory_format": sample.memory_format,
            # Neither time nor memory nor cost of Table 2 is of evaluating.
            "evaluation": False,
        }


@dataclass(frozen=True)
class Sample:
    """What of Table 2's epoch is run: so many of its minibatches (of MLLess more), of these images, in this memory
    format."""

    batches: int
    dataset: str
    memory_format: str = "default"


@dataclass(frozen=True)
class Runs:
    """Those that are `done`, and why others `failed` at a limit of Lambda."""

    done: Mapping[Experiment, Measured]
    failed: Mapping[Experiment, str]


def experiments(models: Iterable[str]) -> tuple[Experiment, ...]:
    """All of Table 2: each architecture canonical, and as released where that is anything else."""
    rooms = architectures()
    return tuple(
        Experiment(architecture, model, released)
        for model in models
        for architecture in ARCHITECTURES
        for released in (False, True)
        if not released or any(option.released is not None for option in rooms[architecture].options)
    )


def committed() -> Path:
    """Where the project's own recordings of Table 2 are; RunError if there are none."""
    found = next((folder / "table2" for folder in FOLDERS if (folder / "table2").is_dir()), None)
    if found is None:
        raise RunError("There are no recordings of Table 2.", "record them with --fidelity sampled.")
    return found


def read_all(directory: Path, wanted: Iterable[Experiment]) -> Runs:
    """The recorded runs in a directory; those that it has none of are left out. RunError if none is done."""
    rooms = architectures()
    done: dict[Experiment, Measured] = {}
    failed: dict[Experiment, str] = {}
    for one in wanted:
        place = directory / one.name
        if (why := _ended(place)) is not None:
            failed[one] = why
        elif place.is_dir():
            done[one] = read_measured(place, rooms)
    if not done:
        raise RunError(f"{directory} has no recordings of Table 2.", "record them with --fidelity sampled.")
    return Runs(done, failed)


def record_all(
    directory: Path,
    wanted: Iterable[Experiment],
    sample: Sample,
    progress: Progress,
    tell: Callable[[str], None],
) -> Runs:
    """Make the runs that the directory does not have, one after another; what is there with the same plan is kept.

    A run that was interrupted, or failed, is made again. One that a limit of Lambda ends does not keep the others from
    being made. RequestError if one of another plan is there; RunError if one fails otherwise, or none is done;
    KeyboardInterrupt if one is interrupted."""
    wanted = tuple(wanted)
    missing = [one for one in wanted if not _is_there(directory, one, sample)]
    estimate_s = estimate_seconds(missing, sample)
    if missing:
        kept = f", {len(wanted) - len(missing)} of {len(wanted)} are there" if len(missing) < len(wanted) else ""
        tell(f"{len(missing)} runs to make{kept}; about {max(1, round(estimate_s / 60))} min on this host.")
    began = time.monotonic()
    for number, one in enumerate(missing, 1):
        place = directory / one.name
        if place.exists():
            shutil.rmtree(place)
        document = run_plan(one.architecture, one.values(sample), {}, out=place, book=DEFAULT_BOOK, progress=progress)
        why = _ended(place)
        if document["status"] != "done" and why is None:
            trouble = document["error"]
            if trouble["type"] == "Interrupted":
                made = len(wanted) - len(missing) + number - 1
                tell(f"Interrupted: {made} of {len(wanted)} runs are there; the same command goes on with the others.")
                # The run took it as its own end.
                raise KeyboardInterrupt
            raise RunError(f"The run {place} failed: {trouble['message']}", trouble["hint"])
        outcome = f"failed, {why}" if why else f"{document['seconds']['measured']:.0f} s"
        spent = time.monotonic() - began
        done = _work(missing[:number], sample) / _work(missing, sample)
        tell(
            f"{one.name}: {outcome}; {number} of {len(missing)} runs, "
            f"about {max(0.0, spent / done - spent) / 60:.0f} min to go."
        )
    return read_all(directory, wanted)


def _ended(place: Path) -> str | None:
    """By which of its limits Lambda ended this run; None if it did not."""
    run = RunDirectory(place)
    document = run.document() if place.is_dir() and run.status() == "failed" else None
    kind = (document["error"] or {}).get("type") if document else None
    return ENDED[kind].format(memory=int(run.plan()["memory_mb"])) if kind in ENDED else None


def _is_there(directory: Path, one: Experiment, sample: Sample) -> bool:
    run = RunDirectory(directory / one.name)
    if not run.path.is_dir() or run.status() in ("interrupted", "failed"):
        return False
    if run.status() == "running":
        raise RequestError(f"{run.path} is being made by another command.", "wait for its end.")
    plan = make_plan(architectures()[one.architecture], one.values(sample), {}).to_document()
    differs = [name for name, value in run.plan().items() if name != "run" and plan.get(name) != value]
    if differs:
        raise RequestError(
            f"{run.path} holds a run with another {differs[0]}.", "choose another --out, or remove that folder."
        )
    return True


def _work(runs: Iterable[Experiment], sample: Sample) -> float:
    """Minibatches to compute, in units of MobileNet's, and for each run what it takes beside them."""
    weight: Mapping[str, float] = {"mobilenet": 1.0, "resnet18": 3.0}
    return sum(EPOCHS.get(one.architecture, 1) * one.batches(sample) * WORKERS * weight[one.model] + 16 for one in runs)


def estimate_seconds(runs: list[Experiment], sample: Sample) -> float:
    """From one minibatch of MobileNet, an eighth as large, computed now: seconds of all runs on this host."""
    if not runs:
        return 0.0
    import torch

    from slslab_workers.models import build
    from slslab_workers.training import compute_gradient

    model = build("mobilenet", 0)
    inputs, targets = torch.zeros(BATCH_SIZE // 8, 3, 32, 32), torch.zeros(BATCH_SIZE // 8, dtype=torch.long)
    compute_gradient(model, inputs, targets)
    began = time.monotonic()
    compute_gradient(model, inputs, targets)
    return _work(runs, sample) * 8 * (time.monotonic() - began)
