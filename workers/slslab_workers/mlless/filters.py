"""Significance filters: a worker sends the significant part of its gradients and keeps the rest as residual.

With every filter, everything sent plus the residual is the sum of the worker's gradients.
"""

import math
from collections.abc import Mapping

import torch

from slslab_workers.plan import Plan
from slslab_workers.training import gradients
from slslab_workers.training.state import WorkerState

EPSILON = 1e-8
RESIDUAL, SIGNIFICANCE = "residual", "significance"


class Filter:
    """Sends every gradient, as in the authors' released code. Other filters keep a memory in the worker's state."""

    def __init__(self, threshold: float, lr: float) -> None:
        self._threshold = threshold
        self._lr = lr

    def significant(self, state: WorkerState, gradient: torch.Tensor, step: int) -> torch.Tensor | None:  # noqa: ARG002
        """Return the update to send, in the filter's encoding, or None; `step` counts from the start of the run."""
        return gradient

    def decode(self, stored: torch.Tensor, parameters: int) -> torch.Tensor:  # noqa: ARG002
        """Return the update (P,) that was sent."""
        return stored


class NormRatio(Filter):
    """The filter in the authors' code: all or nothing, depending on the residual's size against the model.

    The residual a sums the gradients since the last send. In every step V grows by (‖a‖ + ε) / (‖w‖ + ε); when V is
    above the threshold, all of a is sent (docs/protocols.md, "MLLess").
    """

    def significant(self, state: WorkerState, gradient: torch.Tensor, step: int) -> torch.Tensor | None:  # noqa: ARG002
        """Return the whole residual, or None."""
        residual = _accumulate(state, gradient)
        weights = gradients.flatten(state.model.parameters()).cpu()
        ratio = (float(residual.norm()) + EPSILON) / (float(weights.norm()) + EPSILON)
        before = state.memory.get(SIGNIFICANCE)
        # Sum and keep it as float32, as checkpoints do.
        total = torch.tensor([ratio]) if before is None else before + ratio
        if not float(total) > self._threshold:
            state.memory[SIGNIFICANCE] = total
            return None
        state.memory.clear()
        return residual


class Coordinate(Filter):
    """The original's filter: it sends coordinate j if the residual |r_j| > v / (lr · √(t + 1)) · |w_j|.

    lr · r is the change that plain SGD would make, which the original accumulates. The values and their indices are
    sent, 8 bytes a coordinate (docs/protocols.md, "MLLess").
    """

    def significant(self, state: WorkerState, gradient: torch.Tensor, step: int) -> torch.Tensor | None:
        """Return values and indices of the significant coordinates, or None."""
        residual = _accumulate(state, gradient)
        weights = gradients.flatten(state.model.parameters()).cpu()
        # The rate is on this side because its product with a tiny residual would be zero.
        limit = weights.abs_().mul_(self._threshold / (self._lr * math.sqrt(step + 1)))
        # An infinite threshold times a weight of zero is NaN, and no residual is above NaN.
        indices = (residual.abs() > limit).nonzero().reshape(-1)
        if not len(indices):
            return None
        values = residual[indices]
        residual[indices] = 0.0
        # Indices travel as the bits of floats, so that an update is one tensor.
        return torch.cat([values, indices.to(torch.int32).view(torch.float32)])

    def decode(self, stored: torch.Tensor, parameters: int) -> torch.Tensor:
        """Return the update (P,), with zeros for coordinates that weren't sent."""
        count = stored.numel() // 2
        update = torch.zeros(parameters)
        update[stored[count:].view(torch.int32).long()] = stored[:count]
        return update


FILTERS: Mapping[str, type[Filter]] = {"none": Filter, "norm-ratio": NormRatio, "coordinate": Coordinate}


def make_filter(plan: Plan) -> Filter:
    """Return the plan's filter."""
    return FILTERS[str(plan.options["filter"])](float(plan.options["threshold"]), plan.lr)


def _accumulate(state: WorkerState, gradient: torch.Tensor) -> torch.Tensor:
    residual = state.memory.get(RESIDUAL)
    residual = gradient.clone() if residual is None else residual.add_(gradient)
    state.memory[RESIDUAL] = residual
    return residual
