"""Find limits that a run keeps here but may exceed on Lambda, or the reverse: 10 s of init, a function's timeout.

While a run is recorded, limits count in the recording host's seconds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from slslab.aws.limits import lambda_limits
from slslab.predict.uncertainty import Uncertainty
from slslab.run.document import Crossing

INIT, TIMEOUT = "init of ", "duration of "
Figures = Mapping[str, float]


def longest(invocations: Iterable[tuple[str, float | None, float]]) -> dict[str, float]:
    """Return the seconds of each function's longest init and invocation, as named figures.

    `invocations` are functions, with the milliseconds of their init (None or 0 without one) and of their duration.
    """
    found: dict[str, float] = {}
    for function, init_ms, duration_ms in invocations:
        for name, ms in ((INIT + function, init_ms or 0.0), (TIMEOUT + function, duration_ms)):
            found[name] = max(found.get(name, 0.0), ms / 1000)
    return found


def crossings(
    played: Figures, uncertainties: Mapping[str, Uncertainty], records: Sequence[Mapping[str, Any]], timeout_s: float
) -> Iterator[Crossing]:
    """Yield the limits that a run kept here although its 80 % range on Lambda exceeds them, and the reverse.

    `played` comes from `longest`, and `uncertainties` are its figures'; `records` are the run's metered invocations.
    """
    here = longest((record["function"], record["init_ms"], record["duration_ms"]) for record in records)
    limits = {INIT: lambda_limits().init_s, TIMEOUT: timeout_s}
    for name, value in played.items():
        prefix = INIT if name.startswith(INIT) else TIMEOUT
        limit_s, function = limits[prefix], name.removeprefix(prefix)
        low, high = uncertainties[name].around(value)
        kept = here.get(name, 0.0) <= limit_s and not _exceeded(records, function, prefix)
        if high > limit_s if kept else low <= limit_s:
            yield {
                "function": function,
                "limit": "init" if prefix == INIT else "timeout",
                "limit_seconds": limit_s,
                "kept_here": kept,
                "low": float(f"{low:.6g}"),
                "high": float(f"{high:.6g}"),
            }


def _exceeded(records: Iterable[Mapping[str, Any]], function: str, prefix: str) -> bool:
    """Return whether a function exceeded a limit here: it repeated its init in the invocation, or timed out."""
    own = (record for record in records if record["function"] == function)
    if prefix == INIT:
        return any(record["cold_start"] and record["init_ms"] is None for record in own)
    return any(record["error_type"] == "Sandbox.Timedout" for record in own)
