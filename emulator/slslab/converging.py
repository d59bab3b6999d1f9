"""`slslab reproduce table3 | fig4 | mlless-filter`: accuracy by time, what is learnt apart from how long it takes."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from slslab.replaying import directory_option, plot_option, replayable
from slslab.terminal import Bar, json_option, print_document

if TYPE_CHECKING:
    from slslab.papers import Paper
    from slslab.reproductions.curves import Curve
    from slslab.reproductions.epochs import Recordings
    from slslab.reproductions.progressions import Progression

PAPER, MODEL = "barrak-2025", "mobilenet"
REPLAYED = "replayed"
Command = TypeVar("Command", bound=Callable[..., Any])


_options = (
    directory_option("--accuracy", "Read the curves of slslab accuracy in here (by default the project's own)."),
    directory_option("--recordings", "Read Table 2's runs in here (by default the project's own)."),
    click.option("--dataset", default="cifar10", show_default=True, help="Curves of this data set."),
    click.option(
        "--profile", default="aws-us-east-1", show_default=True, metavar="PROFILE", help="The platform of the model."
    ),
    click.option("--prices", default="aws-us-east-1", show_default=True, metavar="BOOK", help="Prices of the bill."),
    directory_option("--out", "Where the tables go (by default reproduce-NAME-replayed beside the runs)."),
    json_option,
)
_target_option = click.option(
    "--target",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="A",
    help="The accuracy (0..1) to compare at; by default the largest multiple of 5 %, from 15, that most reach.",
)


def _converging(name: str, *more: Callable[[Any], Any]) -> Callable[[Command], click.Command]:
    """The command of a table or figure that is made of curves and of Table 2's runs."""

    def register(command: Command) -> click.Command:
        for option in reversed((*more, *_options)):
            command = option(command)
        return click.command(name)(command)

    return register


@_converging("table3", _target_option)
def table3(target: float | None, out: Path | None, json_: bool, **options: Any) -> None:
    """Accuracy, and the time to it: epochs of the accuracy curves × modelled seconds of an epoch.

    \b
    slslab reproduce table3
    slslab reproduce table3 --target 0.6

    Curves are measured (slslab accuracy), canonical and as released; a curve stands for all architectures that compute
    the same parameters bit by bit. Seconds of an epoch are modelled, from the recordings of reproduce table2. What no
    epoch of a curve reaches is not reached; nothing is extrapolated.
    """
    from slslab.reproducing import finish, folder
    from slslab.reproductions.table3 import build

    paper, _, recordings, progressions = _read(**options)
    finish(build(paper, progressions, recordings, target), out or folder("table3", REPLAYED), json_)


@_converging("fig4", plot_option)
def fig4(plot: Path | None, out: Path | None, json_: bool, **options: Any) -> None:
    """Accuracy by time: the points of all curves, and with --plot a picture.

    The paper has no data of its Figure 4, so nothing published stands beside them.
    """
    from slslab.reports import points
    from slslab.reports.plots import check_format
    from slslab.reproducing import folder
    from slslab.reproductions.saving import save
    from slslab.reproductions.table3 import build_figure

    if plot is not None:
        check_format(plot)
    paper, _, recordings, progressions = _read(**options)
    document = build_figure(paper, progressions, recordings)
    saved = save(document, out or folder("fig4", REPLAYED))
    if plot is not None:
        points.draw_points(document, plot)
    print_document(document, lambda: points.points(document), json_)
    click.echo(f"Saved: {', '.join(map(str, saved))}", err=True)


@_converging("mlless-filter", _target_option)
def mlless_filter(target: float | None, out: Path | None, json_: bool, **options: Any) -> None:
    """MLLess's significance filter: seconds to an accuracy with it and without, and the ratio beside the paper's 13.

    Both arms come to the same accuracy; their epochs are measured, an epoch's seconds modelled with the share of the
    gradients that each sends, messages and bytes exact.
    """
    from slslab.reproducing import finish, folder
    from slslab.reproductions.filtering import NAME, build

    paper, curves, recordings, _ = _read(**options)
    with replayable("MLLess"):
        document = build(paper, curves, recordings, MODEL, target)
    finish(document, out or folder(NAME, REPLAYED), json_)


def _read(
    accuracy: Path | None, recordings: Path | None, dataset: str, profile: str, prices: str
) -> "tuple[Paper, tuple[Curve, ...], Recordings, tuple[Progression, ...]]":
    """Curves of the model, Table 2's recordings on the platform, and the rows that they are of."""
    from slslab.billing import load_book
    from slslab.papers import load_paper
    from slslab.replay.profiles import load_profile
    from slslab.reproductions import MODELS
    from slslab.reproductions.curves import committed, read_curves, select, sent_shares
    from slslab.reproductions.epochs import epoch_times, prepare
    from slslab.reproductions.experiments import committed as recorded
    from slslab.reproductions.experiments import experiments, read_all
    from slslab.reproductions.progressions import pair_up

    paper, platform, book = load_paper(PAPER), load_profile(profile), load_book(prices)
    curves = select(read_curves(accuracy or committed()), MODEL, dataset)
    with Bar() as bar, replayable("Table 2"):
        found = prepare(paper, read_all(recordings or recorded(), experiments(MODELS)).done, platform, book)
        wanted = experiments([MODEL])
        times = epoch_times(found, wanted, bar.report, sent_shares(curves, wanted))
    return paper, curves, found, pair_up(paper, MODEL, curves, times)
