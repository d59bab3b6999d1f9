"""`slslab ask model`: the analytic model of a run beside closed form, replay and measurement."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slslab.cli.terminal import print_document, run_argument
from slslab.errors import RequestError
from slslab_lab.commands.options import on_option, platform_options, plot_option, read_numbers
from slslab_lab.commands.replay_setup import ReplaySetup, modelled, read_setup, replayable, with_progress
from slslab_lab.pages import replay
from slslab_workers.channels.choice import serialisation
from slslab_workers.plan import Value
from slslab_workers.training.algorithms import is_asynchronous

if TYPE_CHECKING:
    from slslab.predict.profiles.profile import Profile
    from slslab_lab.replay.analytic import Constants, Estimate

FLEETS = (1, 2, 4, 8, 16, 32, 64)
# From what share of the replayed seconds on the model errs.
ERROR = 0.1


@click.command()
@run_argument
@click.option("--workers", metavar="LIST", help="Numbers of workers (by default 1,2,4,8,16,32,64 and the run's).")
@on_option
@plot_option
@platform_options
def model(run: str, workers: str | None, on: str | None, plot: Path | None, json_: bool, **options: Any) -> None:
    """How far is LambdaML's analytic model from the replay?

    For each number of workers, each with as many minibatches as recorded: the model of LambdaML's Section 5.3, the
    closed form of all requests, the replay, and what was measured with the run's own number. Of AllReduce and
    ScatterReduce.
    """
    from slslab_lab.replay.analytic import LEFT_OUT, constants
    from slslab_lab.replay.whatif import LARGEST_FLEET, simulate, vary_profile

    setup = _modelled_run(run, options)
    architecture = setup.run.plan.architecture
    fleets = read_numbers("--workers", workers, 1, LARGEST_FLEET) or tuple(sorted({*FLEETS, setup.run.plan.workers}))
    profile = vary_profile(setup.run, setup.variant, setup.platform.profile)

    with replayable(setup.run.plan.run):
        timeline, _ = simulate(setup.run, setup.variant, setup.platform.profile)
        known = constants(setup.run, timeline)
        rows = with_progress("playing numbers of workers", fleets, partial(_row, setup, known, profile), on, (setup,))
    document = setup.document(
        transfers="published" if architecture == "scatterreduce" else "derived",
        constants=_constants(known, profile, setup.run.costs.workload.options),
        rows=rows,
        error=ERROR,
        errs_from=_errs_from(rows),
        left_out=LEFT_OUT,
    )
    if plot is not None:
        _draw(plot, document)
    print_document(document, lambda: replay.model(document), json_)


def _row(setup: ReplaySetup, known: "Constants", profile: "Profile", workers: int) -> dict[str, Any]:
    """Return the figures with so many workers."""
    from slslab_lab.replay.analytic import analytic, closed_form

    estimate = analytic(setup.run.plan.architecture, workers, known, profile)
    formula = closed_form(setup.run.costs, workers, known, profile)
    measured = _measured(setup) if workers == setup.run.plan.workers else None
    row = {"workers": workers, "model": _modelled(estimate), "closed_form": _modelled(formula)}
    return row | _replayed(setup, workers, estimate) | {"measured": measured}


def _modelled_run(run: str, options: dict[str, Any]) -> ReplaySetup:
    """Return a run that the model is of; RequestError for another one."""
    from slslab_lab.replay.analytic import MODELLED

    setup = read_setup(run, **options)
    plan = setup.run.plan
    if plan.architecture not in MODELLED:
        raise RequestError(
            f"{plan.run} is a run of {plan.architecture}, of which there is no analytic model.",
            f"name one of {' or '.join(MODELLED)}.",
        )
    if is_asynchronous(plan.options):
        raise RequestError(
            f"{plan.run} is a run of S-ASP, and the analytic model is of rounds in which all workers wait.",
            "name one with --synchronisation bsp.",
        )
    return setup


def _constants(known: "Constants", profile: "Profile", options: Mapping[str, Value]) -> dict[str, Any]:
    """Return the model's constants, each with what it is based on; latencies and bandwidths have their sources."""
    bases = {
        "start_s": "modelled",
        "data_bytes": "measured",
        "compute_s": "modelled",
        "rounds": "exact",
        "message_bytes": "exact" if serialisation(options).dense else "measured",
    }
    document: dict[str, Any] = {name: {"value": getattr(known, name), "basis": basis} for name, basis in bases.items()}
    for name, op in (("put", known.put), ("get", known.get)):
        figures = profile.operation(op).model_dump(mode="json", include={"latency_ms", "bandwidth_mb_s"})
        document[name] = {"op": op, **figures}
    return document


def _modelled(estimate: "Estimate") -> dict[str, Any]:
    return {name: modelled(value) for name, value in asdict(estimate).items()}


def _replayed(setup: ReplaySetup, workers: int, estimate: "Estimate") -> dict[str, Any]:
    """Return the replay with so many workers, and by what share of its figures the model is off; or why it cannot
    be."""
    from slslab_lab.replay.analytic import Estimate, communication
    from slslab_lab.replay.ranges import find_uncertainties
    from slslab_lab.replay.whatif import ConcurrencyError, simulate

    variant = replace(setup.variant, workers=workers)
    row: dict[str, Any] = {"label": variant.label, "trouble": None, "replay": None, "model_error": None}
    try:
        timeline, played = simulate(setup.run, variant, setup.platform.profile)
    except ConcurrencyError as error:
        return row | {"trouble": error.message}
    figures = Estimate(played.seconds, communication(timeline))

    def play(profile: "Profile") -> dict[str, float]:
        moved, result = simulate(setup.run, variant, profile)
        return asdict(Estimate(result.seconds, communication(moved)))

    recording = setup.run.recording
    uncertainties = find_uncertainties(
        asdict(figures), play, setup.platform.profile, recording.processor, False, {"communication": "seconds"}
    )
    row["uncertainty"] = {name: each.as_document() for name, each in uncertainties.items()}
    replayed = {name: modelled(value, uncertainties[name]) for name, value in asdict(figures).items()}
    errors = {name: modelled(value / getattr(figures, name) - 1) for name, value in asdict(estimate).items()}
    return row | {"replay": replayed, "model_error": errors}


def _measured(setup: ReplaySetup) -> dict[str, Any]:
    """Return what the slowest worker took on the Lambda clock, and what a worker spent on exchanges on average."""
    workers = [worker["phases"] for worker in setup.run.document["per_worker"] if worker["worker"] >= 0]
    exchanged = sum(phases["synchronise"] + phases["wait"] for phases in workers) / len(workers)
    figures = {"seconds": max(sum(phases.values()) for phases in workers), "communication": exchanged}
    return {name: {"value": value, "basis": "measured"} for name, value in figures.items()}


def _errs_from(rows: list[dict[str, Any]]) -> int | None:
    """Return from how many workers on the model's seconds are off by more than ERROR; None if the last are not."""
    first = None
    for row in sorted(rows, key=lambda row: row["workers"], reverse=True):
        if row["model_error"] is not None:
            if abs(row["model_error"]["seconds"]["value"]) <= ERROR:
                break
            first = row["workers"]
    return first


def _draw(path: Path, document: dict[str, Any]) -> None:
    """Draw the seconds of all four; the measured ones are a point."""
    from slslab_lab.pages.plots.lines import draw_lines

    rows = sorted(document["rows"], key=lambda row: row["workers"])
    lines = {
        name.replace("_", " "): [float("nan") if row[name] is None else row[name]["seconds"]["value"] for row in rows]
        for name in ("model", "closed_form", "replay", "measured")
    }
    title = f"{document['run']} on {document['profile']['name']}"
    draw_lines(path, [row["workers"] for row in rows], lines, ("workers", "seconds"), title)
