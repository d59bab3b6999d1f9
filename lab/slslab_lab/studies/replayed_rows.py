"""Recorded runs replayed as rows of Table 2: with the row's memory size, and one speed of processors for all rows.

A profile assumes that a vCPU is as fast as a processor of the recording host. The published seconds of all rows
together give a better figure: the speed at which half of the rows are modelled longer and half shorter than published.
All rows share it.

In the paper's Table 2 an epoch is 24 functions one after another. The wall time of an epoch is here from its start to
the next epoch's start, in all architectures: SPIRT's functions of an epoch run at the same time, and waits for others
are included."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, median

from slslab.errors import RequestError, RunError
from slslab.predict.profiles.profile import Figure, Profile, with_speed
from slslab.run.bill import Book, compute_bill
from slslab.run.metrics import grouped
from slslab_lab.papers.paper import Paper, Row
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program
from slslab_lab.replay.measured import Measured
from slslab_lab.replay.outcome import outcome
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.speeds import find_speed
from slslab_lab.replay.whatif import modelled_usage, with_memory
from slslab_lab.studies.documents import Estimate
from slslab_lab.studies.experiments import BATCHES, GPU, Experiment
from slslab_lab.studies.minibatches import estimate, played_calls
from slslab_workers.plan import PlanError

TIME, MEMORY = "function_seconds", "memory_mb"
# Epochs between these two are steady: environments are warm by the first, and the turns of MLLess's workers repeat
# every 48 minibatches.
FIRST, LAST = 2, 4


@dataclass(frozen=True)
class Played:
    """A recorded run and its row of the table; functions are played with the row's memory size."""

    experiment: Experiment
    measured: Measured
    row: Row

    @property
    def key(self) -> str:
        """Return row, model and variant in words."""
        return f"{self.row.name}, {self.row.group}, {self.experiment.variant}"

    @property
    def memory_mb(self) -> int | None:
        """Return the published size of the functions; None for instances, which use the machine's memory."""
        return None if self.experiment.architecture == GPU else int(self.row.published[MEMORY])

    @cached_property
    def program(self) -> Program:
        """Return the recorded program with the published memory size."""
        return with_memory(self.measured.program, self.measured.plan.memory_mb, self.memory_mb)

    def seconds(self, profile: Profile) -> Estimate:
        """Return modelled seconds of a minibatch."""
        return estimate(played_calls(play(self.program, profile), self.measured), BATCHES)


@dataclass(frozen=True)
class Calibration:
    """The speed of a vCPU, relative to a processor of the recording host, and the rows it was fitted to."""

    cpu_speed: float
    rows: list[str]

    def apply(self, profile: Profile) -> Profile:
        """Return the profile with functions of that speed."""
        source = f"fitted to the published seconds of {len(self.rows)} rows: the median of modelled ÷ published is 1"
        return with_speed(profile, Figure(value=self.cpu_speed, status="assumed", source=source))


def calibrate(published: Mapping[str, float], modelled: Callable[[float], Mapping[str, float]]) -> Calibration:
    """Return the speed at which the median row is modelled as published; `modelled` plays all rows at a speed.

    If requests alone take longer than published, the speed is the largest in the range, and the cells show how far off
    they are."""

    def excess(speed: float) -> float:
        seconds_by_row = modelled(speed)
        return math.expm1(median(math.log(seconds_by_row[name] / seconds) for name, seconds in published.items()))

    return Calibration(find_speed(excess), list(published))


def fit_speed(played: Sequence[Played], profile: Profile) -> Calibration:
    """Return the speed of Lambda's processors at which half of the functions' rows are modelled longer than published.
    A row with several recordings counts once, by their mean."""
    functions = grouped((run.key, run) for run in played if run.experiment.architecture != GPU)
    published = {key: float(runs[0].row.published[TIME]) for key, runs in functions.items()}

    def modelled(speed: float) -> dict[str, float]:
        there = with_speed(profile, Figure(value=speed, status="assumed", source="tried"))
        return {key: fmean(run.seconds(there).value for run in runs) for key, runs in functions.items()}

    return calibrate(published, modelled)


def find_row(paper: Paper, name: str, **inputs: str) -> Row:
    """Return the row of a table with these inputs."""
    table = paper.table(name)
    return next(row for row in table.rows if inputs.items() <= table.inputs_of(row).items())


@dataclass(frozen=True)
class EpochTime:
    """Modelled wall seconds of a steady epoch, and the USD of its whole bill; or None, with a `reason`.

    `share` is the part of the gradients that a filter lets through in it."""

    seconds: float | None
    cost: float | None
    share: float = 1.0
    reason: str = ""


@dataclass(frozen=True)
class Recordings:
    """Table 2's recordings on the platform, with one speed of processors fitted to all of them."""

    played: Mapping[Experiment, Played]
    platform: Profile
    calibration: Calibration
    book: Book

    def epoch(self, experiment: Experiment, share: float | None = None) -> EpochTime:
        """Return an epoch of this row, optionally with another share of sent gradients than recorded."""
        if experiment not in self.played:
            return EpochTime(None, None, reason=f"the recording {experiment.name} is missing")
        try:
            return steady_epoch(self.played[experiment], self.platform, self.book, share)
        except (RequestError, PlanError) as error:
            return EpochTime(None, None, reason=error.message.rstrip("."))


def prepare(paper: Paper, recorded: Mapping[Experiment, Measured], profile: Profile, book: Book) -> Recordings:
    """Fit the speed; RunError if no run of functions was recorded."""
    played = {
        run: Played(run, measured, find_row(paper, "table2", architecture=run.architecture, model=run.model))
        for run, measured in recorded.items()
    }
    if all(run.architecture == GPU for run in played):
        raise RunError(
            "No run of functions was recorded, so the speed of processors can't be fitted.",
            "record runs with slslab reproduce table2 --fidelity sampled.",
        )
    calibration = fit_speed(list(played.values()), profile)
    return Recordings(played, calibration.apply(profile), calibration, book)


def steady_epoch(run: Played, platform: Profile, book: Book, share: float | None = None) -> EpochTime:
    """Return the mean of the epochs after the second one, in a run of 24 minibatches an epoch.

    RequestError if the run can't be scaled, PlanError for options that its pattern doesn't cover."""
    measured, costs = run.measured, run.measured.costs
    if share is not None:
        costs = replace(costs, workload=replace(costs.workload, share=share))
    played = []
    for epochs in (FIRST, LAST):
        program = generate(costs, measured.plan.workers, BATCHES, epochs)
        timeline = play(with_memory(program, measured.plan.memory_mb, run.memory_mb), platform)
        result = outcome(timeline, measured.arch)
        played.append((result.seconds, compute_bill(modelled_usage(measured, timeline, result), book).total))
    (first_s, first_total), (last_s, last_total) = played
    number = LAST - FIRST
    return EpochTime((last_s - first_s) / number, float(last_total - first_total) / number, costs.workload.share)
