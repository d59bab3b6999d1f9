"""What a whole epoch of an architecture takes on a platform, on the wall clock: time apart from what is learnt in it.

In the paper's Table 2 an epoch is 24 functions one after another. Here it is from its begin to the next one's, for all
architectures alike: SPIRT's functions of an epoch run at the same time, and waits for others are in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from slslab.billing import Book, compute_bill
from slslab.errors import RequestError, RunError
from slslab.papers import Paper
from slslab.replay.kernel import play
from slslab.replay.measured import Measured
from slslab.replay.outcome import outcome
from slslab.replay.profiles import Profile
from slslab.replay.scaling import generate
from slslab.replay.whatif import modelled_usage, with_memory
from slslab.reproductions.experiments import BATCHES, GPU, Experiment
from slslab.reproductions.played import Played, fit_speed
from slslab.reproductions.speeds import Calibration
from slslab.reproductions.table2 import find_row
from slslab_workers.plan import PlanError

# Epochs between these two are steady: environments are warm by the first, and what MLLess's workers take turns in comes
# round in 48 minibatches.
FIRST, LAST = 2, 4


@dataclass(frozen=True)
class EpochTime:
    """Modelled wall seconds of a steady epoch, and the USD of its whole bill; both None for a `reason`.

    `share` is the part of the gradients that a filter lets pass in it."""

    seconds: float | None
    cost: float | None
    share: float = 1.0
    reason: str = ""


@dataclass(frozen=True)
class Recordings:
    """Table 2's recordings on the platform with the one speed of processors that is fitted to all of them."""

    played: Mapping[Experiment, Played]
    platform: Profile
    calibration: Calibration
    book: Book

    def epoch(self, experiment: Experiment, share: float | None = None) -> EpochTime:
        """An epoch of this row, with another share of the gradients sent than was recorded if one is given."""
        if experiment not in self.played:
            return EpochTime(None, None, reason=f"there is no recording {experiment.name}")
        try:
            return steady_epoch(self.played[experiment], self.platform, self.book, share)
        except (RequestError, PlanError) as error:
            return EpochTime(None, None, reason=error.message.rstrip("."))


def prepare(paper: Paper, recorded: Mapping[Experiment, Measured], profile: Profile, book: Book) -> Recordings:
    """Fit the speed; RunError if no functions were recorded to which it could be."""
    played = {one: Played(one, measured, find_row(paper, one)) for one, measured in recorded.items()}
    if all(one.architecture == GPU for one in played):
        raise RunError(
            "No functions were recorded, to whose published seconds the speed of processors is fitted.",
            "record those of slslab reproduce table2.",
        )
    calibration = fit_speed(list(played.values()), profile)
    return Recordings(played, calibration.apply(profile), calibration, book)


def steady_epoch(one: Played, platform: Profile, book: Book, share: float | None = None) -> EpochTime:
    """The mean of the epochs after the second one, in a run of 24 minibatches an epoch.

    RequestError if the run cannot be scaled, PlanError for options that its pattern does not cover."""
    measured, costs = one.measured, one.measured.costs
    if share is not None:
        costs = replace(costs, workload=replace(costs.workload, share=share))
    spans, totals = [], []
    for epochs in (FIRST, LAST):
        program = generate(costs, measured.plan.workers, BATCHES, epochs)
        if one.memory_mb is not None:
            program = with_memory(program, measured.plan.memory_mb, one.memory_mb)
        timeline = play(program, platform)
        found = outcome(timeline, measured.arch)
        spans.append(found.seconds)
        totals.append(compute_bill(modelled_usage(measured, timeline, found), book).total)
    number = LAST - FIRST
    return EpochTime((spans[1] - spans[0]) / number, float(totals[1] - totals[0]) / number, costs.workload.share)


def epoch_times(
    recordings: Recordings,
    wanted: tuple[Experiment, ...],
    report: Callable[[str, int, int], None],
    shares: Mapping[Experiment, float] = MappingProxyType({}),
) -> dict[Experiment, EpochTime]:
    """An epoch of each row, with this share of its gradients sent, or else with that of the recording; `report` hears
    how many are done."""
    found = {}
    for number, experiment in enumerate(wanted, 1):
        found[experiment] = recordings.epoch(experiment, shares.get(experiment))
        report("playing epochs", number, len(wanted))
    return found
