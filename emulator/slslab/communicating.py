"""`slslab reproduce fig2 | lambdaml-table3`: AllReduce and ScatterReduce, published and modelled."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from slslab.errors import RequestError
from slslab.replaying import plot_option, replayable, with_progress
from slslab.terminal import json_option, print_document

if TYPE_CHECKING:
    from slslab.papers import Row, Table
    from slslab.replay.scaling import StepCosts

SCHEMA = 1
POLLING = ("released", "adaptive", "none")
# A recorded run is of the same model as a row if their gradients differ by no more.
SAME_SIZE = 0.01
Command = TypeVar("Command", bound=Callable[..., Any])


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
        return click.command(table)(command)

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
