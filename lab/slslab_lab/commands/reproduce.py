"""`slslab reproduce`: what papers published beside what arithmetic, measurements and the model say."""

from pathlib import Path
from typing import Any

import click

from slslab.cli.terminal import Bar
from slslab_lab.commands.options import directory_option, measure_on_option, replayable
from slslab_lab.commands.reproduce_accuracy import fig4, mlless_filter, table3
from slslab_lab.commands.reproduce_algorithms import fig7, fig8
from slslab_lab.commands.reproduce_byzantine import byzantine
from slslab_lab.commands.reproduce_channels import lambdaml_table1, lambdaml_table2
from slslab_lab.commands.reproduce_communication import fig2, lambdaml_table3
from slslab_lab.commands.reproduce_kubeml import kubeml_accuracy, kubeml_times
from slslab_lab.commands.reproduction import (
    REPLAYED,
    check_recordings,
    check_trainings,
    fidelity_option,
    finish,
    folder,
    models_option,
    prices_option,
    profile_option,
    replayed_out_option,
    reproduction,
)
from slslab_lab.runs.sweeps.sweep import LOCAL
from slslab_lab.studies import MODELS
from slslab_workers.plan import MEMORY_FORMATS

TABLE2_OPTIONS = (
    models_option,
    fidelity_option(
        "sampled runs some of the minibatches here, full all of them; replayed reads recordings, in seconds."
    ),
    click.option(
        "--batches",
        type=click.IntRange(3, 23),
        default=4,
        show_default=True,
        help="sampled: minibatches of each worker; more give smaller intervals.",
    ),
    click.option(
        "--dataset",
        default="cifar10",
        show_default=True,
        help="cifar10, synthetic, or folder:PATH of class folders. Times do not depend on what the images show.",
    ),
    click.option(
        "--memory-format",
        type=click.Choice(MEMORY_FORMATS),
        default=MEMORY_FORMATS[0],
        show_default=True,
        help="sampled, full: default is PyTorch's, as in the papers' code; channels-last is faster on CPUs.",
    ),
    measure_on_option,
    profile_option,
    prices_option,
    directory_option("--recordings", "replayed: read the runs here (by default the project's own)."),
    directory_option(
        "--out", "Where runs and tables go (by default reproduce-table2-FIDELITY beside the runs); runs in it are kept."
    ),
)


@reproduction("table2", *TABLE2_OPTIONS)
def table2(json_: bool, **options: Any) -> None:
    """Time, memory and cost of an epoch: five architectures, MobileNet and ResNet-18, as released and canonical.

    \b
    slslab reproduce table2 --fidelity replayed
    slslab reproduce table2 --model mobilenet --dataset synthetic
    slslab reproduce table2 --fidelity full --out table2-full
    slslab reproduce table2 --fidelity full --on ray

    Sampled and full make a run per row, one after another, or on a Ray cluster one at a time on each node; after Ctrl-C
    the same command continues with the missing runs. One speed of Lambda's processors is fitted to all rows; no row has
    a constant of its own.
    """
    finish(*_table2(**options), json_)


@reproduction("fig3", *TABLE2_OPTIONS)
def fig3(json_: bool, **options: Any) -> None:
    """Time against cost of an epoch, the rows of Table 2 as points.

    What Figure 3 draws could not be established; time against cost is the paper's one comparison that no other table or
    figure of it shows.
    """
    from slslab_lab.studies.figure3 import build

    document, directory = _table2(**options)
    finish(build(document), directory, json_)


def _table2(
    models: tuple[str, ...],
    fidelity: str,
    batches: int,
    dataset: str,
    memory_format: str,
    on: str | None,
    profile: str,
    prices: str,
    recordings: Path | None,
    out: Path | None,
) -> tuple[dict[str, Any], Path]:
    """Return Table 2's document, and the directory where it belongs."""
    from slslab.predict.profiles.profile import load_profile
    from slslab.run.bill import load_book
    from slslab_lab.papers.paper import load_paper
    from slslab_lab.studies.experiments import BATCHES, Sample, committed, experiments, read_all, record_all
    from slslab_lab.studies.table2 import build

    check_trainings(recordings, fidelity, on)
    paper, platform, book = load_paper("barrak-2025"), load_profile(profile), load_book(prices)
    directory = out or folder("table2", fidelity)
    rows = experiments(models or MODELS)
    with Bar() as bar, replayable("Table 2"):
        if fidelity == REPLAYED:
            runs = read_all(recordings or committed(), rows)
        else:
            sample = Sample(BATCHES if fidelity == "full" else batches, dataset, memory_format)
            place = None if on == LOCAL else on
            runs = record_all(directory, rows, sample, bar, lambda line: click.echo(line, err=True), place)
        return build(paper, runs, platform, book, fidelity, bar.report), directory


@reproduction(
    "in-database",
    models_option,
    fidelity_option(
        "sampled measures each way a few times here, full more often; replayed reads measurements, in seconds."
    ),
    profile_option,
    directory_option("--recordings", "replayed: read the measurements here (by default the project's own)."),
    directory_option(
        "--out", "Where measurements and tables go (by default reproduce-in-database-FIDELITY beside the runs)."
    ),
)
def in_database(
    models: tuple[str, ...], fidelity: str, profile: str, recordings: Path | None, out: Path | None, json_: bool
) -> None:
    """SPIRT's averaging and update of the model, 24 gradients: fetched and put back, or computed in the database.

    \b
    slslab reproduce in-database --fidelity replayed
    slslab reproduce in-database --model mobilenet

    Measured with the embedded tensor database over loopback (ResNet-18 takes 5 GB and a minute or two), modelled with
    the requests and bytes of both ways on the profile. No figure is fitted.
    """
    from slslab.predict.profiles.profile import load_profile
    from slslab_lab.papers.paper import load_paper
    from slslab_lab.studies.in_database.measurements import REPEATS, committed, measure, read, write
    from slslab_lab.studies.in_database.table import NAME, build

    check_recordings(recordings, fidelity)
    paper, platform = load_paper("barrak-2025"), load_profile(profile)
    directory, names = out or folder(NAME, fidelity), models or MODELS
    if fidelity == REPLAYED:
        measurements = read(recordings or committed())
    else:
        gradients = int(paper.table("table2").inputs["batches"])
        with Bar() as bar:
            measurements = measure(names, gradients, REPEATS[fidelity], bar.report)
        click.echo(f"Measured: {write(measurements, directory)}", err=True)
    finish(build(paper, measurements, names, platform, fidelity), directory, json_)


@reproduction(
    "gradssharding",
    click.option(
        "--profile",
        default="aws-us-east-1-2026",
        show_default=True,
        metavar="PROFILE",
        help="The platform: a name or a TOML file.",
    ),
    replayed_out_option,
)
def gradssharding(profile: str, out: Path | None, json_: bool) -> None:
    """Seconds and cost of a round of GradsSharding, λ-FL and LIFL on AWS: predicted for RQ3, fitted to RQ2.

    \b
    slslab reproduce gradssharding

    RQ3's eight rounds were predicted, with intervals of 80 %, before they were compared with what was measured. The
    predictions are kept as they were made. The profile's network is fitted to RQ2's five rounds, never to RQ3.
    --profile chooses the platform that today's code models both on.
    """
    from slslab.predict.profiles.profile import load_profile
    from slslab_lab.papers.paper import load_paper
    from slslab_lab.studies.gradssharding import PAPER, build

    finish(build(load_paper(PAPER), load_profile(profile)), out or folder("gradssharding"), json_)


COMMANDS = (
    *(table2, table3, fig2, fig3, fig4, mlless_filter, lambdaml_table1, lambdaml_table2, lambdaml_table3, fig7, fig8),
    *(in_database, gradssharding, kubeml_times, kubeml_accuracy, byzantine),
)


@click.group(commands=COMMANDS)
def reproduce() -> None:
    """Does the paper hold? Its tables and figures, made again: published, recomputed, measured, modelled.

    \b
    slslab reproduce table2 --fidelity replayed   time, memory and cost of an epoch, from recordings, in seconds
    slslab reproduce table2 --model mobilenet     the same, measured here (some of the minibatches)
    slslab reproduce table3                       accuracy and the time to it, from accuracy curves and recordings
    slslab reproduce fig2                         AllReduce and ScatterReduce, 4 to 16 workers
    slslab reproduce fig3 --fidelity replayed     time against cost
    slslab reproduce fig4 --plot fig4.svg         accuracy by time
    slslab reproduce mlless-filter                MLLess with its filter and without
    slslab reproduce lambdaml-table1              other channels beside S3, in LambdaML's experiments
    slslab reproduce lambdaml-table2              75 MB to a parameter server, beside LambdaML's
    slslab reproduce lambdaml-table3              the same two in LambdaML's own experiments
    slslab reproduce lambdaml-fig7                rounds to a loss by GA-SGD, MA-SGD, ADMM; k-means by EM
    slslab reproduce lambdaml-fig8                loss with a barrier (BSP) and without (S-ASP)
    slslab reproduce in-database                  SPIRT's averaging and update, in the database and without
    slslab reproduce gradssharding                rounds on AWS: predicted, and fitted
    slslab reproduce kubeml-times                 KubeML's seconds by merges, one constant fitted
    slslab reproduce kubeml-accuracy              KubeML's accuracy by global batch, on a small model
    slslab reproduce byzantine                    accuracy by attack and rule, and what a rule costs
    """
