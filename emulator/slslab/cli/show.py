"""`slslab show`: what a run, or `slslab up`, did and cost."""

import click

from slslab.cli.terminal import json_option, print_document, run_argument
from slslab_workers.trace.kinds import HANDLER_KINDS

kind_option = click.option(
    "--kind",
    type=click.Choice(HANDLER_KINDS),
    help="The kind of work that your functions do (`up` only); without it, the range covers all kinds.",
)


@click.command()
@run_argument
@kind_option
@click.option(
    "--full", is_flag=True, help="Also print the bill, phases per worker, messages, accuracy per epoch and host delay."
)
@json_option
def show(run: str, kind: str | None, full: bool, json_: bool) -> None:
    """Show a run's time and cost on Lambda, next to this machine's measurements.

    If a run's command was killed, its trace remains, and `show` tells what is missing. The run `up` shows what your own
    functions have done since `slslab up`: invocations, requests, state transitions, bill, and each function's durations
    on this host and on Lambda.
    """
    from slslab.report import run as tables
    from slslab.report.services import open_run
    from slslab.run.directory import resolve

    document = open_run(resolve(run), kind).summary()
    print_document(document, lambda: (tables.full if full else tables.brief)(document), json_)
