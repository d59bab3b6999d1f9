"""`slslab runs | compare | bill | rm`: list, compare, price and remove runs."""

from pathlib import Path
from typing import Any

import click

from slslab.cli.show import kind_option
from slslab.cli.terminal import complete_run, find_up, json_option, print_document, run_argument
from slslab.errors import RequestError, RunError
from slslab_lab.commands.options import file_option, plot_option
from slslab_workers.plan import Plan


@click.command()
@json_option
def runs(json_: bool) -> None:
    """List the runs in $SLSLAB_RUNS or ./runs, newest first. Exit code 1 if one of them can't be read."""
    from slslab.run.directory import list_runs
    from slslab_lab.pages.runs import runs_table

    summaries, troubles = [], []
    for run in list_runs():
        try:
            summaries.append(run.listed())
        except RunError as error:
            summaries.append({"run": run.id, "status": "unreadable", "error": {"message": error.message}})
            troubles.append(f"Error: {error.message}\nHint: {error.hint}")
    print_document({"runs": summaries}, lambda: runs_table(summaries), json_)
    if troubles:
        click.echo("\n".join(troubles), err=True)
        raise click.exceptions.Exit(RunError.exit_code)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...", shell_complete=complete_run)
@file_option("--html", "Also write a page: one HTML file with charts.", "page")
@plot_option
@json_option
def compare(runs: tuple[str, ...], page: Path | None, plot: Path | None, json_: bool) -> None:
    """Say which run is fastest, cheapest and most accurate on Lambda, and by how much."""
    from slslab.run.directory import resolve
    from slslab_lab.pages.comparison import comparison, read_documents

    if len(runs) < 2:
        raise RequestError("compare needs two runs.", "slslab compare last~1 last")
    directories = [resolve(run) for run in runs]
    if len({directory.path.resolve() for directory in directories}) < len(runs):
        raise RequestError("A run is given twice.", "name each run once.")
    documents = read_documents(directories)
    if page is not None:
        from slslab.report.html.page import make_page, write_page
        from slslab_lab.pages.comparison import describe_comparison

        write_page(page, make_page(describe_comparison(documents)))
    if plot is not None:
        from slslab_lab.pages.pictures import draw_comparison

        draw_comparison(documents, plot)
    print_document({"runs": documents}, lambda: comparison(documents, page), json_)


@click.command()
@run_argument
@click.option(
    "--prices",
    metavar="BOOK",
    help=f"A price book by name, or a TOML file (by default {Plan.prices}; of a run with --platform the platform's).",
)
@kind_option
@json_option
def bill(run: str, prices: str | None, kind: str | None, json_: bool) -> None:
    """Print the bill of a run on Lambda by the prices of a book (aws-us-east-1, paper-2025, or a TOML file).

    It is the bill of the replayed trace, followed by the price of this host's seconds. `slslab bill up` prints the cost
    on Lambda of your own functions since `slslab up`, with its 80 % range.
    """
    from slslab.report import bill_tables
    from slslab_lab.runs.on_lambda import bill_of

    document = bill_of(run, prices, kind)
    print_document(document, lambda: bill_tables.both_bills(document), json_)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", callback=find_up, shell_complete=complete_run)
@json_option
def rm(runs: tuple[str, ...], json_: bool) -> None:
    """Remove runs with their directories. If one is still running or isn't a run, remove none.

    \b
    slslab rm last~1 20261121-07
    slslab rm runs/202611*           all runs of a month; `du -sh runs/*` prints their sizes
    slslab rm up                     the record of a `slslab up` that has ended
    """
    from slslab.report.formats import size
    from slslab.run.directory import resolve

    directories = {directory.path.resolve(): directory for directory in map(resolve, runs)}
    for directory in directories.values():
        directory.check_removable()
    removed: list[dict[str, Any]] = [
        {"run": directory.id, "path": str(directory.path), "bytes": directory.remove()}
        for directory in directories.values()
    ]
    lines = [f"Removed {entry['run']}: {entry['path']}, {size(entry['bytes'])}." for entry in removed]
    print_document({"removed": removed}, lambda: "\n".join(lines), json_)
