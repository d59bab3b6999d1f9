"""The runs behind Table 2's reproduction: made now (`sampled`, `full`), or read from recordings (`replayed`)."""

import itertools
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slslab.errors import RequestError, RunError, counted
from slslab.installation import RECORDINGS, plugin
from slslab.run.directory import RunDirectory
from slslab_lab.replay.measured import Measured, read_measured
from slslab_lab.runs.alone import ENVIRONMENTS
from slslab_lab.runs.execution import Order
from slslab_lab.runs.planning import architectures, make_plan
from slslab_lab.runs.sweeps.sweep import LOCAL, RAY
from slslab_lab.studies import MODELS, committed
from slslab_lab.studies.recording import check_done, is_done, make_run, small_run
from slslab_lab.studies.study import Setup
from slslab_workers.architecture import ALONE_BATCHES, read_plan

if TYPE_CHECKING:
    from slslab_lab.runs.accuracy.curve import Watcher

WORKERS, BATCH_SIZE, BATCHES = 4, 512, 24
GPU = "gpu"
ARCHITECTURES = ("spirt", "scatterreduce", "allreduce", "mlless", GPU)
# Memory size of the recorded functions in MB. It is more than Table 2's, at which today's PyTorch is killed, and gives
# two threads as nearly all of Table 2's sizes do. The model replays with Table 2's own sizes.
RECORDED_MB = {"mobilenet": 3008, "resnet18": 3538}
# Failures that are results: a row may only fail at a limit of Lambda.
ENDED = {
    "Runtime.OutOfMemory": "its functions were killed at their memory limit of {memory:,} MB",
    "Sandbox.Timedout": "its functions reached their time-out",
}
# Minibatches that one worker computes before each run.
ALONE = ALONE_BATCHES * ENVIRONMENTS
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
        return "as released" if self.released else "canonical"

    def batches(self, sample: "Sample") -> int:
        """Return minibatches of each worker and epoch."""
        filtered = self.architecture == FILTERED and not self.released
        return min(BATCHES, sample.batches * FILTERED_TIMES) if filtered else sample.batches

    def values(self, sample: "Sample") -> dict[str, Any]:
        """Return the values for `slslab run`."""
        batches, epochs, memory_mb = self.batches(sample), EPOCHS.get(self.architecture, 1), RECORDED_MB[self.model]
        # Four workers on a host with fewer processors slow each other down.
        more = {"as_released": self.released, "memory_format": sample.memory_format, "record": "alone"}
        return small_run(self.model, sample.dataset, WORKERS, BATCH_SIZE, batches, epochs, memory_mb, **more)


@dataclass(frozen=True)
class Sample:
    """The part of Table 2's epoch to run: minibatches (MLLess: more), images, and the memory format."""

    batches: int
    dataset: str
    memory_format: str = "default"


@dataclass(frozen=True)
class Runs:
    """Runs that are `done`, why others `failed` at a limit of Lambda, and `again` further sets of recordings of the
    finished runs, each made by one host. `lacking` lists the missing rows of incomplete sets, by name."""

    done: Mapping[Experiment, Measured]
    failed: Mapping[Experiment, str]
    again: Sequence[Mapping[Experiment, Measured]] = ()
    lacking: Mapping[str, Sequence[str]] = field(default_factory=dict)


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


def read(setup: Setup) -> Runs:
    """Return the recorded runs of the chosen models."""
    recordings = setup.options.get("recordings")
    return read_all(recordings or committed("table2"), experiments(setup.options["models"] or MODELS))


def measure(setup: Setup) -> Runs:
    """Make the runs of the chosen models."""
    options = setup.options
    sample = Sample(setup.effort or options["batches"], options["dataset"], options["memory_format"])
    # On this host they are made one after another, too.
    place = None if options.get("on") == LOCAL else options.get("on")
    rows = experiments(options["models"] or MODELS)
    return record_all(setup.out, rows, sample, setup.watcher, place)


def read_all(directory: Path, rows: Iterable[Experiment]) -> Runs:
    """Return the recorded runs in a directory, and complete further sets of recordings next to it: DIRECTORY-2,
    DIRECTORY-3 and so on. RunError if no run is finished."""
    known = architectures()
    done: dict[Experiment, Measured] = {}
    failed: dict[Experiment, str] = {}
    for experiment in rows:
        place = directory / experiment.name
        if (why := _ended(place)) is not None:
            failed[experiment] = why
        elif place.is_dir():
            done[experiment] = read_measured(place, known)
    if not done:
        raise RunError(f"{directory} has no recordings of Table 2.", "record them with --fidelity sampled.")
    again: list[Mapping[Experiment, Measured]] = []
    lacking: dict[str, Sequence[str]] = {}
    beside = (directory.with_name(f"{directory.name}-{number}") for number in itertools.count(2))
    for one in itertools.takewhile(Path.is_dir, beside):
        places = {experiment: one / experiment.name for experiment in done}
        if absent := [place.name for place in places.values() if not place.is_dir() or _ended(place) is not None]:
            lacking[one.name] = absent
        else:
            again.append({experiment: read_measured(place, known) for experiment, place in places.items()})
    return Runs(done, failed, again, lacking)


def record_all(
    directory: Path, rows: Iterable[Experiment], sample: Sample, watcher: "Watcher", on: str | None = None
) -> Runs:
    """Make the missing runs of a directory, here one after another or `on` a Ray cluster (`make_runs`). Runs of the
    same plan are kept.

    It repeats a run that was interrupted or failed. If a run ends at a limit of Lambda, it continues with the others.
    RequestError if the directory has a run of another plan; RunError if a run fails for another reason, or none
    finishes; KeyboardInterrupt if a run is interrupted."""
    rows = tuple(rows)
    missing = [experiment for experiment in rows if not _is_there(directory, experiment, sample)]
    estimate_s = estimate_seconds(missing, sample)
    if missing:
        kept = f", {len(rows) - len(missing)} of {len(rows)} exist" if len(missing) < len(rows) else ""
        where = "on this host" if on is None else "if one host like this made them all"
        watcher.say(
            f"{counted(len(missing), 'run')} to make{kept}; about {max(1, round(estimate_s / 60))} min {where}."
        )
    began = time.monotonic()
    made: list[Experiment] = []
    try:
        with closing(_make(directory, missing, sample, watcher, on)) as making:
            for experiment, document in making:
                made.append(experiment)
                outcome = _outcome(directory / experiment.name, document)
                spent = time.monotonic() - began
                done = _work(made, sample) / _work(missing, sample)
                watcher.say(
                    f"{experiment.name}: {outcome}; {len(made)} of {len(missing)} runs, "
                    f"about {max(0.0, spent / done - spent) / 60:.0f} min to go."
                )
    except KeyboardInterrupt:
        there = len(rows) - len(missing) + len(made)
        watcher.say(f"Interrupted: {there} of {len(rows)} runs exist; the same command makes the others.")
        raise
    return read_all(directory, rows)


def _make(
    directory: Path, missing: Iterable[Experiment], sample: Sample, watcher: "Watcher", on: str | None
) -> Generator[tuple[Experiment, Mapping[str, Any]], None, None]:
    places = {directory / experiment.name: experiment for experiment in missing}
    if on is not None:
        orders = [Order(place, each.architecture, each.values(sample)) for place, each in places.items()]
        with closing(plugin(RECORDINGS, RAY)(on, orders, watcher.say)) as made:
            yield from ((places[place], document) for place, document in made)
        return
    for place, experiment in places.items():
        yield experiment, make_run(place, experiment.architecture, experiment.values(sample), {}, watcher)


def _outcome(place: Path, document: Mapping[str, Any]) -> str:
    why = _ended(place)
    if why is None:
        check_done(document, place)
    node = document.get("host", {}).get("name")
    outcome = f"failed, {why}" if why else f"{document['seconds']['measured']:.0f} s"
    return f"{outcome} on {node}" if node else outcome


def _ended(place: Path) -> str | None:
    run = RunDirectory(place)
    document = run.document() if place.is_dir() and run.status() == "failed" else None
    kind = (document["error"] or {}).get("type") if document else None
    return ENDED[kind].format(memory=int(run.plan()["memory_mb"])) if kind in ENDED else None


def _is_there(directory: Path, experiment: Experiment, sample: Sample) -> bool:
    run = RunDirectory(directory / experiment.name)
    if not is_done(run.path):
        return False
    plan = make_plan(architectures()[experiment.architecture], experiment.values(sample), {}).to_document()
    recorded = read_plan(run.plan()).to_document()
    # `auto` may have become anything in the recorded run.
    recorded["options"] |= {name: value for name, value in plan["options"].items() if value == "auto"}
    differs = [name for name, value in recorded.items() if name != "run" and plan.get(name) != value]
    if differs:
        raise RequestError(
            f"{run.path} contains a run with another {differs[0]}.", "choose another --out, or remove that folder."
        )
    return True


def _work(runs: Iterable[Experiment], sample: Sample) -> float:
    """Return the minibatches to compute, counted in MobileNet's, with a constant for the rest of each run."""
    weight: Mapping[str, float] = {"mobilenet": 1.0, "resnet18": 3.0}
    return sum(
        (EPOCHS.get(experiment.architecture, 1) * experiment.batches(sample) * WORKERS + ALONE)
        * weight[experiment.model]
        + 16
        for experiment in runs
    )


def estimate_seconds(runs: list[Experiment], sample: Sample) -> float:
    """Return the seconds of all runs here, estimated from an eighth of a minibatch of MobileNet, computed now."""
    if not runs:
        return 0.0
    import torch

    from slslab_workers.training.models import build
    from slslab_workers.training.step import compute_gradient

    model = build("mobilenet", 0)
    inputs, targets = torch.zeros(BATCH_SIZE // 8, 3, 32, 32), torch.zeros(BATCH_SIZE // 8, dtype=torch.long)
    compute_gradient(model, inputs, targets)
    began = time.monotonic()
    compute_gradient(model, inputs, targets)
    return _work(runs, sample) * 8 * (time.monotonic() - began)
