"""Figure 8 of LambdaML: the loss of workers that never wait (S-ASP) is less steady than the loss of workers that wait
for all (BSP)."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from slslab.errors import counted
from slslab.run.metrics import grouped
from slslab_lab.runs.accuracy.curve import Unwatched
from slslab_lab.studies.documents import Cell, ReproducedRow, make_curve, make_document, middle
from slslab_lab.studies.lambdaml.losses import RATE, Losses, Series, Training, by_epoch, collect, run
from slslab_lab.studies.rankings import Order, judge
from slslab_lab.studies.study import Setup

TABLE, RESULTS = "figure8", Losses
DATASETS = ("breast-cancer", "higgs-shaped")
WORKERS, LAST = 4, 20
# The released code's, and the largest that the paper tried.
RATES = (RATE, 1.0)
SYNCHRONISATIONS = {"bsp": "BSP", "s-asp": "S-ASP"}
COLUMNS = (
    ("spread", "Unsteadiness of the loss from epoch to epoch", "loss", 5),
    ("loss", "Loss of the last epoch", "loss", 4),
)


def measure(setup: Setup) -> Losses:
    """Compute BSP's losses and run S-ASP, logistic regression by GA-SGD."""

    def learn(training: Training) -> tuple[float, ...]:
        # Show the number of the run instead of a run's own progress.
        return by_epoch(training) if training.synchronisation == "bsp" else run(training, Unwatched())

    trainings = [
        Training("lr", dataset, "ga", LAST, seed, synchronisation, WORKERS, rate)
        for dataset in DATASETS
        for rate in RATES
        for synchronisation in SYNCHRONISATIONS
        for seed in range(setup.effort)
    ]
    return collect(trainings, learn, setup.watcher.report)


def build(setup: Setup, losses: Losses) -> dict[str, Any]:
    """Return the document of the figure."""
    members = grouped((_of(each), each) for each in losses.series)
    return make_document(
        setup,
        setup.paper.table(TABLE),
        COLUMNS,
        map(_row, losses.series),
        _notes(losses),
        curves=map(_picture, members.values()),
        measurements=losses.about("series"),
        orders=[asdict(order(each)) for each in members.values()],
    )


def spread(losses: Sequence[float]) -> float:
    """Return how far a loss is from the mean of its neighbours, on average over the second half of the epochs. A steady
    fall, however steep, gives 0."""
    half = losses[len(losses) // 2 :]
    return fmean(abs(own - (before + after) / 2) for before, own, after in zip(half, half[1:], half[2:], strict=False))


def order(members: Sequence[Series]) -> Order:
    """Return whether S-ASP's loss is less steady than BSP's, from every seed."""
    spreads = {each.synchronisation: [spread(losses) for losses in each.losses.values()] for each in members}
    pairs = list(zip(spreads["bsp"], spreads["s-asp"], strict=True))
    times = [free / bound for bound, free in pairs if bound]
    figures = "; ".join(
        f"{SYNCHRONISATIONS[name]} {middle(found).value:.5f} ({min(found):.5f} to {max(found):.5f})"
        for name, found in spreads.items()
    )
    if times:
        figures += f", {min(times):.2f} to {max(times):.2f} times BSP's of the same seed"
    verdict = judge(free > bound for bound, free in pairs)
    return Order("S-ASP's loss is less steady than BSP's", _of(members[0]), verdict, figures)


def _row(series: Series) -> ReproducedRow:
    cells = {
        "spread": Cell(measured=middle([spread(losses) for losses in series.losses.values()])),
        "loss": Cell(measured=middle([losses[-1] for losses in series.losses.values()])),
    }
    variant = "runs" if series.synchronisation == "s-asp" else "one process"
    return ReproducedRow(SYNCHRONISATIONS[series.synchronisation], _of(series), variant, cells)


def _picture(members: Sequence[Series]) -> dict[str, Any]:
    seed = next(iter(members[0].losses))
    lines = [
        (SYNCHRONISATIONS[each.synchronisation], range(1, len(each.losses[seed]) + 1), each.losses[seed])
        for each in members
    ]
    of, axes = _of(members[0]), (("epochs", "epochs", ""), ("loss", "training loss", ""))
    return make_curve(f"{of}: loss by epoch", of, *axes, lines)


def _notes(losses: Losses) -> Iterator[str]:
    plan = losses.series[0].plan
    yield (
        f"Measured: the mean loss of all minibatches of an epoch, {plan['workers']} workers, medians of "
        f"{counted(len(losses.series[0].losses), 'seed')} with the least and the greatest; pictures show the first "
        "seed. S-ASP was run on this host. Workers that run in another order, as on Lambda, have other losses. BSP "
        f"was computed in one process, with the same bits as a run. {losses.origin}."
    )
    yield (
        "Unsteadiness is how far the loss of an epoch is from the mean of the epochs before and after it, on average "
        "over the second half of the epochs. A steady fall, however steep, gives 0. S-ASP's must be greater from "
        "every seed."
    )
    yield (
        f"GA-SGD without momentum at two constant rates: {RATES[0]:g}, as in LambdaML's code, and {RATES[1]:g}, the "
        "largest that the paper tried. An epoch is much less than one of HIGGS. Networks are left out because they "
        "take too long."
    )


def _of(series: Series) -> str:
    return f"LR on {series.dataset} at rate {series.plan['lr']:g}"
