"""`slslab ask patterns` and `slslab ask gpu`: where two ways to train cross."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slslab.cli.options import on_option, platform_options, plot_option, read_numbers
from slslab.cli.replay_setup import ReplaySetup, modelled, read_setup, replayable, with_progress
from slslab.cli.terminal import complete_run, print_document, run_argument
from slslab.errors import RequestError
from slslab.reports.terminal import replay

if TYPE_CHECKING:
    from slslab.replay.crossings import Course, Patterns
    from slslab.replay.kernel.program import Program

PATTERNS = ("allreduce", "scatterreduce")
GPU = "gpu"
# Epochs that are replayed to find what each further epoch takes: the first is slower.
EPOCHS = 3


@click.command()
@run_argument
@click.argument("other", required=False, metavar="[RUN]", shell_complete=complete_run)
@click.option("--workers", default="2,4,8,16,32", show_default=True, metavar="LIST", help="Numbers of workers.")
@on_option
@plot_option
@platform_options
def patterns(
    run: str, other: str | None, workers: str, on: str | None, plot: Path | None, json_: bool, **options: Any
) -> None:
    """Where do AllReduce and ScatterReduce cross?

    For each number of workers: seconds of a training step in both, and in which interval of the object store's latency
    × bandwidth ÷ gradient size which of them wins. Less than 15 % is a tie. Give a run of each, or one of either: the
    other pattern is then made of its steps.
    """
    from slslab.replay.crossings import intervals
    from slslab.replay.whatif import LARGEST_FLEET

    setup, second = _two_runs(run, other, PATTERNS, options)
    if setup.run.plan.architecture not in PATTERNS:
        raise RequestError(
            f"{setup.run.plan.run} is a run of {setup.run.plan.architecture}.", f"name one of {' or '.join(PATTERNS)}."
        )
    fleets = read_numbers("--workers", workers, 2, LARGEST_FLEET)
    with replayable(setup.run.plan.run):
        measure = partial(_patterns, setup, second)
        measurements = with_progress("playing both patterns", fleets, measure, on, (setup, second))
    rows = [
        {
            "workers": count,
            "step_seconds": {name: modelled(value) for name, value in each.seconds.items()},
            "winner": each.winner or None,
            "latency_bandwidth_size": modelled(each.share),
            "intervals": [asdict(interval) for interval in intervals(each.shares, each.swept)],
        }
        for count, each in zip(fleets, measurements, strict=True)
    ]
    document = setup.document(gradient_bytes=int(setup.run.document["gradient_bytes"]), rows=rows)
    lines = {name: [each.seconds[name] for each in measurements] for name in PATTERNS}
    _draw(plot, fleets, lines, ("workers", "seconds per step"), setup)
    print_document(document, lambda: replay.patterns(document), json_)


@click.command()
@run_argument
@click.argument("gpu_run", required=False, shell_complete=complete_run)
@click.option("--workers", metavar="LIST", help="Numbers of workers (by default the run's).")
@click.option("--epochs", default="1,2,5,10,20,50,100", show_default=True, metavar="LIST", help="Numbers of epochs.")
@on_option
@plot_option
@platform_options
def gpu(
    run: str,
    gpu_run: str | None,
    workers: str | None,
    epochs: str,
    on: str | None,
    plot: Path | None,
    json_: bool,
    **options: Any,
) -> None:
    """When are GPU instances faster than functions, and when cheaper?

    RUN is one of functions. GPU_RUN is a run of `slslab run gpu` with the same model; without
    one the instances do the same steps, at the speed that the profile gives their GPU.
    """
    from slslab.replay.crossings import MOST_EPOCHS, compare, crossing
    from slslab.replay.whatif import LARGEST_FLEET

    setup, second = _two_runs(run, gpu_run, (GPU,), options)
    if setup.run.plan.architecture == GPU:
        raise RequestError(f"{setup.run.plan.run} is a run of instances.", "name the run of functions first.")
    fleets = read_numbers("--workers", workers, 1, LARGEST_FLEET) or (setup.run.plan.workers,)
    lengths = read_numbers("--epochs", epochs, 1, MOST_EPOCHS)

    with replayable(setup.run.plan.run):
        measure = partial(_courses, setup, second)
        courses = with_progress("playing functions and instances", fleets, measure, on, (setup, second))
    rows = []
    for count, ways in zip(fleets, courses, strict=True):
        for length in lengths:
            comparison = compare(ways, length, setup.prices)
            row: dict[str, Any] = {"workers": count, "epochs": length}
            for name, seconds, cost in zip(
                ("functions", "instances"), comparison.seconds, comparison.cost, strict=True
            ):
                row[name] = {"seconds": modelled(seconds), "cost": modelled(format(cost, "f"))}
            rows.append(row)
    crossings = [
        {"workers": count, **{figure: crossing(ways, figure, setup.prices) for figure in ("seconds", "cost")}}
        for count, ways in zip(fleets, courses, strict=True)
    ]
    document = setup.document(rows=rows, crossings=crossings)
    last = rows[-len(lengths) :]
    lines = {name: [float(row[name]["cost"]["value"]) for row in last] for name in ("functions", "instances")}
    _draw(plot, lengths, lines, ("epochs", "USD"), setup)
    print_document(document, lambda: replay.gpu(document), json_)


def _draw(
    path: Path | None, at: Sequence[int], lines: dict[str, list[float]], axes: tuple[str, str], setup: ReplaySetup
) -> None:
    """Draw lines over workers or epochs, if a picture was asked for."""
    from slslab.reports.plots.lines import draw_lines

    if path is not None:
        draw_lines(path, at, lines, axes, f"{setup.run.plan.run} on {setup.platform.profile.name}, modelled")


def _two_runs(
    run: str, other: str | None, architectures: Sequence[str], options: dict[str, Any]
) -> tuple[ReplaySetup, ReplaySetup | None]:
    """Return the run and the one it is compared with, if there is one; RequestError if they cannot be compared."""
    setup = read_setup(run, **options)
    if other is None:
        return setup, None
    second = read_setup(other, **options)
    names = (setup.run.plan.architecture, second.run.plan.architecture)
    if names[0] == names[1] or names[1] not in architectures:
        raise RequestError(
            f"{second.run.plan.run} is a run of {names[1]}, beside one of {names[0]}.",
            f"compare it with one of {' or '.join(name for name in architectures if name != names[0])}.",
        )
    for name in ("model", "batch_size", "batches"):
        first, two = (getattr(each.run.plan, name) for each in (setup, second))
        if first != two:
            raise RequestError(
                f"{name} is {first} in {setup.run.plan.run} and {two} in {second.run.plan.run}.", "compare equal plans."
            )
    return setup, second


def _program(setup: ReplaySetup, second: ReplaySetup | None, name: str, workers: int, epochs: int) -> "Program":
    """Return the program of an architecture, made of the run that is one of it, or else of the first one's steps."""
    from slslab.replay.programs.scaling import generate
    from slslab.replay.programs.transfers import transfer
    from slslab.runs.planning import architectures

    batches = setup.run.plan.batches
    for each in (setup, second):
        if each is not None and each.run.plan.architecture == name:
            return generate(each.run.costs, workers, batches, epochs)
    try:
        costs = transfer(setup.run.costs, architectures()[name], setup.run.plan)
        return generate(costs, workers, batches, epochs)
    except RequestError as error:
        raise RequestError(
            f"The steps of {setup.run.plan.run} do not determine what {name} takes. {error.message}",
            f"give a run of {name} as the second RUN.",
        ) from error


def _patterns(setup: ReplaySetup, second: ReplaySetup | None, workers: int) -> "Patterns":
    """Return both patterns with so many workers."""
    from slslab.replay.crossings import measure_patterns
    from slslab.replay.whatif import vary_profile

    programs = {name: _program(setup, second, name, workers, 1) for name in PATTERNS}
    profile = vary_profile(setup.run, setup.variant, setup.platform.profile)
    return measure_patterns(programs, profile, int(setup.run.document["gradient_bytes"]))


def _courses(setup: ReplaySetup, second: ReplaySetup | None, workers: int) -> "tuple[Course, Course]":
    """Return how functions and instances go on, so many of each."""
    return _course(setup, second, setup.run.plan.architecture, workers), _course(setup, second, GPU, workers)


def _course(setup: ReplaySetup, second: ReplaySetup | None, name: str, workers: int) -> "Course":
    from slslab.replay.crossings import course
    from slslab.replay.kernel.kernel import play
    from slslab.replay.outcome import outcome
    from slslab.replay.whatif import vary_profile

    is_of_run = name == setup.run.plan.architecture
    # An instance's processor is its profile's.
    variant = setup.variant if is_of_run else replace(setup.variant, arch=None)
    program = _program(setup, second, name, workers, EPOCHS)
    timeline = play(program, vary_profile(setup.run, variant, setup.platform.profile))
    result = outcome(timeline, setup.variant.arch or setup.run.recording.arch)
    driver = setup.run.driver_requests(workers, EPOCHS)
    return course(timeline, result, result.usage(setup.run.hosts(workers) if is_of_run else (), driver))
