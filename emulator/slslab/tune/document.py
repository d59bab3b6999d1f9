"""The answer to "which memory size?" as a document of JSON types, from new invocations or recorded ones."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from slslab.aws.limits import lambda_limits
from slslab.errors import RequestError
from slslab.predict.invocation import Request, match_requests
from slslab.report.formats import listed
from slslab.report.tuning import answers
from slslab.run.bill import DEFAULT_BOOK, Book, load_book
from slslab.run.directory import RunDirectory
from slslab.run.metrics import grouped
from slslab.run.predictions import predict, requests_of
from slslab.run.service import read_service
from slslab.tune.decision import GOALS, Estimate, best, excess, in_time
from slslab.tune.estimates import Estimator, Measured, Sample
from slslab.tune.tuning import (
    OUT_OF_MEMORY,
    SIZES,
    TIMED_OUT,
    Payload,
    Progress,
    Sizes,
    TunedFunction,
    choose_sizes,
    tune,
    weighted,
)

if TYPE_CHECKING:
    from slslab.lambda_.emulator import Emulator

SCHEMA = 1
MILLION = 1_000_000
# Why a size is left out, by the error type of an invocation. Records don't have the time-out.
TOO_SMALL = {OUT_OF_MEMORY: "it ran out of memory", TIMED_OUT: "it timed out"}
# How many of the last warm invocations and cold starts of each size to use.
LAST = 100


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
    ids = {record["request_id"] for record in records}
    used = [sample.record["request_id"] for measured in known.measured.values() for sample in measured.samples]
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
        "answers": {name: None if one is None else vars(one) for name, one in chosen.items()},
        "sizes": [_size(size, estimates, known) for size in known.sizes],
        "invocations": len(made),
        "cold_starts": sum(bool(record["cold_start"]) for record in records),
        "used_before": sum(request_id not in ids for request_id in used),
        "seconds": round(seconds, 3),
        "prices": {"name": estimator.book.name, "date": estimator.book.date.isoformat()},
        "predicted": tuning.document(tuning.bill(estimator.book)),
    }


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


def tune_in_test(
    emulator: "Emulator",
    client: Any,
    requests: Callable[[], Mapping[str, Sequence[Request]]],
    name: str,
    event: Any = None,
    *,
    events: Sequence[tuple[float, Any]] = (),
    sizes: Sequence[int] = (),
    kind: str | None = None,
    prices: str = DEFAULT_BOOK,
    **asked: Any,
) -> dict[str, Any]:
    """Tune a function; `asked` are `deadline_s` and `goal`. Return the document.

    `events` are weights and events, instead of one event; `sizes` are memory sizes, MB, by default the usual ones.
    `requests` returns each function's requests to S3 and SQS until now.
    """
    with emulator.recording() as records:
        function = TunedFunction(client, name, lambda: ([record.as_document() for record in records], requests()))
        payloads = weighted(events or [(1.0, event)])
        weights = [payload.weight for payload in payloads]
        cores = int(emulator.host()["cores"])
        estimator = Estimator(emulator.predictor(kind), load_book(prices), weights, cores)
        text = ",".join(map(str, sizes)) or None
        chosen = choose_sizes(text, SIZES, function.memory_mb, emulator.limits.memory_mb)
        known = Sizes(estimator, function.memory_mb, function.timeout_s, chosen)
        return tune_and_describe(function, known, payloads, **asked)


def find_fault(document: Mapping[str, Any], at_most: float) -> str | None:
    """Return why a function's memory size is wrong, None if it may cost at most this share more than the best."""
    own = next(size for size in document["sizes"] if size["memory_mb"] == document["memory_mb"])
    if "excess" in own and own["excess"]["low"] <= 1 + at_most:
        return None
    return "\n".join(answers(document))


def describe_recorded(
    directory: RunDirectory,
    about: Mapping[str, Any],
    function: str | None,
    kind: str | None,
    memory: str | None,
    deadline_s: float | None,
    book: Book,
) -> dict[str, Any]:
    """Return the document of a function's memory sizes from the record of `slslab up` alone.

    The sizes that it had count as measured. Sizes at which it ran out of memory or time are left out, even if
    other invocations succeeded there.

    RequestError if `function` isn't named and several were invoked, or if it was hardly invoked.
    """
    service = read_service(directory, about, kind)
    names = sorted({str(record["function"]) for record in service.invocations})
    name = function or (names[0] if len(names) == 1 else "")
    if name not in names:
        invoked = f"invoked were {listed(names)}" if names else "nothing was invoked"
        raise RequestError(f"Which function? In {directory.id} {invoked}.", "name one: --function NAME.")
    own = [record for record in service.invocations if record["function"] == name]
    samples = map(Sample, own, match_requests(own, requests_of(service.events)))
    measured = measured_sizes(sample for sample in samples if sample.record["error_type"] is None)
    if not measured:
        raise RequestError(
            f"{name} needs two successful warm invocations with the same memory size.",
            f"invoke it more often, or let slslab do that: slslab tune {name}",
        )
    limits, own_mb = lambda_limits(), int(own[-1]["memory_mb"])
    # The records don't tell the timeout.
    known = Sizes(
        Estimator(service.predictor_of(name), book, (1.0,), about["cores"]),
        own_mb,
        float(limits.timeout_s.maximum),
        choose_sizes(memory, (*SIZES, *measured), own_mb, limits.memory_mb),
        measured,
    )
    failed = {(int(record["memory_mb"]), record["error_type"]) for record in own if record["error_type"] in TOO_SMALL}
    for memory_mb, error_type in sorted(failed):
        known.too_small(memory_mb, TOO_SMALL[error_type])
    return describe(name, known, (), deadline_s, "cheapest", (), 0.0)


def measured_sizes(samples: Iterable[Sample]) -> dict[int, Measured]:
    """Return the sizes with at least two warm invocations; each of these counts as a round."""
    sizes = {}
    for memory_mb, own in grouped((int(sample.record["memory_mb"]), sample) for sample in samples).items():
        warm = [sample for sample in own if not sample.record["cold_start"]][-LAST:]
        cold = [sample for sample in own if sample.record["cold_start"]][-LAST:]
        if len(warm) > 1:
            sizes[memory_mb] = Measured(memory_mb, [[sample] for sample in warm], cold)
    return sizes
