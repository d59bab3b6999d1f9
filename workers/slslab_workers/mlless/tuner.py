"""The scale-in auto-tuner's mathematics: is the loss flat, and would one worker less learn about as fast?

Follows the original MLLess (docs/protocols.md, "MLLess"). Imports neither torch nor scipy.
"""

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Curve = Callable[[Vector, Vector], tuple[Vector, Vector]]

KNEE_SPAN = 20
KNEE_SLOPE = -0.000075
KNEE_CHECKS = 5
# A removal disturbs the speed for this many steps.
SKIPPED_STEPS = 4
OUTLIER_WINDOW = 10
OUTLIER_SHARE = 0.05
PROJECTION_S = 10.0
# A curve with four coefficients needs at least four points.
MIN_POINTS = 4
EXPONENTS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
ASYMPTOTES = (0.0, 0.5, 0.75, 0.9, 0.97, 0.99, 0.997, 0.999, 0.9999)
POLISHED_STARTS = 4
ITERATIONS = 300


@dataclass(frozen=True)
class Decision:
    """A decision after a step of `workers`.

    The losses are projected 10 s ahead, with all workers and with the present ones; `r` is how much lower (negative:
    higher) the second is, per cent of the first. At the first removal, which only the knee at step `knee` causes, they
    have no values (None). `steps_per_second` is for all workers at the first removal, and for the present ones later.
    """

    step: int
    workers: int
    remove: bool
    knee: int
    steps_per_second: float
    r: float | None = None
    loss_base: float | None = None
    loss_now: float | None = None


@dataclass
class Knee:
    """The point where a learning curve becomes flat.

    It is the first index with a smoothed slope above -0.000075, once five looks have found no later one. `found` is
    that index.
    """

    candidate: int | None = None
    looks: int = 0
    found: int | None = None

    def look(self, losses: Sequence[float]) -> None:
        """Look at all losses so far, one more than last time. A curve that is flat from the start has no knee."""
        if self.found is not None or len(losses) < 3:
            return
        flat = np.flatnonzero(smoothed(np.diff(smoothed(losses))) > KNEE_SLOPE)
        if not len(flat) or flat[0] == 0:
            self.candidate = None
        elif self.candidate is None or flat[0] > self.candidate:
            self.candidate, self.looks = int(flat[0]), 0
        else:
            self.looks += 1
            if self.looks >= KNEE_CHECKS:
                self.found = int(flat[0])


@dataclass
class Tuner:
    """Records every step, and decides whether to remove a worker.

    `threshold` is in per cent, `interval_s` is the least time between two decisions, `clock` returns s; the last
    decision was at `decided`. The rest of its state is the learning curve since the last removal (`steps`, `losses`),
    `seconds` per step by number of workers, and in `base` the coefficients of the curve with all workers and their
    steps per second. `to_document` passes it on to the next invocation.
    """

    threshold: float
    interval_s: float
    workers: int
    clock: Callable[[], float] = time.time
    decided: float = math.nan
    knee: Knee = field(default_factory=Knee)
    skip: int = 0
    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    seconds: dict[int, list[float]] = field(default_factory=dict)
    base: tuple[list[float], float] | None = None

    def __post_init__(self) -> None:
        if math.isnan(self.decided):
            self.decided = self.clock()

    @classmethod
    def from_document(
        cls, document: Mapping[str, Any], threshold: float, interval_s: float, clock: Callable[[], float] = time.time
    ) -> Self:
        """Return the tuner that `to_document` described."""
        # An event has tuples instead of lists.
        curve = {name: list(document[name]) for name in ("steps", "losses")}
        seconds = {workers: list(times) for workers, times in document["seconds"]}
        read = {**document, **curve, "seconds": seconds, "knee": Knee(**document["knee"])}
        return cls(threshold, interval_s, clock=clock, **read)

    def to_document(self) -> dict[str, Any]:
        """Return a mapping safe for JSON: about 40 bytes a step until the first removal, and 10 afterwards."""
        given = ("threshold", "interval_s", "clock")
        kept = {name: value for name, value in asdict(self).items() if name not in given}
        return {**kept, "seconds": list(self.seconds.items())}

    def record(self, step: int, loss: float, seconds: float | None) -> None:
        """Record a step's mean loss if it is finite, and its seconds if they are known."""
        if math.isfinite(loss):
            self.steps.append(step)
            self.losses.append(loss)
            if self.base is None:
                self.knee.look(self.losses)
        if self.skip:
            self.skip -= 1
        elif seconds is not None and 0 < seconds < math.inf:
            # Rounded to a microsecond, because all of them travel from invocation to invocation.
            self.seconds.setdefault(self.workers, []).append(round(seconds, 6))

    def decide(self, step: int) -> Decision | None:
        """Return the decision after the last recorded step; None if there can't be one.

        It takes two workers, the knee, the interval, and enough steps and regular times for the curves.
        """
        now = self.clock()
        early = self.knee.found is None or now - self.decided < self.interval_s
        if self.workers < 2 or early or not self.steps or self.steps[-1] != step:
            return None
        decision = self._decision(step)
        if decision is not None:
            self.decided = now
            if decision.remove:
                self.workers -= 1
                self.skip = SKIPPED_STEPS
                self.steps, self.losses = [], []
        return decision

    def _decision(self, step: int) -> Decision | None:
        # The speed first: it is quicker to fit, and without it no curve helps.
        a, b = fit_seconds(self.seconds) or (0.0, 0.0)
        seconds = a + (self.workers - 1) * b
        if seconds <= 0:
            return None
        curve = (fit_base if self.base is None else fit_recent)(self.steps, self.losses)
        if curve is None:
            return None
        speed, knee = 1 / seconds, int(self.knee.found or 0)
        if self.base is None:
            self.base = (curve.tolist(), speed)
            return Decision(step, self.workers, True, knee, speed)
        coefficients, base_speed = self.base
        loss_base = project(base_curve, np.array(coefficients), step, base_speed)
        loss_now = project(recent_curve, curve, step, speed)
        if not (0 < loss_base < math.inf and loss_now < math.inf):
            return None
        r = 100 * (loss_base - loss_now) / loss_base
        return Decision(step, self.workers, r > -self.threshold, knee, speed, r, loss_base, loss_now)


def smoothed(values: Sequence[float] | Vector) -> Vector:
    """Return (N,) values averaged exponentially, span 20, from both ends; the two averages' mean."""
    return (_weighted_average(values) + _weighted_average(values[::-1])[::-1]) / 2


def _weighted_average(values: Sequence[float] | Vector) -> Vector:
    """Return averages with weights (1 - α)^age, normalised, α = 2 / (span + 1)."""
    count = len(values)
    # A value older than 400 weighs less than the last bit of a sum.
    weights = (1 - 2 / (KNEE_SPAN + 1)) ** np.arange(min(count, 400))
    totals = np.cumsum(weights)[np.minimum(np.arange(count), len(weights) - 1)]
    averages: Vector = np.convolve(values, weights)[:count] / totals
    return averages


def without_outliers(seconds: Sequence[float]) -> Vector:
    """Return the values within 5 % of the rolling median of ten, or all if there are fewer than ten.

    The first nine don't have such a median and are compared with the tenth's.
    """
    values = np.asarray(seconds, np.float64)
    if len(values) < OUTLIER_WINDOW:
        return values
    medians = np.median(np.lib.stride_tricks.sliding_window_view(values, OUTLIER_WINDOW), axis=1)
    medians = np.concatenate([np.full(OUTLIER_WINDOW - 1, medians[0]), medians])
    return values[np.abs(values - medians) <= OUTLIER_SHARE * values]


def fit_seconds(seconds: Mapping[int, Sequence[float]]) -> tuple[float, float] | None:
    """Return the speed curve's a and b, s: a step of w workers takes a + (w - 1) b; None without times.

    The original's T(w) = a + (w - 1) b + w c has no third degree of freedom: a and b can absorb c.
    """
    kept = {workers: without_outliers(times) for workers, times in seconds.items()}
    counts = np.concatenate([np.full(len(times), workers, float) for workers, times in kept.items()] or [np.empty(0)])
    if not len(counts):
        return None
    columns = np.stack([np.ones(len(counts)), counts - 1], axis=1)
    a, b = non_negative_least_squares(columns, np.concatenate(list(kept.values())))
    return float(a), float(b)


def base_curve(coefficients: Vector, x: Vector) -> tuple[Vector, Vector]:
    """Return f(x) = 1 / (c0 x^c2 + c1) + c3 of steps (N,), and its derivatives by the coefficients (N, 4)."""
    c0, c1, c2, c3 = coefficients
    power = np.power(x, c2)
    inverse = 1 / (c0 * power + c1)
    logarithm = np.log(x, out=np.zeros_like(x), where=x > 0)
    square = inverse**2
    return inverse + c3, np.stack([-power * square, -square, -c0 * power * logarithm * square, np.ones_like(x)], axis=1)


def recent_curve(coefficients: Vector, x: Vector) -> tuple[Vector, Vector]:
    """Return g(x) = 1 / (c0 x² + c1 x + c2) + c3 of steps (N,), and its derivatives by the coefficients (N, 4)."""
    c0, c1, c2, c3 = coefficients
    inverse = 1 / (c0 * x**2 + c1 * x + c2)
    square = inverse**2
    return inverse + c3, np.stack([-(x**2) * square, -x * square, -square, np.ones_like(x)], axis=1)


def fit_base(steps: Sequence[int], losses: Sequence[float]) -> Vector | None:
    """Return non-negative coefficients (4,) of `base_curve`. A step's weight is its index, from one."""
    powers: dict[float | None, tuple[float, ...]] = {exponent: (exponent, 0.0) for exponent in EXPONENTS}
    best, scale = _fit(base_curve, steps, losses, np.arange(1.0, len(losses) + 1), powers)
    if best is None:
        return None
    with np.errstate(over="ignore"):
        unit = scale ** best[2]
    # An infinite unit means that this curve doesn't exist.
    return best / np.array([unit, 1.0, 1.0, 1.0]) if math.isfinite(unit) else None


def fit_recent(steps: Sequence[int], losses: Sequence[float]) -> Vector | None:
    """Return non-negative coefficients (4,) of `recent_curve`. All steps weigh the same."""
    best, scale = _fit(recent_curve, steps, losses, np.ones(len(losses)), {None: (2.0, 1.0, 0.0)})
    return None if best is None else best / np.array([scale**2, scale, 1.0, 1.0])


def project(curve: Curve, coefficients: Vector, step: int, steps_per_second: float) -> float:
    """Return a curve's loss at the whole step that is reached in ten seconds."""
    ahead = np.array([float(int(step + steps_per_second * PROJECTION_S))])
    with np.errstate(all="ignore"):
        return float(curve(coefficients, ahead)[0][0])


def non_negative_least_squares(columns: Vector, y: Vector) -> Vector:
    """Return non-negative coefficients (K,) that bring columns (N, K) nearest to y (N,).

    Some of them are zero; the others are the ordinary solution without those. K is small, so every choice is tried.
    """
    count = columns.shape[1]
    best, least = np.zeros(count), float(y @ y)
    for size in range(1, count + 1):
        for chosen in map(list, itertools.combinations(range(count), size)):
            part = np.linalg.lstsq(columns[:, chosen], y, rcond=None)[0]
            residual = y - columns[:, chosen] @ part
            if part.min() >= 0 and (error := float(residual @ residual)) < least:
                best, least = np.zeros(count), error
                best[chosen] = part
    return best


def fit_non_negative(
    curve: Curve, start: Vector, x: Vector, y: Vector, weights: Vector, iterations: int = ITERATIONS
) -> tuple[Vector, float]:
    """Return non-negative coefficients near `start` that bring a curve nearest to y (N,), and the weighted squared
    error.

    This is the method of Levenberg and Marquardt, with steps cut off at zero: a coefficient at zero stays there if its
    step is negative.
    """

    def weighted(at: Vector) -> tuple[Vector, Vector, float]:
        values, derivatives = curve(at, x)
        residual = weights * (y - values)
        error = float(residual @ residual)
        return residual, weights[:, None] * derivatives, error if math.isfinite(error) else math.inf

    with np.errstate(all="ignore"):
        coefficients = start
        residual, jacobian, error = weighted(coefficients)
        damping = 1e-3
        for _ in range(iterations):
            if not math.isfinite(error) or damping > 1e12:
                break
            downhill = jacobian.T @ residual
            free = np.flatnonzero((coefficients > 0) | (downhill > 0))
            normal = (jacobian.T @ jacobian)[np.ix_(free, free)]
            diagonal = np.maximum(np.diag(normal), 1e-300)
            step = np.zeros_like(coefficients)
            # Scaled to ones on the diagonal, so that the coefficients' units don't matter.
            unit = np.sqrt(diagonal)
            system = normal / np.outer(unit, unit) + damping * np.eye(len(free))
            if not len(free) or not np.isfinite(system).all():
                break
            step[free] = np.linalg.lstsq(system, downhill[free] / unit, rcond=None)[0] / unit
            tried = np.maximum(coefficients + step, 0.0)
            new_residual, new_jacobian, new_error = weighted(tried)
            if new_error >= error:
                damping *= 4
                continue
            small = error - new_error <= 1e-13 * error
            coefficients, residual, jacobian, error = tried, new_residual, new_jacobian, new_error
            damping = max(damping / 5, 1e-12)
            if small:
                break
    return coefficients, error


def _fit(
    curve: Curve,
    steps: Sequence[int],
    losses: Sequence[float],
    weights: Vector,
    powers: Mapping[float | None, tuple[float, ...]],
) -> tuple[Vector | None, float]:
    """Return a curve's coefficients (4,) for steps divided by the last one, if there are enough, and the last one:
    powers of large steps would lose precision.

    The fit starts from curves with these powers of a step, by the coefficient that is their exponent, if one is.
    """
    y = np.asarray(losses, np.float64)
    if len(y) < MIN_POINTS:
        return None, 1.0
    scale = max(float(steps[-1]), 1.0)
    x = np.asarray(steps, np.float64) / scale
    starts: list[Vector] = []
    for exponent, own in powers.items():
        columns = np.power(x[:, None], own)
        linear = [_linearised(columns, y, weights, share) for share in ASYMPTOTES]
        starts += linear if exponent is None else [np.insert(start, 2, exponent) for start in linear]
    promising = sorted(starts, key=lambda start: fit_non_negative(curve, start, x, y, weights, 0)[1])
    ends = [fit_non_negative(curve, start, x, y, weights) for start in promising[:POLISHED_STARTS]]
    best, error = min(ends, key=lambda end: end[1])
    return best if math.isfinite(error) else None, scale


def _linearised(columns: Vector, y: Vector, weights: Vector, share: float) -> Vector:
    """Return coefficients (K + 1,): 1 / (y - c3) in columns (N, K), then c3, this share of the least y."""
    asymptote = max(share * float(y.min()), 0.0)
    above = np.maximum(y - asymptote, 1e-12)
    # This turns an error of the inverse into one of y.
    factors = weights * above**2
    return np.append(non_negative_least_squares(columns * factors[:, None], factors / above), asymptote)
