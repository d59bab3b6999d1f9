"""`slslab check`: check runs against the rules that every run must obey."""

import click

from slslab.cli.terminal import complete_run, find_up, json_option, print_document
from slslab.errors import RunError


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...", callback=find_up, shell_complete=complete_run)
@json_option
def check(runs: tuple[str, ...], json_: bool) -> None:
    """Check the traces of runs, by default of the last one, against the rules that every run must obey.

    For instance: no gradient is lost or counted twice, no worker passes a barrier early, spans add up to the billed
    time, the bill matches the trace, and the run leaves only what its protocol leaves. docs/trace.md has all rules.
    Each violation names its rule and its event.

    \b
    slslab check                     the last run
    slslab check last~1 runs/RUN

    Exit codes: 0 all rules hold, 1 a rule is violated, 2 the run doesn't exist.
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
