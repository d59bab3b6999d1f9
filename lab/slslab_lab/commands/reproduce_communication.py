"""`slslab reproduce fig2 | lambdaml-table3`: AllReduce and ScatterReduce, published, measured and modelled."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slslab.errors import RequestError
from slslab_lab.commands.options import plot_option, replayable, with_progress
from slslab_lab.commands.reproduction import finish, folder, recordings_option, replayed_out_option, reproduction

if TYPE_CHECKING:
    from slslab_lab.papers.paper import Row, Table
    from slslab_lab.replay.programs.scaling import StepCosts

POLLING = ("released", "adaptive", "none")
OPTIONS = (
    replayed_out_option,
    recordings_option,
    click.option(
        "--profile", metavar="PROFILE", help="The platform: a name or a TOML file (by default the table's own)."
    ),
    click.option(
        "--polling",
        type=click.Choice(POLLING),
        help="How workers notice an object: as LambdaML's code polls, as slslab's workers do, or without polls; by "
        "default released in the variant as released, else adaptive.",
    ),
    click.option("--run", metavar="RUN", help="Take CPU seconds from this run; by default workers need none."),
    plot_option,
)


@reproduction("fig2", *OPTIONS)
def fig2(**options: Any) -> None:
    """Barrak et al., Figure 2: communication of AllReduce and ScatterReduce, 4 to 16 workers (on aws-us-east-1).

    Modelled is one round of each pattern: every worker puts its gradient, all get the sum; as slslab's workers do it,
    and as the authors' code does, with its polls and its log traffic. Measured are the rounds of Table 2's recordings.
    Less than 15 % is a tie. Each row has the interval of the object store's latency × bandwidth ÷ gradient size in
    which each pattern wins, found by playing other sizes of gradient on the same profile.
    """
    _compare_patterns("fig2", **options)


@reproduction("lambdaml-table3", *OPTIONS)
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
    from slslab.predict.profiles.profile import load_profile
    from slslab.run.directory import resolve
    from slslab_lab.pages.plots.lines import check_format, draw_bars
    from slslab_lab.papers.paper import load_paper
    from slslab_lab.studies.communication import SOURCES, build
    from slslab_lab.studies.measured_rounds import read_exchanges
    from slslab_lab.studies.patterns import compare_rounds

    check_format(plot)
    source = SOURCES[table]
    paper = load_paper(source.paper)
    published = paper.table(source.table)
    platform = load_profile(source.profile if profile is None else profile)
    costs, rows = _costs(run, published)
    with replayable(run or table):
        compare = compare_rounds(published, platform, costs, polling, read_exchanges(recordings))
        comparisons = with_progress("playing both patterns", rows, compare)
    document = build(table, paper, source.table, comparisons, platform, run=resolve(run).id if run else None)
    if plot is not None:
        draw_bars(document, plot)
    finish(document, out or folder(table), json_)


def _costs(run: str | None, table: "Table") -> "tuple[dict[str, StepCosts], tuple[Row, ...]]":
    """Return what each pattern's steps cost, and the rows to which these costs apply: all if workers compute nothing.

    RequestError for a run of another architecture, or of a model that no row has."""
    from slslab.run.directory import resolve
    from slslab_lab.replay.measured import read_measured
    from slslab_lab.replay.programs.transfers import transfer
    from slslab_lab.runs.planning import architectures
    from slslab_lab.studies.measured_rounds import PATTERNS
    from slslab_lab.studies.patterns import count_of, free_costs, is_same_size

    if run is None:
        return free_costs(), table.rows
    known = architectures()
    measured = read_measured(resolve(run).path, known)
    architecture = measured.plan.architecture
    if architecture not in PATTERNS:
        raise RequestError(f"{measured.plan.run} is a run of {architecture}.", f"name one of {' or '.join(PATTERNS)}.")
    size = int(measured.document["gradient_bytes"])
    sizes = [count_of(table, row, "bytes") for row in table.rows]
    rows = tuple(row for row, row_size in zip(table.rows, sizes, strict=True) if is_same_size(size, row_size))
    if not rows:
        raise RequestError(
            f"{measured.plan.run} has gradients of {size:,} bytes, and no row of {table.source} has.",
            f"name a run of a model with {' or '.join(f'{each:,}' for each in dict.fromkeys(sizes))} bytes.",
        )
    costs = {
        name: measured.costs if name == architecture else transfer(measured.costs, known[name], measured.plan)
        for name in PATTERNS
    }
    return costs, rows
