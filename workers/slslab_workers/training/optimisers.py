"""The optimisers by name. Every architecture with an option `optimiser` offers all of them.

They call PyTorch's functions. PyTorch's classes import torch._dynamo at their first use, which takes every worker a
second of CPU time, as much as the rest of torch.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from slslab_workers.plan import Plan
from slslab_workers.training.options import OPTIMISER

Parameters = Iterable[torch.nn.Parameter]
Tensors = list[torch.Tensor]


class Optimiser:
    """Changes parameters by their gradients; `state` holds the values that it keeps for each parameter, by name."""

    def __init__(self, plan: Plan, parameters: Parameters) -> None:
        self.state: dict[torch.Tensor, dict[str, Any]] = defaultdict(dict)
        self._plan = plan
        self._parameters = list(parameters)

    def step(self) -> None:
        """Change every parameter that has a gradient."""
        found = [(parameter, parameter.grad) for parameter in self._parameters if parameter.grad is not None]
        with torch.no_grad():
            self.change([parameter for parameter, _ in found], [gradient for _, gradient in found])

    def change(self, changed: Tensors, slopes: Tensors) -> None:
        """Change these parameters by their gradients."""
        raise NotImplementedError


class Sgd(Optimiser):
    """SGD with the plan's rate, momentum and weight decay."""

    def change(self, changed: Tensors, slopes: Tensors) -> None:
        # With momentum, the first step fills them.
        velocities = [self.state[parameter].get("momentum_buffer") for parameter in changed]
        settings: dict[str, Any] = {name: getattr(self._plan, name) for name in ("lr", "momentum", "weight_decay")}
        sgd(changed, slopes, velocities, dampening=0, nesterov=False, maximize=False, **settings)
        for parameter, velocity in zip(changed, velocities, strict=True):
            self.state[parameter]["momentum_buffer"] = velocity


class Adam(Optimiser):
    """Adam with the plan's rate and PyTorch's other defaults, as in Barrak et al.'s released code."""

    def change(self, changed: Tensors, slopes: Tensors) -> None:
        for parameter in changed:
            if not self.state[parameter]:
                zeros = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                self.state[parameter] = {"step": torch.tensor(0.0), **zeros}
        names = ("exp_avg", "exp_avg_sq", "step")
        means, squares, steps = ([self.state[parameter][name] for parameter in changed] for name in names)
        defaults: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
        adam(changed, slopes, means, squares, [], steps, amsgrad=False, maximize=False, lr=self._plan.lr, **defaults)


OPTIMISERS: Mapping[str, Callable[[Plan, Parameters], Optimiser]] = MappingProxyType({"sgd": Sgd, "adam": Adam})


def make_optimiser(plan: Plan, model: torch.nn.Module) -> Optimiser:
    """Return the plan's optimiser for all of the model's parameters."""
    return OPTIMISERS[str(OPTIMISER.of(plan.options))](plan, model.parameters())
