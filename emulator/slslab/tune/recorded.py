"""Answer from the records of `slslab up` alone, without invoking anything."""

from collections.abc import Mapping, Sequence
from typing import Any

from slslab.aws.limits import lambda_limits
from slslab.errors import RequestError
from slslab.predict.invocation import Record, match_requests
from slslab.report.formats import listed
from slslab.report.predictions import requests_of
from slslab.report.services import read_service
from slslab.run.bill import Book
from slslab.run.directory import RunDirectory
from slslab.run.metrics import grouped
from slslab.tune.document import describe
from slslab.tune.estimates import Estimator, Measured, Sample
from slslab.tune.function import OUT_OF_MEMORY, TIMED_OUT
from slslab.tune.tuning import SIZES, Sizes, choose_sizes

# Why a size is left out, by the error type of an invocation.
TOO_SMALL = {OUT_OF_MEMORY: "it ran out of memory", TIMED_OUT: "it timed out"}
# How many of the last warm invocations and cold starts of each size to use.
LAST = 100


def describe_recorded(
    directory: RunDirectory,
    about: Mapping[str, Any],
    function: str | None,
    kind: str | None,
    memory: str | None,
    deadline_s: float | None,
    book: Book,
) -> dict[str, Any]:
    """Return the document of a function's memory sizes. The sizes that it had count as measured.

    Sizes at which it ran out of memory or time are left out, even if other invocations succeeded there.

    RequestError if `function` isn't named and several were invoked, or if it was hardly invoked.
    """
    service = read_service(directory, about, kind)
    names = sorted({str(record["function"]) for record in service.invocations})
    name = function or (names[0] if len(names) == 1 else "")
    if name not in names:
        invoked = f"invoked were {listed(names)}" if names else "nothing was invoked"
        raise RequestError(f"Which function? In {directory.id} {invoked}.", "name one: --function NAME.")
    own = [record for record in service.invocations if record["function"] == name]
    matched = match_requests(own, requests_of(service.events))
    samples = [Sample(record, matched.get(place, ())) for place, record in enumerate(own)]
    measured = measured_sizes([sample for sample in samples if _usable(sample.record)])
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


def _usable(record: Record) -> bool:
    """Return whether an invocation succeeded, and its record has init's CPU time on its own (since 0.2)."""
    return record["error_type"] is None and (record["init_ms"] is None or record.get("init_cpu_ms") is not None)


def measured_sizes(samples: Sequence[Sample]) -> dict[int, Measured]:
    """Return the sizes with at least two warm invocations; each of these counts as a round."""
    sizes = {}
    for memory_mb, own in grouped((int(sample.record["memory_mb"]), sample) for sample in samples).items():
        warm = [sample for sample in own if not sample.record["cold_start"]][-LAST:]
        cold = [sample for sample in own if sample.record["cold_start"]][-LAST:]
        if len(warm) > 1:
            sizes[memory_mb] = Measured(memory_mb, [[sample] for sample in warm], cold)
    return sizes
