"""`slslab reproduce fig2 | lambdaml-table3`: AllReduce and ScatterReduce, published, measured and modelled."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from slslab.errors import RequestError
from slslab.replaying import directory_option, plot_option, replayable, with_progress
from slslab.terminal import json_option

if TYPE_CHECKING:
    from slslab.papers import Row, Table
    from slslab.replay.scaling import StepCosts

POLLING = ("released", "adaptive", "none")
Command = TypeVar("Command", bound=Callable[..., Any])


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
                help="How workers learn that an object is there: as LambdaML's code polls, as slslab's workers do, or "
                "told; by default released in the variant as released, else adaptive.",
            ),
            click.option(
                "--profile", metavar="PROFILE", help="The platform: a name or a TOML file (by default the table's own)."
            ),
            directory_option("--recordings", "Read Table 2's runs in here (by default the project's own)."),
            directory_option("--out", "Where the tables go (by default reproduce-NAME-replayed beside the runs)."),
        ):
            command = option(command)
        return click.command(table)(command)

    return register


@_patterns("fig2")
def fig2(**options: Any) -> None:
    """Barrak et al., Figure 2: communication of AllReduce and ScatterReduce, 4 to 16 workers (on aws-us-east-1).

    Modelled is one round of each pattern: every worker puts its gradient, all get the sum; as slslab's workers do it,
    and as the authors' code does, with its polls and its log traffic. Measured are the rounds of Table 2's recordings.
    Less than 15 % is a tie. Each row has the interval of the object store's latency × bandwidth ÷ gradient size in
    which each pattern wins, found by playing other sizes of gradient on the same profile.
    """
    _compare_patterns("fig2", **options)


@_patterns("lambdaml-table3")
def lambdaml_table3(**options: Any) -> None:
    """LambdaML, Table 3: communication of AllReduce and ScatterReduce over S3 (on lambdaml-2021).

    Modelled is one round of each pattern, as in fig2.
    """
    _compare_patterns("lambdaml-table3", **options)


def _compare_patterns(
    table: str,
    profile: str | None,
    polling: str | None,
    run: str | None,
    recordings: Path | None,
    plot: Path | None,
    out: Path | None,
    json_: bool,
) -> None:
    from slslab.papers import load_paper
    from slslab.replay.profiles import load_profile
    from slslab.reports.plots import check_format, draw_bars
    from slslab.reproducing import finish, folder
    from slslab.reproductions.communication import SOURCES, build
    from slslab.reproductions.exchanges import read_exchanges
    from slslab.reproductions.patterns import compare_rounds
    from slslab.runs import resolve

    source = SOURCES[table]
    paper = load_paper(source.paper)
    published = paper.table(source.table)
    platform = load_profile(profile or source.profile)
    if plot is not None:
        check_format(plot)
    costs, rows = _costs(run, published)
    with replayable(run or table):
        compare = compare_rounds(published, platform, costs, polling, read_exchanges(recordings))
        found = with_progress("playing both patterns", rows, compare)
    name = resolve(run).id if run else None
    document = build(table, paper, source.table, found, platform, run=name)
    if plot is not None:
        draw_bars(document, plot)
    finish(document, out or folder(table, "replayed"), json_)


def _costs(run: str | None, table: "Table") -> "tuple[dict[str, StepCosts], tuple[Row, ...]]":
    """What each pattern's steps cost, and the rows that these costs are good for: all if workers compute nothing.

    RequestError for a run of another architecture, or of a model that no row has."""
    from slslab.execution import architectures
    from slslab.replay.measured import read_measured
    from slslab.replay.transfers import transfer
    from slslab.reproductions.exchanges import PATTERNS
    from slslab.reproductions.patterns import count_of, free_costs, is_same_size
    from slslab.runs import resolve

    if run is None:
        return free_costs(), table.rows
    rooms = architectures()
    measured = read_measured(resolve(run).path, rooms)
    own = measured.plan.architecture
    if own not in PATTERNS:
        raise RequestError(f"{measured.plan.run} is a run of {own}.", f"name one of {' or '.join(PATTERNS)}.")
    size = int(measured.document["gradient_bytes"])
    sizes = [count_of(table, row, "bytes") for row in table.rows]
    rows = tuple(row for row, each in zip(table.rows, sizes, strict=True) if is_same_size(size, each))
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
