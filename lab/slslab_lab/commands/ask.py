"""`slslab ask`: questions about a recorded run, each answered by replaying it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slslab.cli.terminal import print_document, run_argument
from slslab.errors import RequestError
from slslab_lab.commands.ask_crossings import gpu, patterns
from slslab_lab.commands.ask_model import model
from slslab_lab.commands.options import Amount, memory_option, on_option, platform_options, plot_option, with_options
from slslab_lab.commands.replay_setup import (
    ReplaySetup,
    draw,
    modelled,
    read_memory,
    read_setup,
    replayable,
    with_progress,
)
from slslab_lab.pages import replay

if TYPE_CHECKING:
    from slslab.predict.uncertainty import Uncertainty
    from slslab.run.bill import Bill
    from slslab_lab.replay.kernel.timeline import Timeline
    from slslab_lab.replay.outcome import Outcome
    from slslab_lab.replay.questions import Waiting
    from slslab_lab.replay.whatif import Row


# What one variant of the run may differ in.
variant_options = with_options(
    click.option("--memory", type=int, metavar="MB", help="With training functions of this memory size."),
    click.option("--workers", type=click.IntRange(1, 4096), help="With so many workers."),
    click.option("--concurrency", type=click.IntRange(1), help="Environments of the account busy at once."),
)


@click.group(commands=[patterns, gpu, model])
def ask() -> None:
    """Questions about a recorded run, answered by replaying it.

    \b
    slslab ask cheapest last --deadline 60     which memory size is cheapest and still done in 60 s?
    slslab ask memory last                     what do time and cost do over all memory sizes?
    slslab ask patterns last                   from how many workers on does ScatterReduce beat AllReduce?
    slslab ask gpu last                        when are GPU instances faster, and when cheaper?
    slslab ask model last                      how far is LambdaML's analytic model from the replay?
    slslab ask waiting last                    how much of the bill is waiting, and whose?
    slslab ask path last                       what is the run's time made of?
    slslab ask timeline last --plot FILE.svg   what happened when? (or --perfetto FILE, for ui.perfetto.dev)
    """


@ask.command()
@run_argument
@click.option("--deadline", type=Amount(0, min_open=True), required=True, help="Seconds, from first to last.")
@memory_option
@on_option
@plot_option
@platform_options
def cheapest(
    run: str, deadline: float, memory: str | None, on: str | None, plot: Path | None, json_: bool, **options: Any
) -> None:
    """Which memory size is cheapest, and done by the deadline?

    A size is done in time if the upper end of its 80 % range is. Sizes below the measured peak memory are refused;
    sizes at which a function exceeds its time-out do not count. Exit code 1 if none is surely done in time.
    """
    from slslab_lab.replay import questions

    setup, rows = _sweep(run, memory, on, plot, options)
    best, likely = questions.cheapest(rows, deadline), questions.likely_cheapest(rows, deadline)
    document = setup.document(
        rows=setup.documents(rows),
        deadline_s=deadline,
        cheapest=_size(best),
        alike=_sizes(questions.alike(questions.in_time(rows, deadline), best, ("cost",))),
        likely=None if likely is None else {"memory_mb": _size(likely), "likelihood": _likelihood(likely, deadline)},
        fastest=_size(questions.fastest(rows)),
    )
    print_document(document, lambda: replay.cheapest(document), json_)
    if best is None:
        raise click.exceptions.Exit(1)


@ask.command()
@run_argument
@memory_option
@on_option
@plot_option
@platform_options
def memory(run: str, memory: str | None, on: str | None, plot: Path | None, json_: bool, **options: Any) -> None:
    """What do time and cost do over memory sizes? (AWS Lambda Power Tuning, offline.)

    By default from 128 to 10240 MB; sizes below the measured peak memory are refused.
    """
    from slslab_lab.replay import questions

    setup, rows = _sweep(run, memory, on, plot, options)
    best = {
        "cheapest": (questions.cheapest(rows, float("inf")), ("cost",)),
        "fastest": (questions.fastest(rows), ("seconds",)),
        "balanced": (questions.balanced(rows), questions.BALANCE),
    }
    document = setup.document(
        rows=setup.documents(rows),
        **{name: _size(row) for name, (row, _) in best.items()},
        alike={name: _sizes(questions.alike(rows, row, figures)) for name, (row, figures) in best.items()},
    )
    print_document(document, lambda: replay.sweep(document), json_)


def _sweep(
    run: str, memory: str | None, on: str | None, plot: Path | None, options: dict[str, Any]
) -> "tuple[ReplaySetup, list[Row]]":
    """Return the run with a row for each memory size, of which a picture is drawn if one was asked for."""
    from slslab_lab.replay.questions import SIZES

    setup = read_setup(run, **options)
    sizes = read_memory(setup.run, memory, SIZES)
    with replayable(setup.run.plan.run):
        rows = with_progress("playing memory sizes", [(None, size) for size in sizes], setup.row, on, (setup,))
    draw(plot, rows, f"{setup.run.plan.run}: memory sizes")
    return setup, rows


def _size(row: "Row | None") -> int | None:
    return None if row is None or row.variant is None else row.variant.memory_mb


def _sizes(rows: "Sequence[Row]") -> list[int]:
    return [size for size in map(_size, rows) if size is not None]


def _likelihood(row: "Row", deadline: float) -> float:
    """Return how likely a row ends by the deadline, from 0 to 1."""
    return round(row.uncertainties["seconds"].likelihood(row.number("seconds"), deadline), 3)


@ask.command()
@run_argument
@variant_options
@platform_options
def waiting(run: str, json_: bool, **options: Any) -> None:
    """How much of the bill is waiting, by worker and phase?

    A worker waits from when it needs another's result until that is there, its polls included.
    """
    from slslab.run.bill import compute_bill
    from slslab_lab.replay.questions import waiting as find_waiting
    from slslab_lab.replay.ranges import figures_of
    from slslab_lab.replay.whatif import modelled_usage

    setup, timeline, result = _played(run, options)

    def find(timeline: "Timeline", result: "Outcome") -> "tuple[Bill, tuple[Waiting, ...]]":
        bill = compute_bill(modelled_usage(setup.run, timeline, result), setup.prices)
        return bill, find_waiting(timeline, {worker.worker: worker.billed for worker in result.workers}, bill)

    def figures(timeline: "Timeline", result: "Outcome") -> dict[str, float]:
        bill, rows = find(timeline, result)
        return {
            **figures_of(result, bill),
            "waiting_seconds": result.waiting_seconds,
            "waiting_cost": sum(row.cost for row in rows),
        }

    bill, rows = find(timeline, result)
    like = {"waiting_seconds": "billed_seconds", "waiting_cost": "cost"}
    errors = _uncertainties(setup, timeline, result, figures, like)
    document = setup.document(
        variant=setup.variant.label or None,
        billed_seconds=modelled(result.billed_seconds, errors["billed_seconds"]),
        cost=modelled(format(bill.total, "f"), errors["cost"]),
        waiting_seconds=modelled(result.waiting_seconds, errors["waiting_seconds"]),
        waiting_share=modelled(result.waiting_share),
        waiting_cost=modelled(format(sum(row.cost for row in rows), ".10f"), errors["waiting_cost"]),
        uncertainty={name: error.as_document() for name, error in errors.items()},
        measured_share={"value": setup.run.waiting_share, "basis": "measured"},
        rows=[{**asdict(row), "basis": "modelled"} for row in rows],
    )
    print_document(document, lambda: replay.waiting(document), json_)


@ask.command()
@run_argument
@variant_options
@platform_options
def path(run: str, json_: bool, **options: Any) -> None:
    """What is the run's time made of? Its critical path: each part is what the next one waited for."""
    from slslab_lab.replay.path import critical_path

    setup, timeline, result = _played(run, options)
    critical = critical_path(timeline)
    error = _uncertainty(setup, timeline, result)
    parts = [
        {
            "op": part.op,
            "phase": part.phase,
            "seconds": modelled(part.ns / 1e9),
            "share": part.ns / critical.ns if critical.ns else 0.0,
            "stretches": part.stretches,
            "workers": [{"worker": worker, "seconds": ns / 1e9} for worker, ns in part.workers],
        }
        for part in critical.parts()
    ]
    document = setup.document(
        variant=setup.variant.label or None,
        seconds=modelled(critical.ns / 1e9, error),
        uncertainty={"seconds": error.as_document()},
        summary=critical.describe(),
        rows=parts,
    )
    print_document(document, lambda: replay.path(document), json_)


@ask.command()
@run_argument
@click.option(
    "--perfetto",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write it for ui.perfetto.dev and chrome://tracing; gzipped if the name ends in .gz.",
)
@plot_option
@variant_options
@platform_options
def timeline(run: str, perfetto: Path | None, plot: Path | None, json_: bool, **options: Any) -> None:
    """What happened when? The timeline as a file for a viewer, or as a picture.

    With --perfetto workers are tracks, phases slices, messages arrows; with --plot phases are bars, and waits grey.
    """
    from slslab_lab.pages.plots.gantt import draw_timeline
    from slslab_lab.replay.perfetto import write_perfetto

    if perfetto is None and plot is None:
        raise RequestError("The timeline needs a file.", "give --perfetto FILE.json.gz, --plot FILE.svg, or both.")
    setup, played, result = _played(run, options)
    if perfetto is not None:
        write_perfetto(played, perfetto)
    if plot is not None:
        label = f" with {setup.variant.label}" if setup.variant.label else ""
        draw_timeline(played, f"{setup.run.plan.run}{label}, modelled on {played.profile.name}", plot)
    error = _uncertainty(setup, played, result)
    document = setup.document(
        variant=setup.variant.label or None,
        seconds=modelled(result.seconds, error),
        uncertainty={"seconds": error.as_document()},
        steps=len(played.steps),
        perfetto=None if perfetto is None else str(perfetto),
        plot=None if plot is None else str(plot),
    )
    where = {perfetto: " (open it at https://ui.perfetto.dev)", plot: ""}
    files = " and ".join(f"{file}{note}" for file, note in where.items() if file is not None)
    print_document(document, lambda: replay.timeline(document, files), json_)


def _uncertainty(setup: ReplaySetup, timeline: "Timeline", result: "Outcome") -> "Uncertainty":
    """Return the uncertainty of the result's seconds."""
    return _uncertainties(setup, timeline, result, lambda _, result: {"seconds": result.seconds})["seconds"]


def _uncertainties(
    setup: ReplaySetup,
    timeline: "Timeline",
    result: "Outcome",
    figures: "Callable[[Timeline, Outcome], dict[str, float]]",
    like: dict[str, str] | None = None,
) -> "dict[str, Uncertainty]":
    """Return the uncertainty of each figure of the setup's variant, which gave this timeline and this result.

    `like` is as in `find_uncertainties`.
    """
    from slslab_lab.replay.ranges import find_uncertainties
    from slslab_lab.replay.whatif import simulate

    recording = setup.run.recording
    return find_uncertainties(
        figures(timeline, result),
        lambda profile: figures(*simulate(setup.run, setup.variant, profile)),
        setup.platform.profile,
        recording.processor,
        bool(recording.instances),
        like,
    )


def _played(run: str, options: dict[str, Any]) -> "tuple[ReplaySetup, Timeline, Outcome]":
    """Return one variant of a run, played."""
    from slslab_lab.replay.whatif import simulate

    memory_mb, workers = options.pop("memory"), options.pop("workers")
    setup = read_setup(run, **options)
    sizes = read_memory(setup.run, None if memory_mb is None else str(memory_mb))
    setup = replace(setup, variant=replace(setup.variant, memory_mb=sizes[0] if sizes else None, workers=workers))
    with replayable(setup.run.plan.run):
        timeline, result = simulate(setup.run, setup.variant, setup.platform.profile)
    return setup, timeline, result
