"""Find limits that a run keeps here but may exceed on Lambda, or the reverse: 10 s of init, a function's timeout."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from slslab.aws.limits import lambda_limits
from slslab.predict.uncertainty import Uncertainty
from slslab.run.document import Crossing
from slslab_lab.replay.outcome import Invocation

INIT, TIMEOUT = "init of ", "duration of "
Figures = Mapping[str, float]


def longest(invocations: Iterable[Invocation]) -> dict[str, float]:
    """Return the seconds of each function's longest played init and invocation, as named figures."""
    return _most(
        pair
        for one in invocations
        for pair in ((INIT + one.function, one.init_ms or 0.0), (TIMEOUT + one.function, one.duration_ms))
    )


def crossings(
    played: Figures, uncertainties: Mapping[str, Uncertainty], records: Sequence[Mapping[str, Any]], timeout_s: float
) -> Iterator[Crossing]:
    """Yield the limits that a run kept here although its 80 % range on Lambda exceeds them, and the reverse."""
    here = _most(_recorded(records))
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


def _recorded(records: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    for record in records:
        yield INIT + record["function"], record["init_ms"] or 0.0
        yield TIMEOUT + record["function"], record["duration_ms"]


def _exceeded(records: Iterable[Mapping[str, Any]], function: str, prefix: str) -> bool:
    """Return whether a function exceeded a limit here: it repeated its init in the invocation, or timed out."""
    own = (record for record in records if record["function"] == function)
    if prefix == INIT:
        return any(record["cold_start"] and record["init_ms"] is None for record in own)
    return any(record["error_type"] == "Sandbox.Timedout" for record in own)


def _most(milliseconds: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in milliseconds:
        found[name] = max(found.get(name, 0.0), value / 1000)
    return found
