"""`slslab reproduce`: what papers published beside what arithmetic, measurements and the model say."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from slslab.communicating import fig2, lambdaml_table3
from slslab.converging import fig4, mlless_filter, table3
from slslab.errors import RequestError
from slslab.replaying import replayable
from slslab.reproductions import MODELS
from slslab.terminal import Bar, json_option, print_document
from slslab_workers.plan import MEMORY_FORMATS

REPLAYED = "replayed"
FIDELITIES = ("sampled", "full", REPLAYED)
Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
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
    slslab reproduce lambdaml-table3              the same two in LambdaML's own experiments
    slslab reproduce in-database                  SPIRT's averaging and update, in the database and without
    """


def of_table2(name: str) -> Callable[[Command], click.Command]:
    """The command of a table or figure that is made of Table 2's runs, with the options that say which these are."""

    def register(command: Command) -> click.Command:
        for option in reversed(_TABLE2_OPTIONS):
            command = option(command)
        return click.command(name)(command)

    return register


_TABLE2_OPTIONS = (
    click.option(
        "--model", "models", multiple=True, type=click.Choice(MODELS), help="This model alone (by default both)."
    ),
    click.option(
        "--fidelity",
        type=click.Choice(FIDELITIES),
        default=FIDELITIES[0],
        show_default=True,
        help="sampled runs some of the minibatches here, full all of them; replayed reads recordings, in seconds.",
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
    click.option(
        "--profile", default="aws-us-east-1", show_default=True, metavar="PROFILE", help="The platform of the model."
    ),
    click.option(
        "--prices", default="aws-us-east-1", show_default=True, metavar="BOOK", help="Prices of the whole bill."
    ),
    click.option(
        "--recordings",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="replayed: read the runs in here (by default the project's own).",
    ),
    click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Where runs and tables go (by default reproduce-table2-FIDELITY beside the runs); runs in it are kept.",
    ),
    json_option,
)


@of_table2("table2")
def table2(json_: bool, **options: Any) -> None:
    """Time, memory and cost of an epoch: five architectures, MobileNet and ResNet-18, as released and canonical.

    \b
    slslab reproduce table2 --fidelity replayed
    slslab reproduce table2 --model mobilenet --dataset synthetic
    slslab reproduce table2 --fidelity full --out table2-full

    Sampled and full make a run per row, one after another; after Ctrl-C the same command goes on with those that are
    not done. One speed of Lambda's processors is fitted to all rows; no row has a constant of its own.
    """
    finish(*_table2(**options), json_)


@of_table2("fig3")
def fig3(json_: bool, **options: Any) -> None:
    """Time against cost of an epoch, the rows of Table 2 as points.

    What Figure 3 draws could not be established; this is the paper's one comparison that nothing else in it is.
    """
    from slslab.reproductions.figure3 import build

    document, directory = _table2(**options)
    finish(build(document), directory, json_)


def _table2(
    models: tuple[str, ...],
    fidelity: str,
    batches: int,
    dataset: str,
    memory_format: str,
    profile: str,
    prices: str,
    recordings: Path | None,
    out: Path | None,
) -> tuple[dict[str, Any], Path]:
    """Table 2's document, and the directory where it belongs."""
    from slslab.billing import load_book
    from slslab.papers import load_paper
    from slslab.replay.profiles import load_profile
    from slslab.reproductions.experiments import BATCHES, Sample, committed, experiments, read_all, record_all
    from slslab.reproductions.table2 import build

    if recordings is not None and fidelity != REPLAYED:
        raise RequestError("--recordings belongs to --fidelity replayed.", "leave it out, or replay them.")
    paper, platform, book = load_paper("barrak-2025"), load_profile(profile), load_book(prices)
    directory = out or folder("table2", fidelity)
    wanted = experiments(models or MODELS)
    with Bar() as bar, replayable("Table 2"):
        if fidelity == REPLAYED:
            runs = read_all(recordings or committed(), wanted)
        else:
            count = BATCHES if fidelity == "full" else batches
            sample = Sample(count, dataset, memory_format)
            runs = record_all(directory, wanted, sample, bar, lambda line: click.echo(line, err=True))
        return build(paper, runs, platform, book, fidelity, bar.report), directory


@click.command("in-database")
@click.option("--model", "models", multiple=True, type=click.Choice(MODELS), help="This model alone (by default both).")
@click.option(
    "--fidelity",
    type=click.Choice(FIDELITIES),
    default=FIDELITIES[0],
    show_default=True,
    help="sampled measures each way a few times here, full more often; replayed reads measurements, in seconds.",
)
@click.option(
    "--profile", default="aws-us-east-1", show_default=True, metavar="PROFILE", help="The platform of the model."
)
@click.option(
    "--recordings",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="replayed: read the measurements in here (by default the project's own).",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where measurements and tables go (by default reproduce-in-database-FIDELITY beside the runs).",
)
@json_option
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
    from slslab.papers import load_paper
    from slslab.replay.profiles import load_profile
    from slslab.reproductions.in_database.measurements import REPEATS, committed, measure, read, write
    from slslab.reproductions.in_database.table import NAME, build

    if recordings is not None and fidelity != REPLAYED:
        raise RequestError("--recordings belongs to --fidelity replayed.", "leave it out, or replay them.")
    paper, platform = load_paper("barrak-2025"), load_profile(profile)
    directory, wanted = out or folder(NAME, fidelity), models or MODELS
    if fidelity == REPLAYED:
        found = read(recordings or committed())
    else:
        gradients = int(paper.table("table2").inputs["batches"])
        with Bar() as bar:
            found = measure(wanted, gradients, REPEATS[fidelity], bar.report)
        click.echo(f"Measured: {write(found, directory)}", err=True)
    finish(build(paper, found, wanted, platform, fidelity), directory, json_)


def folder(name: str, fidelity: str) -> Path:
    """Where a reproduction is saved unless it is said otherwise."""
    from slslab.runs import root

    return root() / f"reproduce-{name}-{fidelity}"


def finish(document: Mapping[str, Any], directory: Path, json_: bool) -> None:
    """Save a reproduction, and print it."""
    from slslab.reports import reproductions
    from slslab.reproductions.saving import save

    saved = save(document, directory)
    print_document(document, lambda: reproductions.reproduction(document), json_)
    click.echo(f"Saved: {', '.join(map(str, saved))}", err=True)


for _command in (table2, table3, fig2, fig3, fig4, mlless_filter, lambdaml_table3, in_database):
    reproduce.add_command(_command)
