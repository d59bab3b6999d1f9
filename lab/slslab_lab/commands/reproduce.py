"""`slslab reproduce`: a command for each study that reproduces a paper's table or figure."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from slslab.cli.terminal import Bar, json_option, print_document
from slslab_lab.commands.options import (
    Amount,
    directory_option,
    measure_on_option,
    plot_option,
    replayable,
    train_on_option,
    with_options,
)
from slslab_lab.studies import MODELS
from slslab_lab.studies.catalogue import STUDIES
from slslab_lab.studies.study import BOOK, DEFAULTS, REPLAYED, Study

Decorator = Callable[[Any], Any]
full_option = click.option("--full", is_flag=True, help="Print every figure, not only the answer.")
prices_option = click.option(
    "--prices", default=BOOK, show_default=True, metavar="BOOK", help="Prices of the whole bill."
)
# Options that are the same for all studies that have them.
ALIKE: Mapping[str, Decorator] = {
    "models": click.option(
        "--model", "models", multiple=True, type=click.Choice(MODELS), help="Only this model (by default both)."
    ),
    "batches": click.option(
        "--batches",
        type=click.IntRange(3, 23),
        default=DEFAULTS["batches"],
        show_default=True,
        help="sampled: minibatches of each worker; more give smaller intervals.",
    ),
    "runs_on": measure_on_option,
    "train_on": train_on_option,
    "prices": prices_option,
    "target": click.option(
        "--target",
        type=Amount(0, 1, min_open=True),
        metavar="A",
        help="The accuracy (0..1) to compare at; by default the largest multiple of 5 %, from 20, that most reach.",
    ),
    "plot": plot_option,
}
# Help of the others, unless the study has its own text.
TEXTS = {
    "profile": "The platform of the model.",
    "recordings": "replayed: read the {} here (by default the project's own).",
    "out": "Where {} and tables go (by default reproduce-NAME-FIDELITY next to the runs).",
}


def _options(study: Study) -> Iterator[Decorator]:
    for name in study.options:
        text = study.texts.get(name) or TEXTS.get(name, "").format(study.kept)
        if name in ALIKE:
            yield ALIKE[name]
        elif name == "fidelity":
            fidelities = click.Choice((*study.effort, REPLAYED))
            yield click.option("--fidelity", type=fidelities, default=study.usual, show_default=True, help=text)
        elif name == "profile":
            shown = "by default" not in text
            yield click.option("--profile", default=study.profile, show_default=shown, metavar="PROFILE", help=text)
        elif name == "dataset":
            yield click.option("--dataset", default=DEFAULTS["dataset"], show_default=True, help=text)
        else:
            yield directory_option(f"--{name}", text)


def _command(study: Study) -> click.Command:
    def reproduce_study(json_: bool, full: bool, plot: Path | None = None, **options: Any) -> None:
        from slslab_lab.pages.pictures import draw_reproduction
        from slslab_lab.pages.reproduction import brief, reproduction
        from slslab_lab.studies.saving import save

        with Bar() as bar, replayable(study.name):
            setup = study.setup(bar, **options)
            document = study.make(setup)
        if plot is not None:
            draw_reproduction(document, plot)
        saved = save(document, setup.out)
        print_document(document, lambda: (reproduction if full else brief)(document), json_)
        click.echo(f"Saved: {', '.join(map(str, saved))}", err=True)

    options = with_options(*_options(study), full_option, json_option)
    return click.command(study.name, help=study.__doc__)(options(reproduce_study))


@click.group(commands=[_command(study) for study in STUDIES.values()])
def reproduce() -> None:
    """Does the paper hold? Its tables and figures, made again: published, recomputed, measured, modelled.

    \b
    slslab reproduce table2 --fidelity replayed   time, memory and cost of an epoch, from recordings, in seconds
    slslab reproduce table2 --model mobilenet     the same, measured here (some of the minibatches)
    slslab reproduce table3                       accuracy and the time to it, from accuracy curves and recordings
    slslab reproduce fig2                         AllReduce and ScatterReduce, 4 to 16 workers
    slslab reproduce mlless-filter                MLLess with its filter and without
    slslab reproduce lambdaml-table1              other channels compared with S3, in LambdaML's experiments
    slslab reproduce lambdaml-table3              the same two in LambdaML's own experiments
    slslab reproduce lambdaml-fig7                rounds to a loss by GA-SGD, MA-SGD, ADMM; k-means by EM
    slslab reproduce lambdaml-fig8                loss with a barrier (BSP) and without (S-ASP)
    slslab reproduce in-database                  SPIRT's averaging and update, in the database and without
    slslab reproduce gradssharding                rounds on AWS: predicted, and fitted
    slslab reproduce kubeml-times                 KubeML's seconds by merges, one constant fitted
    slslab reproduce kubeml-accuracy              KubeML's accuracy by global batch, on a small model
    slslab reproduce byzantine                    accuracy by attack and rule, and the cost of rules
    slslab reproduce serverless-gpu               would functions with GPUs change the comparison?
    """
