"""Recorded runs as a row of Table 2 has them played: with its memory size, and one speed of processors for all rows.

What one speed cannot give, and what no interval within a run has, is told as well: `differences`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from slslab.papers import Row
from slslab.replay.kernel import play
from slslab.replay.measured import Measured
from slslab.replay.profiles import Figure, Profile, with_speed
from slslab.replay.program import Program
from slslab.replay.whatif import with_memory
from slslab.reproductions.calls import Estimate, cpu_calls, estimate, played_calls
from slslab.reproductions.experiments import BATCHES, GPU, Experiment
from slslab.reproductions.speeds import Calibration, calibrate

TIME, MEMORY = "function_seconds", "memory_mb"


@dataclass(frozen=True)
class Played:
    """A recorded run and its row of the table; functions are played with the row's memory size."""

    experiment: Experiment
    measured: Measured
    row: Row

    @property
    def key(self) -> str:
        """Row, model and variant in words."""
        return f"{self.row.name}, {self.row.group}, {self.experiment.variant}"

    @property
    def memory_mb(self) -> int | None:
        """The published size of the functions; None for instances, whose memory is the machine's."""
        return None if self.experiment.architecture == GPU else int(self.row.published[MEMORY])

    @cached_property
    def program(self) -> Program:
        """The recorded program with the published memory size."""
        program = self.measured.program
        return program if self.memory_mb is None else with_memory(program, self.measured.plan.memory_mb, self.memory_mb)

    def seconds(self, profile: Profile) -> Estimate:
        """Modelled seconds of a minibatch."""
        return estimate(played_calls(play(self.program, profile), self.measured.recording), BATCHES)


def fit_speed(played: Sequence[Played], profile: Profile) -> Calibration:
    """The speed of Lambda's processors by which half of the functions' rows are modelled longer than published."""
    functions = {one.key: one for one in played if one.experiment.architecture != GPU}
    published = {key: float(one.row.published[TIME]) for key, one in functions.items()}

    def modelled(speed: float) -> dict[str, float]:
        there = with_speed(profile, Figure(value=speed, status="assumed", source="tried"))
        return {key: one.seconds(there).value for key, one in functions.items()}

    return calibrate(published, modelled)


def differences(played: Sequence[Played], calibration: Calibration, profile: Profile) -> Iterator[str]:
    """How far apart runs of one model are in what mostly is the same computation, and models in what a speed gives."""
    spent: dict[str, list[float]] = {}
    for one in played:
        if one.measured.plan.options.get("gradients") == "json":  # to make and to read texts is another computation
            continue
        spent.setdefault(one.row.group, []).append(estimate(cpu_calls(one.measured.recording), BATCHES).value)
    ranges = "; ".join(f"{name} {min(values):.1f} to {max(values):.1f} s" for name, values in spent.items())
    yield (
        f"The CPU time of a minibatch, most of it the same gradient in every row, differs between runs: {ranges}. "
        "Intervals are of one run, and do not have this."
    )
    functions = [one for one in played if one.experiment.architecture != GPU]
    groups = dict.fromkeys(one.row.group for one in functions)
    if len(groups) < 2:
        return
    alone = {name: fit_speed([one for one in functions if one.row.group == name], profile).speed for name in groups}
    platform = calibration.apply(profile)
    first, *others = groups
    found = {(one.row.name, one.experiment.variant, one.row.group): one for one in functions}
    for other in others:
        ratios = []
        for (name, variant, group), one in found.items():
            below = found.get((name, variant, first)) if group == other else None
            if below is not None:
                printed = float(one.row.published[TIME]) / float(below.row.published[TIME])
                modelled = one.seconds(platform).value / below.seconds(platform).value
                ratios.append(f"{name}, {variant} {printed:.2f} and {modelled:.2f}")
        yield (
            f"A minibatch of {other} takes as many times as long as one of {first}, published and modelled: "
            f"{'; '.join(ratios)}. Where these differ no one speed gives both models: to {first} alone it would be "
            f"{alone[first]:.3g}, to {other} alone {alone[other]:.3g} processors a vCPU."
        )
