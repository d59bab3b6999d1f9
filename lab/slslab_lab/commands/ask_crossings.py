"""`slslab ask patterns` and `slslab ask gpu`: where two ways to train cross."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slslab.cli.terminal import complete_run, print_document, run_argument
from slslab.errors import RequestError
from slslab_lab.commands.options import on_option, platform_options, plot_option, read_numbers
from slslab_lab.commands.replay_setup import ReplaySetup, modelled, read_setup, replayable, with_progress
from slslab_lab.pages import replay

if TYPE_CHECKING:
    from slslab.predict.profiles.profile import Profile
    from slslab.predict.uncertainty import Uncertainty
    from slslab_lab.replay.crossings import Course, Patterns
    from slslab_lab.replay.kernel.program import Program

PATTERNS = ("allreduce", "scatterreduce")
GPU = "gpu"
WAYS, FIGURES = ("functions", "instances"), ("seconds", "cost")
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
    × bandwidth ÷ gradient size which of them wins. It is a tie if the 80 % range of their ratio holds 1. Give a run of
    each, or one of either: the other pattern is then made of its steps.
    """
    from slslab.predict.uncertainty import half_width
    from slslab_lab.replay.crossings import intervals, winner
    from slslab_lab.replay.whatif import LARGEST_FLEET

    setup, second = _two_runs(run, other, PATTERNS, options)
    if setup.run.plan.architecture not in PATTERNS:
        raise RequestError(
            f"{setup.run.plan.run} is a run of {setup.run.plan.architecture}.", f"name one of {' or '.join(PATTERNS)}."
        )
    fleets = read_numbers("--workers", workers, 2, LARGEST_FLEET)
    with replayable(setup.run.plan.run):
        measure = partial(_patterns, setup, second)
        measurements = with_progress("playing both patterns", fleets, measure, on, (setup, second))
    rows: list[dict[str, Any]] = []
    for count, (each, errors) in zip(fleets, measurements, strict=True):
        tie = half_width(_of_ratio([errors[name] for name in PATTERNS], second))
        rows.append(
            {
                "workers": count,
                "step_seconds": {name: modelled(value, errors[name]) for name, value in each.seconds.items()},
                "uncertainty": {name: error.as_document() for name, error in errors.items()},
                "tie": tie,
                "winner": winner(each.seconds, tie) or None,
                "latency_bandwidth_size": modelled(each.share),
                "intervals": [asdict(interval) for interval in intervals(each.shares, each.swept, tie)],
            }
        )
    document = setup.document(gradient_bytes=int(setup.run.document["gradient_bytes"]), rows=rows)
    lines = {name: [row["step_seconds"][name] for row in rows] for name in PATTERNS}
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
    from slslab_lab.replay.crossings import MOST_EPOCHS
    from slslab_lab.replay.whatif import LARGEST_FLEET

    setup, second = _two_runs(run, gpu_run, (GPU,), options)
    if setup.run.plan.architecture == GPU:
        raise RequestError(f"{setup.run.plan.run} is a run of instances.", "name the run of functions first.")
    fleets = read_numbers("--workers", workers, 1, LARGEST_FLEET) or (setup.run.plan.workers,)
    lengths = read_numbers("--epochs", epochs, 1, MOST_EPOCHS)

    with replayable(setup.run.plan.run):
        measure = partial(_courses, setup, second, lengths)
        courses = with_progress("playing functions and instances", fleets, measure, on, (setup, second))
    rows = [
        _compared(setup, second, ways, count, length)
        for count, ways in zip(fleets, courses, strict=True)
        for length in lengths
    ]
    crossings = [
        {"workers": count, **_crossings(setup, second, ways, lengths)}
        for count, ways in zip(fleets, courses, strict=True)
    ]
    document = setup.document(rows=rows, crossings=crossings)
    last = rows[-len(lengths) :]
    lines = {name: [row[name]["cost"] for row in last] for name in WAYS}
    _draw(plot, lengths, lines, ("epochs", "USD"), setup)
    print_document(document, lambda: replay.gpu(document), json_)


def _draw(
    path: Path | None, at: Sequence[int], lines: dict[str, list[Any]], axes: tuple[str, str], setup: ReplaySetup
) -> None:
    """Draw lines of modelled figures over workers or epochs, if a picture was asked for."""
    from slslab_lab.pages.plots.lines import draw_lines

    if path is not None:
        values = {name: [float(figure["value"]) for figure in figures] for name, figures in lines.items()}
        ranges = {name: [(figure["low"], figure["high"]) for figure in figures] for name, figures in lines.items()}
        draw_lines(path, at, values, axes, f"{setup.run.plan.run} on {setup.platform.profile.name}, modelled", ranges)


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
    from slslab_lab.replay.programs.scaling import generate
    from slslab_lab.replay.programs.transfers import transfer
    from slslab_lab.runs.planning import architectures

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


def _source(setup: ReplaySetup, second: ReplaySetup | None, name: str) -> ReplaySetup:
    """Return the run that an architecture's program is made of."""
    return second if second is not None and second.run.plan.architecture == name else setup


def _of_ratio(errors: "Sequence[Uncertainty]", second: ReplaySetup | None) -> float:
    """Return the deviation of the ratio of two figures, which are of one recording if there is no second one."""
    first, other = errors if second is not None else [error.of_one_recording() for error in errors]
    return first.of_ratio(other)


def _patterns(
    setup: ReplaySetup, second: ReplaySetup | None, workers: int
) -> "tuple[Patterns, dict[str, Uncertainty]]":
    """Return both patterns with so many workers, and the uncertainty of each one's step."""
    from slslab_lab.replay.crossings import measure_patterns, step_seconds
    from slslab_lab.replay.kernel.kernel import play
    from slslab_lab.replay.ranges import find_uncertainties
    from slslab_lab.replay.whatif import vary_profile

    programs, errors = {}, {}
    for name in PATTERNS:
        source = _source(setup, second, name)
        program = _program(setup, second, name, workers, 1)

        def play_steps(
            profile: "Profile", source: ReplaySetup = source, program: "Program" = program
        ) -> dict[str, float]:
            varied = vary_profile(source.run, source.variant, profile)
            return {"seconds": step_seconds(play(program, varied))}

        profile, processor = source.platform.profile, source.run.recording.processor
        found = find_uncertainties(play_steps(profile), play_steps, profile, processor, instances=False)
        programs[name] = program, vary_profile(source.run, source.variant, profile)
        errors[name] = found["seconds"]
    return measure_patterns(programs, int(setup.run.document["gradient_bytes"])), errors


@dataclass(frozen=True)
class _Way:
    """How functions or instances go on, and the uncertainties of (figure, number of epochs)."""

    course: "Course"
    errors: "dict[str, Uncertainty]"


Ways = tuple[_Way, _Way]


def _courses(setup: ReplaySetup, second: ReplaySetup | None, lengths: Sequence[int], workers: int) -> Ways:
    """Return how functions and instances go on, so many of each."""
    names = (setup.run.plan.architecture, GPU)
    functions, instances = (_way(setup, second, name, workers, lengths) for name in names)
    return functions, instances


def _way(setup: ReplaySetup, second: ReplaySetup | None, name: str, workers: int, lengths: Sequence[int]) -> _Way:
    from slslab_lab.replay.ranges import find_uncertainties

    source = _source(setup, second, name)
    plain = _course(setup, second, name, workers, source.platform.profile)

    def figures(course: "Course") -> dict[str, float]:
        seconds = {f"seconds.{length}": course.seconds(length) for length in lengths}
        return seconds | {f"cost.{length}": float(course.cost(length, setup.prices)) for length in lengths}

    errors = find_uncertainties(
        figures(plain),
        lambda profile: figures(_course(setup, second, name, workers, profile)),
        source.platform.profile,
        source.run.recording.processor,
        instances=name == GPU,
        like={f"{figure}.{length}": figure for figure in FIGURES for length in lengths},
    )
    return _Way(plain, errors)


def _course(setup: ReplaySetup, second: ReplaySetup | None, name: str, workers: int, profile: "Profile") -> "Course":
    from slslab_lab.replay.crossings import course
    from slslab_lab.replay.kernel.kernel import play
    from slslab_lab.replay.outcome import outcome
    from slslab_lab.replay.whatif import vary_profile

    is_of_run = name == setup.run.plan.architecture
    # An instance's processor is its profile's.
    variant = setup.variant if is_of_run else replace(setup.variant, arch=None)
    program = _program(setup, second, name, workers, EPOCHS)
    timeline = play(program, vary_profile(setup.run, variant, profile))
    result = outcome(timeline, setup.variant.arch or setup.run.recording.arch)
    driver = setup.run.driver_requests(workers, EPOCHS)
    return course(timeline, result, result.usage(setup.run.hosts(workers) if is_of_run else (), driver))


def _compared(setup: ReplaySetup, second: ReplaySetup | None, ways: Ways, workers: int, epochs: int) -> dict[str, Any]:
    """Return seconds and cost of functions and instances, and which has less; None if they can't be told apart."""
    from slslab.predict.uncertainty import half_width
    from slslab_lab.replay.crossings import compare, winner

    comparison = compare((ways[0].course, ways[1].course), epochs, setup.prices)
    row: dict[str, Any] = {"workers": workers, "epochs": epochs, **{name: {} for name in WAYS}}
    for figure, less in zip(FIGURES, ("faster", "cheaper"), strict=True):
        errors = [way.errors[f"{figure}.{epochs}"] for way in ways]
        values = dict(zip(WAYS, getattr(comparison, figure), strict=True))
        for (name, value), error in zip(values.items(), errors, strict=True):
            row[name][figure] = modelled(format(value, "f") if figure == "cost" else value, error)
        numbers = {name: float(value) for name, value in values.items()}
        row[less] = winner(numbers, half_width(_of_ratio(errors, second))) or None
    row["uncertainty"] = {
        name: way.errors[f"seconds.{epochs}"].as_document() for name, way in zip(WAYS, ways, strict=True)
    }
    return row


def _crossings(setup: ReplaySetup, second: ReplaySetup | None, ways: Ways, lengths: Sequence[int]) -> dict[str, Any]:
    """Return by figure at how many epochs another way becomes the better one, and between which it does by 80 %.

    The ratio's error is taken at the asked number of epochs next to that. None is never.
    """
    from slslab.predict.uncertainty import half_width
    from slslab_lab.replay.crossings import MOST_EPOCHS, crossing

    courses = ways[0].course, ways[1].course
    found: dict[str, Any] = {}
    for figure in FIGURES:
        epochs = crossing(courses, figure, setup.prices)
        near = min(lengths, key=lambda length: abs(length - (epochs or MOST_EPOCHS)))
        factor = 1 + half_width(_of_ratio([way.errors[f"{figure}.{near}"] for way in ways], second))
        ends = [crossing(courses, figure, setup.prices, scale) for scale in (1 / factor, factor)]
        found[figure] = epochs
        found[f"{figure}_range"] = sorted(ends, key=lambda end: (end is None, end))
    return found
