"""The wall time of a whole epoch of an architecture on a platform, whatever is learnt in it.

In the paper's Table 2 an epoch is 24 functions one after another. Here it lasts from its start to the next epoch's
start, in all architectures: SPIRT's functions of an epoch run at the same time, and waits for others are included."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from slslab.errors import RequestError, RunError
from slslab.predict.profiles.profile import Profile
from slslab.run.bill import Book, compute_bill
from slslab_lab.papers.paper import Paper
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.measured import Measured
from slslab_lab.replay.outcome import outcome
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.whatif import modelled_usage, with_memory
from slslab_lab.studies.experiments import BATCHES, GPU, Experiment
from slslab_lab.studies.replayed_rows import Calibration, Played, fit_speed
from slslab_lab.studies.table2 import row_of
from slslab_workers.plan import PlanError

# Epochs between these two are steady: environments are warm by the first, and the turns of MLLess's workers repeat
# every 48 minibatches.
FIRST, LAST = 2, 4


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
    played = {run: Played(run, measured, row_of(paper, run)) for run, measured in recorded.items()}
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
