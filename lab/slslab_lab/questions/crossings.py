"""Where two ways to train cross: LambdaML's two patterns, functions and instances with GPUs.

Each side is replayed from its own run, or derived from the steps of the first run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from slslab.errors import RequestError, read_numbers
from slslab.predict.profiles.profile import Profile
from slslab.predict.uncertainty import Uncertainty, half_width
from slslab_lab.questions.setup import Asked, ReplaySetup, figure
from slslab_lab.replay.crossings import (
    FACTORS,
    MOST_EPOCHS,
    Course,
    course,
    crossing,
    intervals,
    pipe_share,
    step_seconds,
    sweep_latency,
    winner,
)
from slslab_lab.replay.kernel.program import Program
from slslab_lab.replay.outcome import outcome
from slslab_lab.replay.programs.scaling import generate, transfer
from slslab_lab.replay.ranges import play_with_ranges
from slslab_lab.replay.whatif import LARGEST_FLEET, play_within, vary_profile
from slslab_workers.architecture import architectures, on_gpus, with_chains

WAYS = ("functions", "instances")
# Figures, and the word for the way with the smaller figure.
LESS = {"seconds": "faster", "cost": "cheaper"}
# Epochs that are replayed to learn how long each further epoch takes; the first is slower.
EPOCHS = 3
# The run, and the run to compare it with, if any.
Setups = tuple[ReplaySetup, ...]


def patterns(asked: Asked, workers: str) -> dict[str, Any]:
    """Answer `slslab ask patterns`."""
    known = with_chains()
    _check_pair(asked.setups, known)
    setup = asked.setup
    if setup.run.plan.architecture not in known:
        raise RequestError(f"{setup.name} ran {setup.run.plan.architecture}.", f"name one of {' or '.join(known)}.")
    fleets = read_numbers("--workers", workers, 2, LARGEST_FLEET)
    return {
        "gradient_bytes": int(setup.run.document["gradient_bytes"]),
        "rows": asked.play("playing both patterns", fleets, partial(_patterns, asked.setups)),
        **asked.warned(fleets),
    }


def _patterns(setups: Setups, workers: int) -> dict[str, Any]:
    size = int(setups[0].run.document["gradient_bytes"])
    seconds, errors, programs = {}, {}, {}
    for name in with_chains():
        source, program = _source(setups, name), _program(setups, name, workers, 1)

        def play_step(profile: Profile, source: ReplaySetup = source, program: Program = program) -> float:
            return step_seconds(play_within(program, vary_profile(source.run, source.variant, profile)))

        seconds[name], found = play_with_ranges(
            play_step, lambda step_s: {"seconds": step_s}, source.platform.profile, source.run
        )
        errors[name] = found["seconds"]
        programs[name] = program, vary_profile(source.run, source.variant, source.platform.profile)
    tie = _tie(setups, list(errors.values()))
    # The profiles differ only in the speeds of processors.
    share = pipe_share(next(iter(programs.values()))[1], size)
    shares = [share * factor for factor in FACTORS]
    return {
        "workers": workers,
        "step_seconds": {name: figure(value, errors[name]) for name, value in seconds.items()},
        "uncertainty": {name: error.as_document() for name, error in errors.items()},
        "tie": tie,
        "winner": winner(seconds, tie) or None,
        "latency_bandwidth_size": figure(share),
        "intervals": [asdict(interval) for interval in intervals(shares, sweep_latency(programs), tie)],
    }


def gpu(asked: Asked, workers: str | None, epochs: str) -> dict[str, Any]:
    """Answer `slslab ask gpu`."""
    instances = on_gpus()
    _check_pair(asked.setups, (instances,))
    plan = asked.setup.run.plan
    if plan.architecture == instances:
        raise RequestError(f"{plan.run} ran on instances.", "name the run on functions first.")
    fleets = read_numbers("--workers", workers, 1, LARGEST_FLEET) or (plan.workers,)
    lengths = read_numbers("--epochs", epochs, 1, MOST_EPOCHS)
    points = [(count, lengths) for count in fleets]
    compared = asked.play("playing functions and instances", points, partial(_gpu, asked.setups))
    return {
        "rows": [row for rows, _ in compared for row in rows],
        "crossings": [found for _, found in compared],
        **asked.warned(fleets),
    }


def _gpu(setups: Setups, point: tuple[int, Sequence[int]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return functions and instances for these numbers of epochs, and where they cross, for one number of workers."""
    workers, lengths = point
    book = setups[0].prices
    played = [_way(setups, name, workers, lengths) for name in (setups[0].run.plan.architecture, on_gpus())]
    ways, errors = (played[0][0], played[1][0]), (played[0][1], played[1][1])
    rows = []
    for length in lengths:
        row: dict[str, Any] = {"workers": workers, "epochs": length, **{name: {} for name in WAYS}}
        for name, less in LESS.items():
            values = {label: way.figure(name, length, book) for label, way in zip(WAYS, ways, strict=True)}
            known = [error[f"{name}.{length}"] for error in errors]
            for (label, value), error in zip(values.items(), known, strict=True):
                row[label][name] = figure(value, error)
            row[less] = winner({label: float(value) for label, value in values.items()}, _tie(setups, known)) or None
        row["uncertainty"] = {
            label: error[f"seconds.{length}"].as_document() for label, error in zip(WAYS, errors, strict=True)
        }
        rows.append(row)
    crossings: dict[str, Any] = {"workers": workers}
    for name in LESS:
        epochs = crossing(ways, name, book)
        # The ratio's error is taken from the nearest replayed number of epochs.
        near = min(lengths, key=lambda length: abs(length - (epochs or MOST_EPOCHS)))
        factor = 1 + _tie(setups, [error[f"{name}.{near}"] for error in errors])
        ends = [crossing(ways, name, book, scale) for scale in (1 / factor, factor)]
        crossings[name] = epochs
        crossings[f"{name}_range"] = sorted(ends, key=lambda end: (end is None, end))
    return rows, crossings


def _way(setups: Setups, name: str, workers: int, lengths: Sequence[int]) -> tuple[Course, Mapping[str, Uncertainty]]:
    setup, source = setups[0], _source(setups, name)
    is_of_run = name == setup.run.plan.architecture
    # An instance's processor comes from its profile.
    variant = setup.variant if is_of_run else replace(setup.variant, arch=None)
    program = _program(setups, name, workers, EPOCHS)

    def play_course(profile: Profile) -> Course:
        timeline = play_within(program, vary_profile(setup.run, variant, profile))
        result = outcome(timeline, setup.variant.arch or setup.run.arch)
        driver = setup.run.driver_requests(workers, EPOCHS)
        return course(timeline, result, result.as_usage(setup.run.hosts(workers) if is_of_run else (), driver))

    asked = {f"{less}.{length}": (less, length) for less in LESS for length in lengths}
    return play_with_ranges(
        play_course,
        lambda way: {key: float(way.figure(*each, setup.prices)) for key, each in asked.items()},
        source.platform.profile,
        source.run,
        like={key: less for key, (less, _) in asked.items()},
        instances=not is_of_run,
    )


def _check_pair(setups: Setups, names: Sequence[str]) -> None:
    if len(setups) == 1:
        return
    first, second = (setup.run.plan for setup in setups)
    if first.architecture == second.architecture or second.architecture not in names:
        raise RequestError(
            f"{second.run} ran {second.architecture}, and the first run {first.architecture}.",
            f"compare it with one of {' or '.join(name for name in names if name != first.architecture)}.",
        )
    for name in ("model", "batch_size", "batches"):
        one, other = getattr(first, name), getattr(second, name)
        if one != other:
            raise RequestError(f"{name} is {one} in {first.run} and {other} in {second.run}.", "compare equal plans.")


def _source(setups: Setups, name: str) -> ReplaySetup:
    return next((setup for setup in setups if setup.run.plan.architecture == name), setups[0])


def _program(setups: Setups, name: str, workers: int, epochs: int) -> Program:
    first, source = setups[0].run, _source(setups, name).run
    if source.plan.architecture == name:
        return generate(source.costs, workers, first.plan.batches, epochs)
    try:
        costs = transfer(first.costs, architectures()[name], first.plan)
        return generate(costs, workers, first.plan.batches, epochs)
    except RequestError as error:
        raise RequestError(
            f"The steps of {first.plan.run} don't determine how long {name} takes. {error.message}",
            f"give a run of {name} as the second RUN.",
        ) from error


def _tie(setups: Setups, errors: Sequence[Uncertainty]) -> float:
    """Return the relative difference below which figures can't be told apart; one recording shares its errors."""
    first, other = errors if len(setups) > 1 else [error.of_one_recording() for error in errors]
    return half_width(first.of_ratio(other))
