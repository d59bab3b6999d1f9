"""`slslab ask patterns` and `slslab ask gpu`: where two ways to train cross."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slslab.errors import RequestError
from slslab.replaying import (
    Scene,
    modelled,
    platform_options,
    plot_option,
    read_numbers,
    read_scene,
    replayable,
    with_progress,
)
from slslab.terminal import print_document, run_argument

if TYPE_CHECKING:
    from slslab.replay.crossings import Course
    from slslab.replay.program import Program

PATTERNS = ("allreduce", "scatterreduce")
GPU = "gpu"
# What is played to tell what each further epoch takes: the first is slower.
EPOCHS = 3


@click.command()
@run_argument
@click.argument("other", required=False, metavar="[RUN]")
@click.option("--workers", default="2,4,8,16,32", show_default=True, metavar="LIST", help="Numbers of workers.")
@plot_option
@platform_options
def patterns(run: str, other: str | None, workers: str, plot: Path | None, json_: bool, **options: Any) -> None:
    """Where do AllReduce and ScatterReduce cross?

    For each number of workers: seconds of a training step in both, and in which interval of the object store's latency
    × bandwidth ÷ gradient size which of them wins. Less than 15 % is a tie. Give a run of each, or one of either: the
    other pattern is then made of its steps.
    """
    from slslab.replay.crossings import Patterns, intervals, measure_patterns
    from slslab.replay.whatif import LARGEST_FLEET, vary_profile
    from slslab.reports import replays

    scene, second = _two_runs(run, other, PATTERNS, options)
    if scene.run.plan.architecture not in PATTERNS:
        raise RequestError(
            f"{scene.run.plan.run} is a run of {scene.run.plan.architecture}.", f"name one of {' or '.join(PATTERNS)}."
        )
    fleets = read_numbers("--workers", workers, 2, LARGEST_FLEET)
    size = int(scene.run.document["gradient_bytes"])
    profile = vary_profile(scene.run, scene.variant, scene.platform.profile)

    def measure(count: int) -> Patterns:
        programs = {name: _program(scene, second, name, count, 1) for name in PATTERNS}
        return measure_patterns(programs, profile, size)

    with replayable(scene.run.plan.run):
        found = with_progress("playing both patterns", fleets, measure)
    rows = [
        {
            "workers": count,
            "step_seconds": {name: modelled(value) for name, value in one.seconds.items()},
            "winner": one.winner or None,
            "latency_bandwidth_size": modelled(one.share),
            "intervals": [asdict(interval) for interval in intervals(one.shares, one.swept)],
        }
        for count, one in zip(fleets, found, strict=True)
    ]
    document = scene.document(gradient_bytes=size, rows=rows)
    if plot is not None:
        lines = {name: [one.seconds[name] for one in found] for name in PATTERNS}
        draw_lines(plot, fleets, lines, ("workers", "seconds per step"), scene)
    print_document(document, lambda: replays.patterns(document), json_)


@click.command()
@run_argument
@click.argument("gpu_run", required=False)
@click.option("--workers", metavar="LIST", help="Numbers of workers (by default the run's).")
@click.option("--epochs", default="1,2,5,10,20,50,100", show_default=True, metavar="LIST", help="Numbers of epochs.")
@plot_option
@platform_options
def gpu(
    run: str, gpu_run: str | None, workers: str | None, epochs: str, plot: Path | None, json_: bool, **options: Any
) -> None:
    """When are GPU instances faster than functions, and when cheaper?

    RUN is one of functions. GPU_RUN is a run of `slslab run gpu` with the same model; without
    one the instances do the same steps, at the speed that the profile gives their GPU.
    """
    from slslab.replay.crossings import MOST_EPOCHS, compare, crossing
    from slslab.replay.whatif import LARGEST_FLEET
    from slslab.reports import replays

    scene, second = _two_runs(run, gpu_run, (GPU,), options)
    if scene.run.plan.architecture == GPU:
        raise RequestError(f"{scene.run.plan.run} is a run of instances.", "name the run of functions first.")
    fleets = read_numbers("--workers", workers, 1, LARGEST_FLEET) or (scene.run.plan.workers,)
    lengths = read_numbers("--epochs", epochs, 1, MOST_EPOCHS)

    def measure(count: int) -> "tuple[Course, Course]":
        return _course(scene, second, scene.run.plan.architecture, count), _course(scene, second, GPU, count)

    with replayable(scene.run.plan.run):
        found = with_progress("playing functions and instances", fleets, measure)
    rows = []
    for count, ways in zip(fleets, found, strict=True):
        for length in lengths:
            one = compare(ways, length, scene.prices)
            row: dict[str, Any] = {"workers": count, "epochs": length}
            for name, seconds, cost in zip(("functions", "instances"), one.seconds, one.cost, strict=True):
                row[name] = {"seconds": modelled(seconds), "cost": modelled(format(cost, "f"))}
            rows.append(row)
    crossings = [
        {"workers": count, **{figure: crossing(ways, figure, scene.prices) for figure in ("seconds", "cost")}}
        for count, ways in zip(fleets, found, strict=True)
    ]
    document = scene.document(rows=rows, crossings=crossings)
    if plot is not None:
        last = rows[-len(lengths) :]
        lines = {name: [float(row[name]["cost"]["value"]) for row in last] for name in ("functions", "instances")}
        draw_lines(plot, lengths, lines, ("epochs", "USD"), scene)
    print_document(document, lambda: replays.gpu(document), json_)


def draw_lines(
    path: Path, at: Sequence[int], lines: dict[str, list[float]], axes: tuple[str, str], scene: Scene
) -> None:
    """A picture of lines over workers or epochs."""
    from slslab.reports import plots

    plots.draw_lines(path, at, lines, axes, f"{scene.run.plan.run} on {scene.platform.profile.name}, modelled")


def _two_runs(
    run: str, other: str | None, wanted: Sequence[str], options: dict[str, Any]
) -> tuple[Scene, Scene | None]:
    """The run and the one it is compared with, if there is one; RequestError if they cannot be compared."""
    scene = read_scene(run, **options)
    if other is None:
        return scene, None
    second = read_scene(other, **options)
    names = (scene.run.plan.architecture, second.run.plan.architecture)
    if names[0] == names[1] or names[1] not in wanted:
        raise RequestError(
            f"{second.run.plan.run} is a run of {names[1]}, beside one of {names[0]}.",
            f"compare it with one of {' or '.join(name for name in wanted if name != names[0])}.",
        )
    for name in ("model", "batch_size", "batches"):
        one, two = (getattr(each.run.plan, name) for each in (scene, second))
        if one != two:
            raise RequestError(
                f"{name} is {one} in {scene.run.plan.run} and {two} in {second.run.plan.run}.", "compare equal plans."
            )
    return scene, second


def _program(scene: Scene, second: Scene | None, name: str, workers: int, epochs: int) -> "Program":
    """The program of an architecture, made of the run that is one of it, or else of the first one's steps."""
    from slslab.execution import architectures
    from slslab.replay.scaling import generate
    from slslab.replay.transfers import transfer

    batches = scene.run.plan.batches
    for each in (scene, second):
        if each is not None and each.run.plan.architecture == name:
            return generate(each.run.costs, workers, batches, epochs)
    try:
        costs = transfer(scene.run.costs, architectures()[name], scene.run.plan)
        return generate(costs, workers, batches, epochs)
    except RequestError as error:
        raise RequestError(
            f"The steps of {scene.run.plan.run} do not tell what {name} takes. {error.message}",
            f"give a run of {name}, too, as the second RUN.",
        ) from error


def _course(scene: Scene, second: Scene | None, name: str, workers: int) -> "Course":
    from slslab.replay.crossings import course
    from slslab.replay.kernel import play
    from slslab.replay.outcome import outcome
    from slslab.replay.whatif import vary_profile

    own = name == scene.run.plan.architecture
    # An instance's processor is its profile's.
    variant = scene.variant if own else replace(scene.variant, arch=None)
    program = _program(scene, second, name, workers, EPOCHS)
    timeline = play(program, vary_profile(scene.run, variant, scene.platform.profile))
    found = outcome(timeline, scene.variant.arch or scene.run.arch)
    driver = scene.run.driver_requests(workers, EPOCHS)
    return course(timeline, found, found.usage(scene.run.hosts(workers) if own else (), driver))
