"""How far a busy host may have changed a recording's CPU seconds, as standard deviations of their logarithm.

They widen every figure's range, as part of this machine's processor. A recording knows three things about its host: how
much work of one kind differed between steps or environments, how often other processes took the processors, and how
often the hypervisor gave them to other guests.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slslab.predict.processor import Processor
from slslab.run.document import AloneKind
from slslab.run.metrics import grouped
from slslab_workers.trace.kinds import INIT, KINDS, Kind, kind_of

# Measured next to 8 busy loops or 4 processes that copy memory, on two hosts of two processors on 28 November 2026: the
# root mean square of the logarithm by which CPU seconds of sorts, hashes, additions, copies and convolutions changed (8
# medians at the highest priority, x 0.77 to 1.03; 14 at the normal one, x 0.82 to 1.30), divided by the 0.8 of the time
# for which such a load delays other work.
NEIGHBOURS = {"high": 0.12, "normal": 0.19}
# The quartiles of a normal distribution are this many standard deviations apart.
QUARTILES = 1.349
# The quartiles of this many values or fewer are half of their range apart.
FEW = 3


def widen(
    processor: Processor, alone: Mapping[str, Any] | None, delayed_share: float, stolen_share: float
) -> Processor:
    """Return the processor with deviations that include the host's disturbance during a recording.

    `alone` is the document's solo profile, if the recording uses its CPU seconds. Otherwise the run's own count:
    `delayed_share` is the share of the run's time for which this host delayed it, and `stolen_share` the share of the
    processors' work time for which the hypervisor ran other guests.
    """
    spreads: dict[Kind, float] = {}
    if alone is None or alone["status"] != "measured":
        common = _neighbours("normal", delayed_share, stolen_share)
    else:
        held_up = max(1 - 1 / max(1.0, alone["probe_ratio"]), alone["delayed_share"])
        common = _neighbours(alone.get("priority", "normal"), held_up, alone.get("stolen_share", 0.0))
        spreads = _spreads(alone["kinds"])
    found = {kind: math.hypot(common, spreads.get(kind, 0.0)) for kind in KINDS}
    return replace(
        processor,
        factors={kind: factor.scaled(1.0, "host", found[kind]) for kind, factor in processor.factors.items()},
        unknown=processor.unknown.scaled(1.0, "host", max(found.values())),
    )


def _neighbours(priority: str, held_up: float, stolen: float) -> float:
    """Return the effect of other processes and guests; half of the stolen time is one standard deviation."""
    return math.hypot(NEIGHBOURS[priority] * held_up, math.log1p(-min(stolen, 0.99)) / 2)


def _spreads(kinds: Sequence[AloneKind]) -> dict[Kind, float]:
    """Return how much steps of each kind of work differed, weighted by their CPU seconds.

    A busy host makes them differ together, so their spreads add up. For few steps it is half of the range.
    """
    measured = grouped(
        (INIT if one["op"] == "environment.start" else kind_of(one["op"]), _weighted_spread(one))
        for one in kinds
        if one["cpu_seconds"]["lower"] > 0
    )
    return {
        kind: sum(seconds * spread for seconds, spread in found) / sum(seconds for seconds, _ in found)
        for kind, found in measured.items()
    }


def _weighted_spread(one: AloneKind) -> tuple[float, float]:
    """Return the CPU seconds of a kind of step, and by how much its steps differed."""
    quartiles = one["cpu_seconds"]
    spread = math.log(quartiles["upper"] / quartiles["lower"])
    return one["count"] * quartiles["median"], spread / (1 if one["count"] <= FEW else QUARTILES)
