"""`slslab check`: whether runs hold to what must hold of every run."""

import click

from slslab.cli.terminal import complete_run, find_up, json_option, print_document
from slslab.errors import RunError


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...", callback=find_up, shell_complete=complete_run)
@json_option
def check(runs: tuple[str, ...], json_: bool) -> None:
    """Check the traces of runs, by default the last one's, against what must hold of every run.

    That is: no gradient is lost and none counted twice, nobody passes a barrier early, spans add up to what is billed,
    the bill is the trace's usage, and nothing is left but what the protocol leaves. docs/trace.md has all rules. Each
    violation names its rule and its event.

    \b
    slslab check                     the last run
    slslab check last~1 runs/RUN

    Exit codes: 0 all holds, 1 a rule is violated, 2 there is no such run.
    """
    from slslab.run.directory import resolve
    from slslab.run.run import read_run
    from slslab_lab.checks.run import check as check_run
    from slslab_lab.pages import check as tables

    checked = [check_run(read_run(resolve(run))).as_document() for run in runs or ("last",)]
    holds = all(run["holds"] for run in checked)
    print_document({"holds": holds, "runs": checked}, lambda: tables.checked(checked), json_)
    if not holds:
        raise click.exceptions.Exit(RunError.exit_code)
