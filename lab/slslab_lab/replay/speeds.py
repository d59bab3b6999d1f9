"""Profiles with other speeds, and the processor speed at which a replay takes as long as the measurement."""

import math
from collections.abc import Callable

from slslab.predict.profiles.profile import Figure, Profile

# The range of speeds to search, and the ratio at which the search stops.
SLOWEST, FASTEST, PRECISION = 1 / 64, 64.0, 1e-4


def with_figures(profile: Profile, channel: str, name: str, change: Callable[[Figure], Figure]) -> Profile:
    """Return the profile with one figure of a channel's operations changed: latency_ms, or bandwidth_mb_s where it
    exists."""
    known = profile.channels[channel]
    operations = {
        of: operation.model_copy(update={name: (figure := getattr(operation, name)) and change(figure)})
        for of, operation in known.operations.items()
    }
    changed = known.model_copy(update={"operations": operations})
    return profile.model_copy(update={"channels": {**profile.channels, channel: changed}})


def find_speed(excess: Callable[[float], float]) -> float:
    """Return the speed at which `excess`, which falls as the speed grows, becomes 0, or the end that comes closest.

    The false position method with Illinois's halving (Dowell and Jarratt 1971), over the inverse of the speed.
    """
    low, high = 1 / FASTEST, 1 / SLOWEST
    below, above = excess(FASTEST), excess(SLOWEST)
    if below >= 0 or above <= 0:
        return FASTEST if below >= 0 else SLOWEST
    # Keep each try this far from both ends, so that the end on the root's other side moves closer, too.
    least, was_above = 1 + PRECISION / 2, None
    while high / low > 1 + PRECISION:
        middle = low - below * (high - low) / (above - below)
        middle = min(max(middle, low * least), high / least)
        found = excess(1 / middle)
        again = (found > 0) is was_above
        if found > 0:
            high, above, below = middle, found, below / 2 if again else below
        else:
            low, below, above = middle, found, above / 2 if again else above
        was_above = found > 0
    return 1 / math.sqrt(low * high)
