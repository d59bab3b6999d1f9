"""The answer to "which memory size?" as a document of JSON types."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from slslab.errors import RequestError
from slslab.report.formats import listed
from slslab.run.predictions import predict
from slslab.tune.decision import GOALS, Best, Estimate, best, excess, in_time
from slslab.tune.estimates import Measured, Sample
from slslab.tune.function import TunedFunction
from slslab.tune.tuning import Payload, Progress, Sizes, tune

SCHEMA = 1
MILLION = 1_000_000


def tune_and_describe(
    function: TunedFunction,
    known: Sizes,
    payloads: Sequence[Payload],
    deadline_s: float | None = None,
    goal: str = "cheapest",
    progress: Progress = lambda *_: None,
    done: Callable[[Measured], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure what `known` doesn't tell yet (`tune`), and return the document. RequestError for an unknown goal."""
    if goal not in GOALS:
        raise RequestError(f"{goal!r} isn't a goal.", f"choose from {listed(list(GOALS))}.")
    began = time.monotonic()
    tune(function, known, payloads, progress, done)
    made = function.samples(function.made)
    return describe(function.name, known, payloads, deadline_s, goal, made, time.monotonic() - began)


def describe(
    function: str,
    known: Sizes,
    payloads: Sequence[Payload],
    deadline_s: float | None,
    goal: str,
    made: Sequence[Sample],
    seconds: float,
) -> dict[str, Any]:
    """Return what is known about a function's memory sizes, and which one is best.

    `made` are the invocations that the answer needed, without earlier ones, and `seconds` the time that they took.
    Costs are USD for a million invocations. Ranges are 80 %.
    """
    estimates, estimator = known.estimates(), known.estimator
    chosen = {name: best(estimates, name) for name in GOALS}
    if deadline_s is not None:
        chosen["deadline"] = best(in_time(estimates, deadline_s), goal)
    answer = chosen["deadline" if deadline_s is not None else goal]
    records = [sample.record for sample in made]
    requests = {function: [request for sample in made for request in sample.requests]}
    tuning = predict(records, requests, estimator.predictor)
    return {
        "schema": SCHEMA,
        "function": function,
        "memory_mb": known.memory_mb,
        "timeout_s": known.timeout_s,
        "payloads": [{"weight": weight.weight, "payload": weight.event} for weight in payloads],
        "cores": estimator.cores,
        "goal": goal,
        "deadline_s": deadline_s,
        "memory": None if answer is None else answer.memory_mb,
        "answers": {name: _best(one) for name, one in chosen.items()},
        "sizes": [_size(size, estimates, known) for size in known.sizes],
        "invocations": len(made),
        "cold_starts": sum(bool(record["cold_start"]) for record in records),
        "used_before": sum(len(one.samples) for one in known.measured.values()) - _counted(known, made),
        "seconds": round(seconds, 3),
        "prices": {"name": estimator.book.name, "date": estimator.book.date.isoformat()},
        "predicted": tuning.document(tuning.bill(estimator.book)),
    }


def _counted(known: Sizes, made: Sequence[Sample]) -> int:
    ids = {sample.record["request_id"] for sample in made}
    return sum(one.record["request_id"] in ids for measured in known.measured.values() for one in measured.samples)


def _best(found: Best | None) -> dict[str, Any] | None:
    return None if found is None else {"memory_mb": found.memory_mb, "alike": list(found.alike)}


def _size(memory_mb: int, estimates: Sequence[Estimate], known: Sizes) -> dict[str, Any]:
    measured = known.measured.get(memory_mb)
    row: dict[str, Any] = {
        "memory_mb": memory_mb,
        "basis": "left out" if memory_mb in known.left_out else "modelled" if measured is None else "measured",
        "reason": known.left_out.get(memory_mb, ""),
        "more_processors": not known.estimator.runs(memory_mb),
        "here": None if measured is None else _here(measured),
    }
    if (estimate := next((one for one in estimates if one.memory_mb == memory_mb), None)) is not None:
        low, high = excess(estimate, estimates)
        row |= {"excess": {"low": low, "high": high}, **_figures(estimate)}
        row["may_time_out"] = estimate.range("seconds")[1] > known.timeout_s
    if measured is not None and measured.cold:
        row["cold"] = _figures(known.estimator.cold(measured))
    return row


def _figures(estimate: Estimate) -> Mapping[str, Any]:
    def figure(name: str, scale: float) -> dict[str, float]:
        low, high = estimate.range(name)
        ends = {"value": estimate.plain[name], "low": low, "high": high}
        return {end: round(scale * value, 6) for end, value in ends.items()}

    return {"duration_ms": figure("seconds", 1000), "cost": figure("cost", MILLION)}


def _here(measured: Measured) -> dict[str, Any]:
    warm = [sample.record for round_ in measured.rounds for sample in round_]
    return {
        "rounds": len(measured.rounds),
        "cold_starts": len(measured.cold),
        "duration_ms": round(fmean(record["duration_ms"] for record in warm), 3),
        "billed_ms": round(fmean(record["billed_ms"] for record in warm), 3),
        "max_memory_mb": measured.peak_mb,
    }
