"""`slslab reproduce byzantine`: accuracy by attack, rule and number of attackers, and what a rule costs."""

from pathlib import Path

import click

from slslab.cli.terminal import Bar
from slslab_lab.commands.options import directory_option, train_on_option
from slslab_lab.commands.reproduction import (
    REPLAYED,
    check_trainings,
    fidelity_option,
    finish,
    folder,
    prices_option,
    reproduction,
)


@reproduction(
    "byzantine",
    fidelity_option("sampled trains from 1 seed, full from 3; replayed reads accuracies, in seconds."),
    prices_option,
    train_on_option,
    directory_option("--recordings", "replayed: read the accuracies here (by default the project's own)."),
    directory_option("--out", "Where accuracies and tables go (by default reproduce-NAME-FIDELITY beside the runs)."),
)
def byzantine(
    fidelity: str, prices: str, on: str | None, recordings: Path | None, out: Path | None, json_: bool
) -> None:
    """Accuracy under Byzantine workers by attack and rule, 1 and 2 of 5 attacking, and what a rule costs.

    \b
    slslab reproduce byzantine
    slslab reproduce byzantine --fidelity replayed
    slslab reproduce byzantine --fidelity full --on local

    LeNet on digits: 153 small models are trained in one process, with the bits of a run, some minutes on 2 cores; full
    takes three times as long; with --on they are trained over many cores. Then rules are timed, alone, on gradients of
    LeNet, MobileNet and ResNet-18.
    """
    from slslab.run.bill import load_book
    from slslab_lab.papers.paper import load_paper
    from slslab_lab.studies import byzantine

    check_trainings(recordings, fidelity, on)
    paper, book, directory = load_paper(byzantine.PAPER), load_book(prices), out or folder(byzantine.NAME, fidelity)
    if fidelity == REPLAYED:
        found = byzantine.read(recordings or byzantine.committed())
    else:
        with Bar() as bar:
            found = byzantine.measure(byzantine.settings_of(byzantine.EFFORT[fidelity]), bar.report, on)
        click.echo(f"Accuracies: {byzantine.write(found, directory)}", err=True)
    finish(byzantine.build(paper, found, book, fidelity), directory, json_)
