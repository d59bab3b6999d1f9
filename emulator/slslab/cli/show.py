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
@click.option(
    "--full", is_flag=True, help="Also the bill, phases per worker, messages, accuracy per epoch, host delay."
)
@json_option
def show(run: str, kind: str | None, full: bool, json_: bool) -> None:
    """Show a run: what it takes and costs on Lambda, next to what this machine measured.

    A run whose command was killed keeps its trace; showing it compacts the trace and says what is missing. The run
    `up` is what your own functions have done since `slslab up`: invocations, requests, state transitions, bill; each
    function's durations on Lambda stand next to those of this host.
    """
    from slslab.report import run as tables
    from slslab.report.services import open_run
    from slslab.run.directory import resolve

    document = open_run(resolve(run), kind).summary()
    print_document(document, lambda: (tables.summary if full else tables.brief)(document), json_)
