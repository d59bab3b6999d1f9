"""`slslab replay`: what a recorded run would have been on Lambda, and every what-if without running it again."""

from itertools import product
from pathlib import Path

import click

from slslab.cli.options import Amount, memory_option, platform_options, plot_option, read_numbers
from slslab.cli.replay_setup import draw, priced, read_memory, read_setup, replayable, with_progress
from slslab.cli.terminal import print_document, run_argument
from slslab.reports.terminal import replay as replays


@click.command()
@run_argument
@memory_option
@click.option("--workers", metavar="LIST", help="Numbers of workers, up to 4096: 4,8,16,4096.")
@click.option("--timeout", type=Amount(0, 900, min_open=True), help="Time-out of a function, s.")
@click.option("--concurrency", type=click.IntRange(1), help="Environments of the account that may be busy at once.")
@plot_option
@platform_options
def replay(
    run: str,
    memory: str | None,
    workers: str | None,
    timeout: float | None,
    concurrency: int | None,
    plot: Path | None,
    profile: str,
    network: str | None,
    prices: str | None,
    arch: str | None,
    json_: bool,
) -> None:
    """What a run would have been on Lambda, and with other memory, processors, workers or prices.

    \b
    slslab replay                                     the last run: as measured, and as modelled on Lambda
    slslab replay last --memory 512,1024,1769,3008    with less and more memory, and with it CPU
    slslab replay last --workers 8,64,1024            with more workers than ran
    slslab replay last --arch arm64 --prices paper-2025
    slslab replay last --network this-host            with the stores of the host that recorded it
    slslab ask --help                                 questions: the cheapest size, waiting, crossings

    Nothing runs again: the trace's CPU seconds, bytes and causes are played on a profile of the platform. Several lists
    give every combination. Each figure is measured, exact (prices, rounding, counts) or modelled, and says which.
    """
    from slslab.replay.whatif import LARGEST_FLEET, Variant, evaluate, measured_row

    fleets = read_numbers("--workers", workers, 1, LARGEST_FLEET)
    setup = read_setup(run, profile, network, prices, arch, timeout, concurrency)
    sizes = read_memory(setup.run, memory)
    platform = setup.platform
    rows = [measured_row(setup.run, platform.book, platform.timeout_s)]
    if setup.prices != platform.book:
        rows.append(priced(measured_row(setup.run, setup.prices, platform.timeout_s), setup.prices))
    plain = Variant()
    with replayable(setup.run.plan.run):
        rows.append(evaluate(setup.run, plain, platform))
        if (setup.variant, setup.prices) != (plain, platform.book) or fleets or sizes:
            variants = list(product(fleets or (None,), sizes or (None,)))
            rows += with_progress(
                "playing variants", variants, lambda variant: setup.row(workers=variant[0], memory_mb=variant[1])
            )
    document = setup.document(rows=setup.documents(rows))
    draw(plot, rows, f"{setup.run.plan.run} on {platform.profile.name}")
    print_document(document, lambda: replays.replay(document), json_)
