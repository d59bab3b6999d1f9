"""`slslab reproduce`: what papers published beside what arithmetic, measurements and the model say."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from slslab.errors import RequestError
from slslab.replaying import plot_option, replayable, with_progress
from slslab.terminal import Bar, json_option, print_document

if TYPE_CHECKING:
    from slslab.papers import Row, Table
    from slslab.replay.scaling import StepCosts

SCHEMA = 1
POLLING = ("released", "adaptive", "none")
REPLAYED = "replayed"
FIDELITIES = ("sampled", "full", REPLAYED)
Command = TypeVar("Command", bound=Callable[..., Any])
# A recorded run is of the same model as a row if their gradients differ by no more.
SAME_SIZE = 0.01


@dataclass(frozen=True)
class Experiment:
    """A table of a paper, and the profile that it is compared on unless another one is chosen."""

    paper: str
    table: str
    profile: str


EXPERIMENTS = {
    "lambdaml-table3": Experiment("lambdaml-2021", "table3", "lambdaml-2021"),
    "fig2": Experiment("barrak-2025", "fig2", "aws-us-east-1"),
}


fidelity_option = click.option(
    "--fidelity",
    type=click.Choice(FIDELITIES),
    default=FIDELITIES[0],
    show_default=True,
    help="sampled runs some of the minibatches here, full all of them; replayed reads recordings, in seconds.",
)


@click.group()
def reproduce() -> None:
    """Does the paper hold? Its tables and figures, made again: published, recomputed, measured, modelled.

    \b
    slslab reproduce table2 --fidelity replayed   time, memory and cost of an epoch, from recordings, in seconds
    slslab reproduce table2 --model mobilenet     the same, measured here (some of the minibatches)
    slslab reproduce fig2                         AllReduce and ScatterReduce, 4 to 16 workers
    slslab reproduce lambdaml-table3              the same two in LambdaML's own experiments
    """


@reproduce.command()
@click.option(
    "--model", "models", multiple=True, type=click.Choice(("mobilenet", "resnet18")), help="This model alone (both)."
)
@fidelity_option
@click.option(
    "--batches",
    type=click.IntRange(3, 23),
    default=4,
    show_default=True,
    help="sampled: minibatches of each worker; more give smaller intervals.",
)
@click.option(
    "--dataset",
    default="cifar10",
    show_default=True,
    help="cifar10, synthetic, or folder:PATH of class folders. Times do not depend on what the images show.",
)
@click.option("--profile", default="aws-us-east-1", show_default=True, metavar="PROFILE", help="The platform.")
@click.option("--prices", default="aws-us-east-1", show_default=True, metavar="BOOK", help="Prices of the whole bill.")
@click.option(
    "--recordings",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="replayed: read the runs in here (by default the project's own).",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where runs and tables go (by default reproduce-table2-FIDELITY beside the runs); runs in it are kept.",
)
@json_option
def table2(
    models: tuple[str, ...],
    fidelity: str,
    batches: int,
    dataset: str,
    profile: str,
    prices: str,
    recordings: Path | None,
    out: Path | None,
    json_: bool,
) -> None:
    """Time, memory and cost of an epoch: five architectures, MobileNet and ResNet-18, as released and canonical.

    \b
    slslab reproduce table2 --fidelity replayed
    slslab reproduce table2 --model mobilenet --dataset synthetic
    slslab reproduce table2 --fidelity full --out table2-full

    Sampled and full make a run per row, one after another; after Ctrl-C the same command goes on with those that are
    not done. One speed of Lambda's processors is fitted to all rows; no row has a constant of its own.
    """
    from slslab.billing import load_book
    from slslab.papers import load_paper
    from slslab.replay.profiles import load_profile
    from slslab.reports import reproductions
    from slslab.reproductions.experiments import BATCHES, MODELS, committed, experiments, read_all, record_all
    from slslab.reproductions.saving import save
    from slslab.reproductions.table2 import build

    if recordings is not None and fidelity != REPLAYED:
        raise RequestError("--recordings belongs to --fidelity replayed.", "leave it out, or replay them.")
    paper, platform, book = load_paper("barrak-2025"), load_profile(profile), load_book(prices)
    directory = out or _folder("table2", fidelity)
    wanted = experiments(models or MODELS)
    with Bar() as bar, replayable("Table 2"):
        if fidelity == REPLAYED:
            runs = read_all(recordings or committed(), wanted)
        else:
            count = BATCHES if fidelity == "full" else batches
            runs = record_all(directory, wanted, count, dataset, bar, lambda line: click.echo(line, err=True))
        document = build(paper, runs, platform, book, fidelity, bar.report)
    saved = save(document, directory)
    print_document(document, lambda: reproductions.reproduction(document), json_)
    click.echo(f"Saved: {', '.join(map(str, saved))}", err=True)


def _folder(name: str, fidelity: str) -> Path:
    from slslab.runs import root

    return root() / f"reproduce-{name}-{fidelity}"


def _patterns(table: str) -> Callable[[Command], click.Command]:
    """The command of a table of AllReduce and ScatterReduce."""

    def register(command: Command) -> click.Command:
        for option in (
            json_option,
            plot_option,
            click.option("--run", metavar="RUN", help="Take CPU seconds from this run; by default workers need none."),
            click.option(
                "--polling",
                type=click.Choice(POLLING),
                default=POLLING[0],
                show_default=True,
                help="How workers learn that an object is there: as LambdaML's code polls, as slslab's workers do, or "
                "told.",
            ),
            click.option(
                "--profile", metavar="PROFILE", help="The platform: a name or a TOML file (by default the table's own)."
            ),
        ):
            command = option(command)
        return reproduce.command(table)(command)

    return register


@_patterns("fig2")
def fig2(**options: Any) -> None:
    """Barrak et al., Figure 2: communication of AllReduce and ScatterReduce, 4 to 16 workers (on aws-us-east-1).

    Modelled is one round of each pattern: every worker puts its gradient, all get the sum. Less than 15 % is a tie.
    Each row has the interval of the object store's latency × bandwidth ÷ gradient size in which each pattern wins,
    found by playing other sizes of gradient on the same profile.
    """
    _compare_patterns("fig2", **options)


@_patterns("lambdaml-table3")
def lambdaml_table3(**options: Any) -> None:
    """LambdaML, Table 3: communication of AllReduce and ScatterReduce over S3 (on lambdaml-2021).

    Modelled is one round of each pattern, as in fig2.
    """
    _compare_patterns("lambdaml-table3", **options)


def _compare_patterns(
    table: str, profile: str | None, polling: str, run: str | None, plot: Path | None, json_: bool
) -> None:
    from slslab.papers import load_paper
    from slslab.replay.profiles import load_profile
    from slslab.reports import rounds
    from slslab.reproductions.patterns import as_document, compare_rounds
    from slslab.runs import resolve

    experiment = EXPERIMENTS[table]
    paper = load_paper(experiment.paper)
    published = paper.table(experiment.table)
    platform = load_profile(profile or experiment.profile)
    if plot is not None:
        from slslab.reports.plots import check_format

        check_format(plot)
    costs, rows = _costs(run, published)
    with replayable(run or table):
        found = with_progress("playing both patterns", rows, compare_rounds(published, platform, costs, polling))
    document = {
        "schema": SCHEMA,
        "reproduces": table,
        "paper": {"name": paper.name, "title": paper.title, "published": paper.published},
        "table": {"title": published.title, "source": published.source, "notes": list(published.notes)},
        "profile": {
            "name": platform.name, "date": platform.date.isoformat(), "description": platform.description,
        },
        "polling": polling,
        "run": resolve(run).id if run else None,
        "rows": [as_document(one) for one in found],
    }  # fmt: skip
    if plot is not None:
        from slslab.reports.plots import draw_published

        draw_published(document, plot)
    print_document(document, lambda: rounds.rounds(document), json_)


def _costs(run: str | None, table: "Table") -> "tuple[dict[str, StepCosts], tuple[Row, ...]]":
    """What each pattern's steps cost, and the rows that these costs are good for: all if workers compute nothing.

    RequestError for a run of another architecture, or of a model that no row has."""
    from slslab.execution import architectures
    from slslab.replay.measured import read_measured
    from slslab.replay.rounds import without_compute
    from slslab.replay.transfers import transfer
    from slslab.reproductions.patterns import PATTERNS, count_of
    from slslab.runs import resolve

    rooms = architectures()
    if run is None:
        return {name: without_compute(rooms[name]) for name in PATTERNS}, table.rows
    measured = read_measured(resolve(run).path, rooms)
    own = measured.plan.architecture
    if own not in PATTERNS:
        raise RequestError(f"{measured.plan.run} is a run of {own}.", f"name one of {' or '.join(PATTERNS)}.")
    size = int(measured.document["gradient_bytes"])
    sizes = [count_of(table, row, "bytes") for row in table.rows]
    rows = tuple(row for row, each in zip(table.rows, sizes, strict=True) if abs(each - size) <= SAME_SIZE * each)
    if not rows:
        raise RequestError(
            f"{measured.plan.run} has gradients of {size:,} bytes, and no row of {table.source} has.",
            f"name a run of a model with {' or '.join(f'{each:,}' for each in dict.fromkeys(sizes))} bytes.",
        )
    costs = {
        name: measured.costs if name == own else transfer(measured.costs, rooms[name], measured.plan)
        for name in PATTERNS
    }
    return costs, rows
