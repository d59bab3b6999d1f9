"""Step costs of a system with a model of any size, from recorded runs of a few models.

For requests, the CPU time of each kind is a + b·bytes over the recorded models (least squares of relative errors,
neither below 0). Other steps (forward and backward, sums, updates) are powers of the number of parameters between two
recorded models, and beyond them of the nearest two. All systems use forward and backward of AllReduce's recordings.
Minibatches take time in proportion to their images; the additional time of a first minibatch doesn't grow.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import nnls

from slslab.errors import RunError
from slslab_lab.replay.measured import Measured
from slslab_lab.replay.programs.step_costs import RATIO, Cost, Key, StepCosts, is_request
from slslab_lab.studies.atlas.recordings import COMPUTES, Recordings
from slslab_lab.studies.atlas.systems import System
from slslab_workers.architecture import Architecture
from slslab_workers.plan import Value

# Figures of a cost that are interpolated; for requests, `fixed` and `per_byte` are fitted instead.
FIGURES = ("fixed", "per_work", "server_fixed", "server_per_work", "bytes")
COMPUTE = "compute"
OF_REQUESTS = ("server_fixed", "server_per_work", "bytes")
# Operations whose CPU time grows with the samples of a minibatch.
SAMPLED = ("compute", "prepare")


@dataclass(frozen=True)
class Recorded:
    """One recorded model: its parameters, its steps' costs with minibatches of another size, and its run."""

    parameters: int
    costs: StepCosts
    run: Measured


@dataclass(frozen=True)
class SystemCosts:
    """A system's recorded models by rising size, its fitted request costs, and the models that give forward and
    backward.

    Forward and backward come from AllReduce, since they are the same in all architectures. So noise in one recording,
    or another range of recorded models, favours no system.
    """

    system: System
    models: Sequence[Recorded]
    channel: Sequence[Recorded]
    requests: Mapping[Key, Cost]
    computing: Sequence[Recorded]

    @property
    def architecture(self) -> Architecture:
        """Return the system's architecture."""
        return self.models[0].run.architecture

    @property
    def options(self) -> dict[str, Value]:
        """Return all options of the architecture, with the system's choices."""
        return self.architecture.complete(self.system.chosen)

    def at(self, parameters: int) -> StepCosts:
        """Return the costs with a model of `parameters` parameters."""
        nearest = self.nearest(parameters)
        costs: dict[Key, Cost] = {}
        for models in (self.channel, self.models):
            # The architecture's own recordings come last, to replace the entries that both have.
            costs |= self._between(models, parameters)
        computed = self._between(self.computing, parameters)
        taken = {key[1:]: cost.fixed for key, cost in computed.items() if key[1] == COMPUTE}
        costs = {key: replace(cost, fixed=taken.get(key[1:], cost.fixed)) for key, cost in costs.items()}
        workload = replace(nearest.costs.workload, parameters=parameters, options=self.options)
        return replace(nearest.costs, workload=workload, costs=costs)

    def nearest(self, parameters: int) -> Recorded:
        """Return the recorded model closest in size."""
        return min(self.models, key=lambda model: abs(math.log(model.parameters / parameters)))

    def peak_memory_mb(self, parameters: int) -> float:
        """Return a function's peak memory with a model of `parameters` parameters, from the recorded peaks; never less
        than the smallest of them."""
        peaks = [(model.parameters, float(model.run.peak_memory_mb)) for model in self.models]
        return max(min(peak for _, peak in peaks), power(peaks, parameters))

    def reasons(self, parameters: int, workers: int) -> list[str]:
        """Return why a point lies outside the recordings; empty if it doesn't."""
        reasons = []
        for what, models in (("model", self.models), (f"messages by {self.system.own_channel}", self.channel)):
            if models and not models[0].parameters <= parameters <= models[-1].parameters:
                sizes = dict.fromkeys(f"{4 * models[end].parameters / 1e6:.3g}" for end in (0, -1))
                reasons.append(f"{what} beyond the recorded {' to '.join(sizes)} MB")
        recorded = [model.run.plan.workers for model in (*self.models, *self.channel)]
        if workers > max(recorded):
            reasons.append(f"more workers than the recorded {max(recorded)}")
        return reasons

    def _between(self, models: Sequence[Recorded], parameters: int) -> dict[Key, Cost]:
        found: dict[Key, Cost] = {}
        for key in dict.fromkeys(key for model in models for key in model.costs.costs):
            having = [(model.parameters, model.costs.costs[key]) for model in models if key in model.costs.costs]
            figures = OF_REQUESTS if key in self.requests else FIGURES
            values: dict[str, Any] = {
                name: power([(size, getattr(cost, name)) for size, cost in having], parameters) for name in figures
            }
            found[key] = replace(self.requests.get(key, having[-1][1]), **values)
        return found


def measure(system: System, recordings: Recordings, batch_size: int) -> SystemCosts:
    """Return the costs of a system with minibatches of `batch_size` images; RunError without recordings of it."""
    models = [_recorded(run, batch_size) for run in recordings.architectures[system.architecture]]
    computing = [_recorded(run, batch_size) for run in recordings.architectures[COMPUTES]]
    channel = [_recorded(run, batch_size) for run in recordings.channels.get(system.own_channel, ())]
    if not models or (system.own_channel and not channel):
        raise RunError(f"Nothing was recorded for {system.name}.", "record it: slslab atlas --record --recordings DIR.")
    # The channel's own keys; all others belong to the architecture.
    own = {key for model in models for key in model.costs.costs}
    channel = [_without(model, own) for model in channel]
    keys = dict.fromkeys(key for model in (*channel, *models) for key in model.costs.costs if is_request(key[1]))
    requests = {
        key: _request([model.costs.costs[key] for model in (*channel, *models) if key in model.costs.costs])
        for key in keys
    }
    return SystemCosts(system, models, channel, requests, computing)


def _recorded(run: Measured, batch_size: int) -> Recorded:
    return Recorded(int(run.document["parameters"]), with_samples(run.costs, batch_size / run.plan.batch_size), run)


def with_samples(costs: StepCosts, samples: float) -> StepCosts:
    """Return the costs with minibatches that are `samples` times as large."""

    def scale(key: Key, cost: Cost) -> Cost:
        unit, op, phase, first = key
        if op in SAMPLED:
            usual = costs.costs.get((unit, op, phase, False), cost).fixed
            return replace(cost, fixed=cost.fixed + (samples - 1) * (min(usual, cost.fixed) if first else usual))
        if phase == "fetch" and is_request(op):
            return replace(cost, bytes=cost.bytes * samples)
        return cost

    return replace(costs, costs={key: scale(key, cost) for key, cost in costs.costs.items()})


def _without(model: Recorded, keys: set[Key]) -> Recorded:
    costs = {key: cost for key, cost in model.costs.costs.items() if key not in keys}
    return replace(model, costs=replace(model.costs, costs=costs))


def _request(recorded: Sequence[Cost]) -> Cost:
    sizes = [cost.bytes for cost in recorded]
    spent = [cost.fixed + cost.per_byte * cost.bytes for cost in recorded]
    largest = recorded[int(np.argmax(sizes))]
    if max(sizes) <= RATIO * min(sizes):
        return replace(largest, fixed=float(np.mean(spent)) - largest.per_byte * largest.bytes)
    fixed, per_byte = _line(sizes, spent)
    return replace(largest, fixed=fixed, per_byte=per_byte)


def _line(sizes: Sequence[float], spent: Sequence[float]) -> tuple[float, float]:
    """Return a and b of a + b·size, neither below 0, by least squares of relative errors."""
    weights = np.array([1 / max(1.0, ns) for ns in spent])
    scale = max(sizes)
    columns = np.column_stack([weights, weights * np.array(sizes) / scale])
    fixed, slope = nnls(columns, weights * np.array(spent))[0]
    return float(fixed), float(slope / scale)


def power(points: Sequence[tuple[int, float]], parameters: int) -> float:
    """Return the value at `parameters`: a power through the two neighbouring points (sorted by parameters), or the last
    two; a straight line where one is 0."""
    if len(points) == 1:
        return points[0][1]
    pairs = list(pairwise(points))
    (low, first), (high, second) = next((pair for pair in pairs if parameters <= pair[1][0]), pairs[-1])
    share = math.log(parameters / low) / math.log(high / low)
    if first > 0 and second > 0:
        return float(first * (second / first) ** share)
    return max(0.0, first + (second - first) * share)
