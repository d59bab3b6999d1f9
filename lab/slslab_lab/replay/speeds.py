"""The processor speed at which a replay takes as long as the measurement."""

from collections.abc import Callable
from functools import cache

# The range of speeds to search, and the relative error at which the search stops.
SLOWEST, FASTEST, PRECISION = 1 / 64, 64.0, 1e-4


def find_speed(excess: Callable[[float], float]) -> float:
    """Return the speed at which `excess`, which falls as the speed grows, becomes 0.

    If it is above 0 at every speed, return the fastest; if it is below 0 at every speed, the slowest. Time is nearly
    linear in the inverse of the speed, so Brent's method (1973) searches over that and needs few tries.
    """
    from scipy.optimize import brentq

    excess_at = cache(excess)
    if excess_at(FASTEST) >= 0:
        return FASTEST
    if excess_at(SLOWEST) <= 0:
        return SLOWEST
    return 1 / float(brentq(lambda inverse: excess_at(1 / inverse), 1 / FASTEST, 1 / SLOWEST, rtol=PRECISION))
