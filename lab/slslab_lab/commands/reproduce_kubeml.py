"""`slslab reproduce kubeml-times | kubeml-accuracy`: how long KubeML takes by merges, and what it learns by global
batch."""

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
    profile_option,
    replayed_out_option,
    reproduction,
)


@reproduction("kubeml-times", profile_option, replayed_out_option)
def kubeml_times(profile: str, out: Path | None, json_: bool) -> None:
    """KubeML's seconds of 30 epochs of ResNet34 by merges, and to an accuracy.

    \b
    slslab reproduce kubeml-times
    slslab reproduce kubeml-times --json

    Its pattern is played on the profile for 16 sizes of minibatches and K. One constant is fitted: the rate at which a
    tensor moves. What an epoch computes is taken from the four rows with one merge an epoch.
    """
    from slslab.predict.profiles.profile import load_profile
    from slslab_lab.papers.paper import load_paper
    from slslab_lab.studies.kubeml.times import NAME, PAPER, build

    finish(build(load_paper(PAPER), load_profile(profile)), out or folder(NAME), json_)


@reproduction(
    "kubeml-accuracy",
    fidelity_option("sampled trains 10 epochs from 1 seed, full 30 from 3; replayed reads accuracies, in seconds."),
    train_on_option,
    directory_option("--recordings", "replayed: read the accuracies here (by default the project's own)."),
    directory_option("--out", "Where accuracies and tables go (by default reproduce-NAME-FIDELITY beside the runs)."),
)
def kubeml_accuracy(fidelity: str, on: str | None, recordings: Path | None, out: Path | None, json_: bool) -> None:
    """KubeML's accuracy by global batch: LeNet on MNIST's images, 1, 2 and 4 functions.

    \b
    slslab reproduce kubeml-accuracy
    slslab reproduce kubeml-accuracy --fidelity replayed
    slslab reproduce kubeml-accuracy --fidelity full --on local

    Twelve small models are trained in one process, with the bits of a run: some minutes on 2 cores; full takes nine
    times as long. The paper's figure is of ResNet34 on CIFAR-10 and stands beside.
    """
    from slslab_lab.papers.paper import load_paper
    from slslab_lab.studies.kubeml import accuracy

    check_trainings(recordings, fidelity, on)
    paper, directory = load_paper(accuracy.PAPER), out or folder(accuracy.NAME, fidelity)
    if fidelity == REPLAYED:
        found = accuracy.read(recordings or accuracy.committed())
    else:
        with Bar() as bar:
            found = accuracy.measure(accuracy.settings_of(*accuracy.EFFORT[fidelity]), bar.report, on)
        click.echo(f"Accuracies: {accuracy.write(found, directory)}", err=True)
    finish(accuracy.build(paper, found, fidelity), directory, json_)
