"""Recorded runs replayed as rows of Table 2: with the row's memory size, and one speed of processors for all rows.

`differences` says what one speed cannot explain, and what no interval within a run contains."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from slslab.papers.paper import Row
from slslab.replay.kernel.kernel import play
from slslab.replay.kernel.program import Program
from slslab.replay.measured import Measured
from slslab.replay.profiles.profile import Figure, Profile, with_speed
from slslab.replay.whatif import with_memory
from slslab.reproductions.cpu_speed import Calibration, calibrate
from slslab.reproductions.experiments import BATCHES, GPU, Experiment
from slslab.reproductions.minibatches import Estimate, cpu_calls, estimate, played_calls
from slslab.trace.metrics import grouped

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
        """Return the published size of the functions; None for instances, whose memory is the machine's."""
        return None if self.experiment.architecture == GPU else int(self.row.published[MEMORY])

    @cached_property
    def program(self) -> Program:
        """Return the recorded program with the published memory size."""
        program = self.measured.program
        return program if self.memory_mb is None else with_memory(program, self.measured.plan.memory_mb, self.memory_mb)

    def seconds(self, profile: Profile) -> Estimate:
        """Return modelled seconds of a minibatch."""
        return estimate(played_calls(play(self.program, profile), self.measured.recording), BATCHES)


def fit_speed(played: Sequence[Played], profile: Profile) -> Calibration:
    """Return the speed of Lambda's processors by which half of the functions' rows are modelled longer than
    published."""
    functions = {run.key: run for run in played if run.experiment.architecture != GPU}
    published = {key: float(run.row.published[TIME]) for key, run in functions.items()}

    def modelled(speed: float) -> dict[str, float]:
        there = with_speed(profile, Figure(value=speed, status="assumed", source="tried"))
        return {key: run.seconds(there).value for key, run in functions.items()}

    return calibrate(published, modelled)


def differences(played: Sequence[Played], calibration: Calibration, profile: Profile) -> Iterator[str]:
    """Yield how far apart runs of one model are in nearly the same computation, and models at one speed."""
    spent = grouped(
        (run.row.group, estimate(cpu_calls(run.measured.recording), BATCHES).value)
        for run in played
        # Making and reading texts is another computation.
        if run.measured.plan.options.get("gradients") != "json"
    )
    ranges = "; ".join(f"{name} {min(values):.1f} to {max(values):.1f} s" for name, values in spent.items())
    yield (
        f"The CPU time of a minibatch, most of it the same gradient in every row, differs between runs: {ranges}. "
        "Intervals are those of one run, and do not contain this."
    )
    functions = [run for run in played if run.experiment.architecture != GPU]
    groups = dict.fromkeys(run.row.group for run in functions)
    if len(groups) < 2:
        return
    alone = {name: fit_speed([run for run in functions if run.row.group == name], profile).speed for name in groups}
    platform = calibration.apply(profile)
    first, *others = groups
    runs = {(run.row.name, run.experiment.variant, run.row.group): run for run in functions}
    for other in others:
        ratios = []
        for (name, variant, group), run in runs.items():
            below = runs.get((name, variant, first)) if group == other else None
            if below is not None:
                printed = float(run.row.published[TIME]) / float(below.row.published[TIME])
                modelled = run.seconds(platform).value / below.seconds(platform).value
                ratios.append(f"{name}, {variant} {printed:.2f} and {modelled:.2f}")
        yield (
            f"Ratio of a minibatch of {other} to one of {first}, published and modelled: {'; '.join(ratios)}. Where "
            f"these differ, no single speed fits both models: fitted to {first} alone it would be {alone[first]:.3g}, "
            f"to {other} alone {alone[other]:.3g} processors a vCPU."
        )
