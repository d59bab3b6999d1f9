"""`slslab replay`: what a recorded run would have been on Lambda, and every what-if without running it again."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slslab.cli.terminal import complete_run, print_document
from slslab.errors import RequestError
from slslab_lab.commands.options import Amount, memory_option, on_option, platform_options, plot_option, read_numbers
from slslab_lab.commands.replay_setup import (
    ReplaySetup,
    draw,
    priced,
    read_memory,
    read_setup,
    replayable,
    with_progress,
)
from slslab_lab.pages import replay as replays

if TYPE_CHECKING:
    from slslab_lab.replay.whatif import Row


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_run)
@memory_option
@click.option("--workers", metavar="LIST", help="Numbers of workers, up to 4096: 4,8,16,4096.")
@click.option("--timeout", type=Amount(0, 900, min_open=True), help="Time-out of a function, s.")
@click.option("--concurrency", type=click.IntRange(1), help="Environments of the account that may be busy at once.")
@on_option
@plot_option
@platform_options
def replay(
    runs: tuple[str, ...],
    memory: str | None,
    workers: str | None,
    timeout: float | None,
    concurrency: int | None,
    on: str | None,
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
    slslab replay last --workers 64,1024,4096 --memory 1769,3008,5307 --on local    on all cores
    slslab replay last --arch arm64 --prices paper-2025
    slslab replay last --network this-host            with the stores of the host that recorded it
    slslab replay last~2 last~1 last                  three recordings of one plan, and how far they differ
    slslab ask --help                                 questions: the cheapest size, waiting, crossings

    Nothing runs again: the trace's CPU seconds, bytes and causes are played on a profile of the platform. Several lists
    give every combination. Each figure is measured, exact (prices, rounding, counts) or modelled, and says which.
    Modelled times and costs are 80 % ranges. Of several recordings of one plan figures are means, and ranges hold their
    spread.
    """
    from slslab_lab.replay.combining import check_one_plan, combine
    from slslab_lab.replay.whatif import LARGEST_FLEET

    fleets = read_numbers("--workers", workers, 1, LARGEST_FLEET)
    setups = [read_setup(run, profile, network, prices, arch, timeout, concurrency) for run in runs or ("last",)]
    check_one_plan([setup.run for setup in setups])
    if on is not None and not fleets and memory is None:
        raise RequestError(
            "--on spreads a list over many cores, and there is none.",
            "name several: --memory 1024,1769 or --workers 8,64.",
        )
    sizes = max(read_memory(setup.run, memory) for setup in setups)
    played = [_rows(setup, list(product(fleets or (None,), sizes or (None,))), on) for setup in setups]
    rows = [combine(same) for same in zip(*played, strict=True)]
    document = setups[0].document(
        recordings=[setup.run.plan.run for setup in setups],
        oversubscribed=any(setup.run.document["host"]["oversubscribed"] for setup in setups),
        rows=setups[0].documents(rows),
    )
    draw(plot, rows, f"{setups[0].run.plan.run} on {setups[0].platform.profile.name}")
    print_document(document, lambda: replays.replay(document), json_)


def _rows(setup: ReplaySetup, variants: Sequence[tuple[int | None, int | None]], on: str | None) -> "list[Row]":
    """Return a recording's rows: as measured, as modelled, and its variants (workers and memory size), if any."""
    from slslab_lab.replay.whatif import Variant, evaluate, measured_row

    platform, plain = setup.platform, Variant()
    rows = [measured_row(setup.run, platform.book, platform.timeout_s)]
    if setup.prices != platform.book:
        rows.append(priced(measured_row(setup.run, setup.prices, platform.timeout_s), setup.prices))
    with replayable(setup.run.plan.run):
        rows.append(evaluate(setup.run, plain, platform))
        if (setup.variant, setup.prices) != (plain, platform.book) or variants != [(None, None)]:
            rows += with_progress("playing variants", variants, setup.row, on, (setup,))
    return rows
