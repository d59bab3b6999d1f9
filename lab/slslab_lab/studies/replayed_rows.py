"""Recorded runs replayed as rows of Table 2: with the row's memory size, and one speed of processors for all rows.

A profile assumes that a vCPU is as fast as a processor of the recording host. The published seconds of all rows
together give a better figure: the speed at which half of the rows are modelled longer and half shorter than published.
All rows share it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import Any

from slslab.predict.profiles.profile import Figure, Profile, with_speed
from slslab.run.metrics import grouped
from slslab_lab.papers.paper import Row
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program
from slslab_lab.replay.measured import Measured
from slslab_lab.replay.speeds import find_speed
from slslab_lab.replay.whatif import with_memory
from slslab_lab.studies.documents import Estimate
from slslab_lab.studies.experiments import BATCHES, GPU, Experiment
from slslab_lab.studies.minibatches import estimate, played_calls

TIME, MEMORY = "function_seconds", "memory_mb"


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

    speed: float
    rows: tuple[str, ...]

    def apply(self, profile: Profile) -> Profile:
        """Return the profile with functions of that speed."""
        source = f"fitted to the published seconds of {len(self.rows)} rows: the median of modelled ÷ published is 1"
        return with_speed(profile, Figure(value=self.speed, status="assumed", source=source))

    def as_document(self) -> dict[str, Any]:
        """Return the calibration for JSON."""
        return {"cpu_speed": self.speed, "rows": list(self.rows)}


def calibrate(published: Mapping[str, float], modelled: Callable[[float], Mapping[str, float]]) -> Calibration:
    """Return the speed at which the median row is modelled as published; `modelled` plays all rows at a speed.

    If requests alone take longer than published, the speed is the largest in the range, and the cells show how far off
    they are."""

    def excess(speed: float) -> float:
        seconds_by_row = modelled(speed)
        return math.expm1(median(math.log(seconds_by_row[name] / seconds) for name, seconds in published.items()))

    return Calibration(find_speed(excess), tuple(published))


def fit_speed(played: Sequence[Played], profile: Profile) -> Calibration:
    """Return the speed of Lambda's processors at which half of the functions' rows are modelled longer than published.
    A row with several recordings counts once, by their mean."""
    functions = grouped((run.key, run) for run in played if run.experiment.architecture != GPU)
    published = {key: float(runs[0].row.published[TIME]) for key, runs in functions.items()}

    def modelled(speed: float) -> dict[str, float]:
        there = with_speed(profile, Figure(value=speed, status="assumed", source="tried"))
        return {key: fmean(run.seconds(there).value for run in runs) for key, runs in functions.items()}

    return calibrate(published, modelled)
