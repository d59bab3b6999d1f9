"""`slslab reproduce lambdaml-fig7 | lambdaml-fig8`: losses of LambdaML's algorithms and of its synchronisation."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slslab.cli.terminal import Bar
from slslab_lab.commands.options import directory_option, plot_option
from slslab_lab.commands.reproduction import REPLAYED, check_recordings, fidelity_option, finish, folder, reproduction

if TYPE_CHECKING:
    from slslab_lab.studies.lambdaml.losses import Losses

PAPER = "lambdaml-2021"
OPTIONS = (
    directory_option("--recordings", "replayed: read the losses here (by default the project's own)."),
    plot_option,
    directory_option("--out", "Where losses and tables go (by default reproduce-NAME-FIDELITY beside the runs)."),
)


@reproduction(
    "lambdaml-fig7",
    fidelity_option("sampled trains the small models from 3 seeds, full from 10; replayed reads losses, in seconds."),
    directory_option("--accuracy", "Read MobileNet's curves of slslab accuracy here (by default the project's own)."),
    *OPTIONS,
)
def fig7(
    fidelity: str, accuracy: Path | None, recordings: Path | None, plot: Path | None, out: Path | None, json_: bool
) -> None:
    """LambdaML, Figure 7: rounds of communication to a loss by GA-SGD, MA-SGD and ADMM, and k-means by EM.

    \b
    slslab reproduce lambdaml-fig7
    slslab reproduce lambdaml-fig7 --fidelity replayed --plot fig7.svg

    Logistic regression, a linear SVM and k-means on breast-cancer and higgs-shaped are trained in one process, with the
    bits of a run, in less than a minute; equal seeds give equal losses. MobileNet by GA-SGD and MA-SGD is read from
    accuracy curves, which take long: slslab accuracy allreduce --algorithm ma.
    """
    from slslab_lab.pages.plots.lines import check_format
    from slslab_lab.papers.paper import load_paper
    from slslab_lab.studies.curves import committed, read_curves
    from slslab_lab.studies.lambdaml import figure7, losses

    check_format(plot)
    check_recordings(recordings, fidelity)
    paper, directory = load_paper(PAPER), out or folder(figure7.NAME, fidelity)
    curves = read_curves(accuracy or committed())
    if fidelity == REPLAYED:
        found = losses.read(recordings or losses.committed(figure7.NAME))
    else:
        with Bar() as bar:
            found = losses.describe(figure7.measure(losses.SEEDS[fidelity], bar.report))
    _finish(figure7.build(paper, found, curves, fidelity), found, directory, fidelity, plot, json_)


@reproduction(
    "lambdaml-fig8",
    fidelity_option(
        "sampled makes 12 runs of S-ASP, from 3 seeds, full 40, from 10; replayed reads losses, in seconds."
    ),
    *OPTIONS,
)
def fig8(fidelity: str, recordings: Path | None, plot: Path | None, out: Path | None, json_: bool) -> None:
    """LambdaML, Figure 8: the loss of workers that wait for each other (BSP) and that do not (S-ASP).

    \b
    slslab reproduce lambdaml-fig8
    slslab reproduce lambdaml-fig8 --fidelity replayed

    S-ASP depends on who is faster: it is run, half a minute to a minute a run, and other runs have other losses. They
    are kept with all runs (slslab runs). BSP is computed in one process, with the bits of a run. Logistic regression on
    breast-cancer and higgs-shaped, at two rates.
    """
    from slslab_lab.pages.plots.lines import check_format
    from slslab_lab.papers.paper import load_paper
    from slslab_lab.studies.lambdaml import figure8, losses

    check_format(plot)
    check_recordings(recordings, fidelity)
    paper, directory = load_paper(PAPER), out or folder(figure8.NAME, fidelity)
    if fidelity == REPLAYED:
        found = losses.read(recordings or losses.committed(figure8.NAME))
    else:
        with Bar() as bar:
            found = losses.describe(figure8.measure(losses.SEEDS[fidelity], bar))
    _finish(figure8.build(paper, found, fidelity), found, directory, fidelity, plot, json_)


def _finish(
    document: dict[str, Any], found: "Losses", directory: Path, fidelity: str, plot: Path | None, json_: bool
) -> None:
    """Save and print the figure, its picture if one is wanted, and the losses that were computed now."""
    from slslab_lab.pages.plots.lines import draw_points
    from slslab_lab.studies.lambdaml.losses import write

    if fidelity != REPLAYED:
        click.echo(f"Losses: {write(found, directory)}", err=True)
    if plot is not None:
        draw_points(document, plot)
    finish(document, directory, json_)
