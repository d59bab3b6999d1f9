"""`slslab ask`: questions about a recorded run, each answered by replaying it."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Group
from rich.text import Text

from slslab.crossing import gpu, patterns
from slslab.errors import RequestError
from slslab.replaying import (
    Scene,
    draw,
    memory_option,
    modelled,
    platform_options,
    plot_option,
    read_memory,
    read_scene,
    replayable,
    with_progress,
)
from slslab.terminal import print_document, run_argument

if TYPE_CHECKING:
    from slslab.replay.outcome import Outcome
    from slslab.replay.timeline import Timeline
    from slslab.replay.whatif import Row

Command = TypeVar("Command", bound=Callable[..., Any])


def one_variant(command: Command) -> Command:
    """What one variant of the run may differ in."""
    for option in (
        click.option("--concurrency", type=click.IntRange(1), help="Environments of the account busy at once."),
        click.option("--workers", type=click.IntRange(1, 4096), help="With so many workers."),
        click.option("--memory", type=int, metavar="MB", help="With training functions of this memory size."),
    ):
        command = option(command)
    return command


@click.group()
def ask() -> None:
    """Questions about a recorded run, answered by replaying it.

    \b
    slslab ask cheapest last --deadline 60     which memory size is cheapest and still done in 60 s?
    slslab ask memory last                     what do time and cost do over all memory sizes?
    slslab ask patterns last                   from how many workers on does ScatterReduce beat AllReduce?
    slslab ask gpu last                        when are GPU instances faster, and when cheaper?
    slslab ask waiting last                    how much of the bill is waiting, and whose?
    slslab ask path last                       what is the run's time made of?
    slslab ask timeline last --plot FILE.svg   what happened when? (or --perfetto FILE, for ui.perfetto.dev)
    """


@ask.command()
@run_argument
@click.option("--deadline", type=click.FloatRange(0, min_open=True), required=True, help="Seconds, from first to last.")
@memory_option
@plot_option
@platform_options
def cheapest(run: str, deadline: float, memory: str | None, plot: Path | None, json_: bool, **options: Any) -> None:
    """Which memory size is cheapest, and done by the deadline?

    Sizes below the measured peak memory are refused, and one at which a function is over its time-out does not count.
    Exit code 1 if none is done in time.
    """
    from slslab.replay.questions import cheapest as find_cheapest
    from slslab.replay.questions import fastest
    from slslab.replay.whatif import as_document
    from slslab.reports import replays

    scene = read_scene(run, **options)
    rows = _sweep(scene, memory)
    best, first = find_cheapest(rows, deadline), fastest(rows)
    document = scene.document(
        rows=[as_document(row) for row in rows],
        deadline_s=deadline,
        cheapest=_size(best),
        fastest=_size(first),
    )
    draw(plot, rows, f"{scene.run.plan.run}: memory sizes")
    print_document(document, lambda: replays.cheapest(document), json_)
    if best is None:
        raise click.exceptions.Exit(1)


@ask.command()
@run_argument
@memory_option
@plot_option
@platform_options
def memory(run: str, memory: str | None, plot: Path | None, json_: bool, **options: Any) -> None:
    """What do time and cost do over memory sizes? (AWS Lambda Power Tuning, offline.)

    By default from 128 to 10240 MB; sizes below the measured peak memory are refused.
    """
    from slslab.replay.questions import balanced, cheapest, fastest
    from slslab.replay.whatif import as_document
    from slslab.reports import replays

    scene = read_scene(run, **options)
    rows = _sweep(scene, memory)
    document = scene.document(
        rows=[as_document(row) for row in rows],
        cheapest=_size(cheapest(rows, float("inf"))),
        fastest=_size(fastest(rows)),
        balanced=_size(balanced(rows)),
    )
    draw(plot, rows, f"{scene.run.plan.run}: memory sizes")
    print_document(document, lambda: replays.sweep(document), json_)


def _sweep(scene: Scene, memory: str | None) -> "list[Row]":
    from slslab.replay.questions import SIZES

    sizes = read_memory(scene.run, memory, SIZES)
    with replayable(scene.run.plan.run):
        return with_progress("playing memory sizes", sizes, lambda size: scene.row(memory_mb=size))


def _size(row: "Row | None") -> int | None:
    return None if row is None or row.variant is None else row.variant.memory_mb


@ask.command()
@run_argument
@one_variant
@platform_options
def waiting(run: str, json_: bool, **options: Any) -> None:
    """How much of the bill is waiting, by worker and phase?

    A worker waits from when it comes to what another must have done until that is there, its polls included.
    """
    from slslab.billing import compute_bill
    from slslab.replay.questions import waiting as find_waiting
    from slslab.replay.whatif import modelled_usage
    from slslab.reports import replays

    scene, timeline, found = _played(run, options)
    bill = compute_bill(modelled_usage(scene.run, timeline, found), scene.prices)
    billed = {one.worker: one.billed for one in found.workers}
    rows = find_waiting(timeline, billed, bill)
    document = scene.document(
        variant=scene.variant.label or None,
        billed_seconds=modelled(found.billed_seconds),
        cost=modelled(format(bill.total, "f")),
        waiting_seconds=modelled(found.waiting_seconds),
        waiting_share=modelled(found.waiting_share),
        waiting_cost=modelled(format(sum(row.cost for row in rows), ".10f")),
        measured_share={"value": scene.run.waiting_share, "basis": "measured"},
        rows=[{**asdict(row), "basis": "modelled"} for row in rows],
    )
    print_document(document, lambda: replays.waiting(document), json_)


@ask.command()
@run_argument
@one_variant
@platform_options
def path(run: str, json_: bool, **options: Any) -> None:
    """What is the run's time made of? Its critical path: each part is what the next one waited for."""
    from slslab.replay.path import critical_path, critical_path_table

    scene, timeline, _ = _played(run, options)
    found = critical_path(timeline)
    parts = [
        {
            "op": part.op,
            "phase": part.phase,
            "seconds": modelled(part.ns / 1e9),
            "share": part.ns / found.ns if found.ns else 0.0,
            "stretches": part.stretches,
            "workers": [{"worker": worker, "seconds": ns / 1e9} for worker, ns in part.workers],
        }
        for part in found.parts()
    ]
    document = scene.document(
        variant=scene.variant.label or None, seconds=modelled(found.ns / 1e9), summary=found.describe(), rows=parts
    )
    print_document(document, lambda: Group(critical_path_table(timeline), found.describe()), json_)


@ask.command()
@run_argument
@click.option(
    "--perfetto",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write it for ui.perfetto.dev and chrome://tracing; gzipped if the name ends in .gz.",
)
@plot_option
@one_variant
@platform_options
def timeline(run: str, perfetto: Path | None, plot: Path | None, json_: bool, **options: Any) -> None:
    """What happened when? The timeline as a file to look around in, or as a picture.

    With --perfetto workers are tracks, phases slices, messages arrows; with --plot phases are bars, and waits grey.
    """
    from slslab.replay.export import write_perfetto
    from slslab.reports.gantt import draw_timeline

    if perfetto is None and plot is None:
        raise RequestError("The timeline needs a file.", "give --perfetto FILE.json.gz, --plot FILE.svg, or both.")
    scene, played, found = _played(run, options)
    if perfetto is not None:
        write_perfetto(played, perfetto)
    if plot is not None:
        label = f" with {scene.variant.label}" if scene.variant.label else ""
        draw_timeline(played, f"{scene.run.plan.run}{label}, modelled on {played.profile.name}", plot)
    document = scene.document(
        variant=scene.variant.label or None,
        seconds=modelled(found.seconds),
        steps=len(played.steps),
        perfetto=None if perfetto is None else str(perfetto),
        plot=None if plot is None else str(plot),
    )
    where = {perfetto: " (open it at https://ui.perfetto.dev)", plot: ""}
    files = " and ".join(f"{file}{note}" for file, note in where.items() if file is not None)
    text = f"{len(played.steps):,} steps in ≈{found.seconds:,.2f} s: {files}"
    print_document(document, lambda: Text(text), json_)


def _played(run: str, options: dict[str, Any]) -> "tuple[Scene, Timeline, Outcome]":
    """One variant of a run, played."""
    from slslab.replay.whatif import simulate

    memory_mb, workers = options.pop("memory"), options.pop("workers")
    scene = read_scene(run, **options)
    sizes = read_memory(scene.run, None if memory_mb is None else str(memory_mb))
    scene = replace(scene, variant=replace(scene.variant, memory_mb=sizes[0] if sizes else None, workers=workers))
    with replayable(scene.run.plan.run):
        timeline, found = simulate(scene.run, scene.variant, scene.platform.profile)
    return scene, timeline, found


ask.add_command(patterns)
ask.add_command(gpu)
