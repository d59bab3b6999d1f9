"""`slslab replay`: predict a recorded run on Lambda, and what-ifs, without running it again."""

import click

from slslab.cli.terminal import complete_run
from slslab.errors import RequestError
from slslab_lab.commands.options import Amount, converted, list_option, memory_option
from slslab_lab.commands.question import Question
from slslab_lab.pages.pictures import draw_variants
from slslab_lab.pages.replay import replay as table

MOST_TIMES_SLOWER = 1000


def read_straggler(value: str) -> tuple[int, float]:
    """Return the rank and the factor of a slow worker; RequestError for a text that doesn't say them."""
    rank, _, factor = value.partition(":")
    try:
        found = int(rank), float(factor)
    except ValueError:
        found = -1, 0.0
    if found[0] < 0 or not 0 < found[1] <= MOST_TIMES_SLOWER:
        raise RequestError(
            f"--straggler {value[:40]} is not a slow worker.", "give its rank and how slow it is, such as 3:2.5."
        )
    return found


replay = Question(
    "replay",
    "sizes:replay",
    (
        memory_option,
        list_option("--workers", "Numbers of workers, up to 4096: 4,8,16,4096."),
        click.option("--timeout", type=Amount(0, 900, min_open=True), help="Time-out of a function, s."),
        click.option(
            "--straggler",
            metavar="RANK:FACTOR",
            callback=converted(read_straggler),
            help="A slow worker: its computing takes FACTOR times the CPU time.",
        ),
        click.option(
            "--concurrency", type=click.IntRange(1), help="Environments of the account that may be busy at once."
        ),
    ),
    table,
    """Predict a recorded run on Lambda, and with other memory, processors, workers or prices.

    \b
    slslab replay                                     the last run: as measured, and as modelled on Lambda
    slslab replay last --memory 512,1024,1769,3008    with less and more memory, and with it CPU
    slslab replay last --workers 8,64,1024            with more workers than ran
    slslab replay last --workers 64,1024,4096 --memory 1769,3008,5307 --on local    on all cores
    slslab replay last --arch arm64 --prices paper-2025
    slslab replay last --straggler 3:4                if worker 3 were four times slower
    slslab replay last --network this-host            with the stores of the host that recorded it
    slslab replay last~2 last~1 last                  three recordings of one plan, and their differences
    slslab ask --help                                 questions: the cheapest size, waiting, crossings

    Nothing runs again: the trace's CPU seconds, bytes and causes are played on a profile of the platform. Several lists
    give every combination. Each figure is marked as measured, exact (prices, rounding, counts) or modelled. Modelled
    times and costs are 80 % ranges. For several recordings of one plan, figures are means, and ranges include their
    spread.
    """,
    picture=draw_variants,
    runs=click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_run),
).command()
