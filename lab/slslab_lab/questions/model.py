"""Compare LambdaML's analytic model of a run with the closed form, the replay and the measurement."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile
from typing import Any

from slslab.errors import RequestError, read_numbers
from slslab.predict.profiles.profile import Profile
from slslab_lab.questions.setup import Asked, ReplaySetup, figure
from slslab_lab.replay.analytic import LEFT_OUT, Constants, analytic, closed_form, communication, constants
from slslab_lab.replay.ranges import play_with_ranges
from slslab_lab.replay.whatif import LARGEST_FLEET, ImpossibleError, vary_profile
from slslab_workers.architecture import with_chains
from slslab_workers.patterns import Chain
from slslab_workers.training.algorithms import is_asynchronous

FLEETS = (1, 2, 4, 8, 16, 32, 64)
# The model is wrong where it differs from the replayed seconds by more than this share.
ERROR = 0.1


def model(asked: Asked, workers: str | None) -> dict[str, Any]:
    """Answer `slslab ask model`."""
    setup, plan = asked.setup, asked.setup.run.plan
    chain = setup.run.costs.architecture.longest_chain
    if chain is None:
        raise RequestError(
            f"{plan.run} ran {plan.architecture}, for which LambdaML has no analytic model.",
            f"name one of {' or '.join(with_chains())}.",
        )
    if is_asynchronous(plan.options):
        raise RequestError(
            f"{plan.run} ran S-ASP, but the analytic model assumes that all workers wait for each other.",
            "name one with --synchronisation bsp.",
        )
    fleets = read_numbers("--workers", workers, 1, LARGEST_FLEET) or tuple(sorted({*FLEETS, plan.workers}))
    timeline, _ = setup.simulate(setup.platform.profile)
    known, profile = constants(setup.run, timeline), vary_profile(setup.run, setup.variant, setup.platform.profile)
    rows = asked.play("playing numbers of workers", fleets, partial(_row, setup, chain, known, profile))
    return {
        "transfers": "published" if chain(plan.workers).published else "derived",
        "constants": _constants(known, profile),
        "rows": rows,
        "error": ERROR,
        "errs_from": _errs_from(rows),
        "left_out": LEFT_OUT,
    }


def _row(
    setup: ReplaySetup, chain: Callable[[int], Chain], known: Constants, profile: Profile, workers: int
) -> dict[str, Any]:
    estimate = analytic(chain(workers), known, profile)
    formula = closed_form(setup.run.costs, workers, known, profile)
    return {
        "workers": workers,
        "model": _figures(estimate),
        "closed_form": _figures(formula),
        **_replayed(setup.vary(workers=workers), estimate),
        "measured": _measured(setup) if workers == setup.run.plan.workers else None,
    }


def _figures(estimate: Mapping[str, float]) -> dict[str, Any]:
    return {name: figure(value) for name, value in estimate.items()}


def _constants(known: Constants, profile: Profile) -> dict[str, Any]:
    bases = {
        "start_s": "modelled",
        "data_bytes": "measured",
        "compute_s": "modelled",
        "rounds": "exact",
        "message_bytes": "exact",
    }
    document: dict[str, Any] = {name: {"value": getattr(known, name), "basis": basis} for name, basis in bases.items()}
    for name, op in (("put", known.put), ("get", known.get)):
        figures = profile.operation(op).model_dump(mode="json", include={"latency_ms", "bandwidth_mb_s"})
        document[name] = {"op": op, **figures}
    return document


def _replayed(setup: ReplaySetup, estimate: Mapping[str, float]) -> dict[str, Any]:
    def play(profile: Profile) -> dict[str, float]:
        timeline, result = setup.simulate(profile)
        return {"seconds": result.seconds, "communication": communication(timeline)}

    row: dict[str, Any] = {"label": setup.variant.label, "trouble": None, "replay": None, "model_error": None}
    try:
        figures, errors = play_with_ranges(play, dict, setup.platform.profile, setup.run)
    except ImpossibleError as error:
        return row | {"trouble": error.message}
    if warnings := setup.run.warnings(setup.variant.workers):
        row["warnings"] = list(warnings)
    return row | {
        "uncertainty": {name: error.as_document() for name, error in errors.items()},
        "replay": {name: figure(value, errors[name]) for name, value in figures.items()},
        "model_error": _figures({name: value / figures[name] - 1 for name, value in estimate.items()}),
    }


def _measured(setup: ReplaySetup) -> dict[str, Any]:
    """Return the slowest worker's time on the Lambda clock, and the workers' mean time for exchanges."""
    workers = [worker["phases"] for worker in setup.run.document["per_worker"] if worker["worker"] >= 0]
    exchanged = sum(phases["synchronise"] + phases["wait"] for phases in workers) / len(workers)
    figures = {"seconds": max(sum(phases.values()) for phases in workers), "communication": exchanged}
    return {name: {"value": value, "basis": "measured"} for name, value in figures.items()}


def _errs_from(rows: list[dict[str, Any]]) -> int | None:
    """Return the number of workers from which on the model's seconds are off by more than ERROR, or None."""
    known = sorted((row for row in rows if row["model_error"] is not None), key=lambda row: -row["workers"])
    off = list(takewhile(lambda row: abs(row["model_error"]["seconds"]["value"]) > ERROR, known))
    return off[-1]["workers"] if off else None
