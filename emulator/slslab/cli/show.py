"""`slslab show`: what a run, or `slslab up`, did and costs."""

import click

from slslab.cli.terminal import json_option, print_document, run_argument
from slslab_workers.trace.kinds import HANDLER_KINDS

kind_option = click.option(
    "--kind",
    type=click.Choice(HANDLER_KINDS),
    help="The kind of work of the functions that `up` ran; without it the range covers all kinds.",
)


@click.command()
@run_argument
@kind_option
@json_option
def show(run: str, kind: str | None, json_: bool) -> None:
    """Show a run: what it takes and costs on Lambda, then what this host measured.

    That is phases per worker, bytes and messages, loss and accuracy, host delay.

    A run whose command was killed keeps its trace; showing it compacts the trace and says what is missing. The run
    `up` is what your own functions have done since `slslab up`: invocations, requests, state transitions, bill; each
    function's durations on Lambda stand next to those of this host.
    """
    from slslab.report import run as tables
    from slslab.report.services import open_run
    from slslab.run.directory import resolve

    document = open_run(resolve(run), kind).summary()
    print_document(document, lambda: tables.summary(document), json_)
