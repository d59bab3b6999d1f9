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
    "profile": "The platform of the model: a name or a TOML file.",
    "recordings": "replayed: read the {} here (by default the project's own).",
}


def _options(study: Study) -> Iterator[Decorator]:
    for name in study.options:
        text = study.texts.get(name) or TEXTS.get(name, "").format(study.kept)
        if name in ALIKE:
            yield ALIKE[name]
        elif name == "fidelity":
            fidelities = click.Choice((*study.effort, REPLAYED))
            amounts = ", ".join(map(" ".join, zip(study.effort, study.amounts, strict=True)))
            read = "recordings" if study.kept == "runs" else study.kept
            text = f"{amounts}; {REPLAYED} reads {read}, in seconds."
            yield click.option("--fidelity", type=fidelities, default=study.fidelity, show_default=True, help=text)
        elif name == "profile":
            yield click.option("--profile", default=study.profile, show_default=True, metavar="PROFILE", help=text)
        elif name == "dataset":
            yield click.option("--dataset", default=DEFAULTS["dataset"], show_default=True, help=text)
        elif name == "out":
            what, fidelity = (f"{study.kept} and tables", "FIDELITY") if study.effort else ("the tables", REPLAYED)
            text = f"Where {what} go (by default reproduce-{study.name}-{fidelity} next to the runs)."
            yield directory_option("--out", text)
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
    # Click would cut the line off in the list of commands.
    first = study.about.partition("\n")[0]
    return click.command(study.name, help=study.about, short_help=first)(options(reproduce_study))


@click.group(commands=[_command(study) for study in STUDIES.values()])
def reproduce() -> None:
    """Does the paper hold? Its tables and figures, made again: published, recomputed, measured, modelled.

    \b
    slslab reproduce table2 --fidelity replayed   from recordings, in seconds
    slslab reproduce table2 --model mobilenet     measured here (some of the minibatches)
    slslab reproduce table3 --plot figure4.svg    with a picture
    slslab reproduce lambdaml-table1 --full       every figure, not only the answer
    """
