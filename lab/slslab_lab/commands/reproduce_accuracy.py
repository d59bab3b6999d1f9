"""`slslab reproduce table3 | fig4 | mlless-filter`: accuracy by time, from what is learnt and how long that takes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slslab.cli.terminal import Bar
from slslab_lab.commands.options import Amount, directory_option, plot_option
from slslab_lab.commands.replay_setup import replayable
from slslab_lab.commands.reproduction import (
    finish,
    folder,
    prices_option,
    profile_option,
    recordings_option,
    replayed_out_option,
    reproduction,
)

if TYPE_CHECKING:
    from slslab_lab.papers.paper import Paper
    from slslab_lab.studies.accuracy_by_time import Progression
    from slslab_lab.studies.curves import Curve
    from slslab_lab.studies.epochs import Recordings

PAPER, MODEL = "barrak-2025", "mobilenet"
target_option = click.option(
    "--target",
    type=Amount(0, 1, min_open=True),
    metavar="A",
    help="The accuracy (0..1) to compare at; by default the largest multiple of 5 %, from 20, that most reach.",
)
OPTIONS = (
    directory_option("--accuracy", "Read the curves of slslab accuracy here (by default the project's own)."),
    recordings_option,
    click.option("--dataset", default="cifar10", show_default=True, help="Curves of this data set."),
    profile_option,
    prices_option,
    replayed_out_option,
)


@reproduction("table3", target_option, *OPTIONS)
def table3(target: float | None, out: Path | None, json_: bool, **options: Any) -> None:
    """Accuracy, and the time to it: epochs of the accuracy curves × modelled seconds of an epoch.

    \b
    slslab reproduce table3
    slslab reproduce table3 --target 0.6

    Curves are measured (slslab accuracy), canonical and as released; a curve stands for all architectures that compute
    the same parameters bit by bit. Seconds of an epoch are modelled, from the recordings of reproduce table2. An
    accuracy that no epoch of a curve has is not reached; nothing is extrapolated.
    """
    from slslab_lab.studies.table3 import build

    paper, _, recordings, progressions = _read(**options)
    finish(build(paper, progressions, recordings, target), out or folder("table3"), json_)


@reproduction("fig4", plot_option, *OPTIONS)
def fig4(plot: Path | None, out: Path | None, json_: bool, **options: Any) -> None:
    """Accuracy by time: the points of all curves, and with --plot a picture.

    The paper has no data of its Figure 4, so nothing published stands beside them.
    """
    from slslab_lab.pages.accuracy import curves_by_time
    from slslab_lab.pages.plots.lines import check_format, draw_points
    from slslab_lab.studies.table3 import build_figure

    check_format(plot)
    paper, _, recordings, progressions = _read(**options)
    document = build_figure(paper, progressions, recordings)
    if plot is not None:
        draw_points(document, plot)
    finish(document, out or folder("fig4"), json_, curves_by_time)


@reproduction("mlless-filter", target_option, *OPTIONS)
def mlless_filter(target: float | None, out: Path | None, json_: bool, **options: Any) -> None:
    """MLLess's significance filter: seconds to an accuracy with it and without, and the ratio beside the paper's 13.

    Both arms come to the same accuracy; their epochs are measured, an epoch's seconds modelled with the share of the
    gradients that each sends, messages and bytes exact.
    """
    from slslab_lab.studies.filtering import NAME, build

    paper, curves, recordings, _ = _read(**options)
    with replayable("MLLess"):
        document = build(paper, curves, recordings, MODEL, target)
    finish(document, out or folder(NAME), json_)


def _read(
    accuracy: Path | None, recordings: Path | None, dataset: str, profile: str, prices: str
) -> "tuple[Paper, tuple[Curve, ...], Recordings, tuple[Progression, ...]]":
    """Return the paper, its model's curves, Table 2's recordings on the platform, and the rows that they are of."""
    from slslab.predict.profiles.profile import load_profile
    from slslab.run.bill import load_book
    from slslab_lab.papers.paper import load_paper
    from slslab_lab.studies import MODELS, experiments
    from slslab_lab.studies.accuracy_by_time import play_epochs
    from slslab_lab.studies.curves import committed, read_curves, select

    paper, platform, book = load_paper(PAPER), load_profile(profile), load_book(prices)
    curves = select(read_curves(accuracy or committed()), MODEL, dataset)
    with Bar() as bar, replayable("Table 2"):
        runs = experiments.read_all(recordings or experiments.committed(), experiments.experiments(MODELS))
        return paper, curves, *play_epochs(paper, MODEL, curves, runs.done, platform, book, bar.report)
