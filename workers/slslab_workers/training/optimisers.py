"""The optimisers by name. Every architecture with an option `optimiser` offers all of them.

They call PyTorch's functions. PyTorch's classes import torch._dynamo at their first use, which takes every worker a
second of CPU time, as much as the rest of torch.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from slslab_workers.option import choose
from slslab_workers.plan import Plan
from slslab_workers.training.options import OPTIMISER

Parameters = Iterable[torch.nn.Parameter]


class Optimiser(Protocol):
    """Changes parameters by their gradients; `state` holds the values that it keeps for each parameter, by name.

    PyTorch's optimisers fit this interface, too.
    """

    state: Any

    def step(self) -> object:
        """Change every parameter that has a gradient."""


class Sgd:
    """SGD with the plan's rate, momentum and weight decay."""

    def __init__(self, plan: Plan, parameters: Parameters) -> None:
        self.state: dict[torch.Tensor, dict[str, Any]] = defaultdict(dict)
        self._parameters = list(parameters)
        self._settings: dict[str, Any] = {"lr": plan.lr, "momentum": plan.momentum, "weight_decay": plan.weight_decay}

    def step(self) -> None:
        """Change every parameter that has a gradient."""
        changed, slopes = _with_gradients(self._parameters)
        # With momentum, the first step fills them.
        velocities = [self.state[parameter].get("momentum_buffer") for parameter in changed]
        with torch.no_grad():
            sgd(changed, slopes, velocities, dampening=0, nesterov=False, maximize=False, **self._settings)
        for parameter, velocity in zip(changed, velocities, strict=True):
            self.state[parameter]["momentum_buffer"] = velocity


class Adam:
    """Adam with the plan's rate and PyTorch's other defaults, as in the released MLLess."""

    def __init__(self, plan: Plan, parameters: Parameters) -> None:
        self.state: dict[torch.Tensor, dict[str, Any]] = defaultdict(dict)
        self._parameters = list(parameters)
        self._lr = plan.lr

    def step(self) -> None:
        """Change every parameter that has a gradient."""
        changed, slopes = _with_gradients(self._parameters)
        for parameter in changed:
            if not self.state[parameter]:
                zeros = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                self.state[parameter] = {"step": torch.tensor(0.0), **zeros}
        names = ("exp_avg", "exp_avg_sq", "step")
        means, squares, steps = ([self.state[parameter][name] for parameter in changed] for name in names)
        defaults: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
        with torch.no_grad():
            adam(changed, slopes, means, squares, [], steps, amsgrad=False, maximize=False, lr=self._lr, **defaults)


def _with_gradients(parameters: Parameters) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    found = [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]
    return [parameter for parameter, _ in found], [gradient for _, gradient in found]


OPTIMISERS: Mapping[str, Callable[[Plan, Parameters], Optimiser]] = MappingProxyType({"sgd": Sgd, "adam": Adam})


def make_optimiser(plan: Plan, model: torch.nn.Module) -> Optimiser:
    """Return the plan's optimiser for all of the model's parameters; raise PlanError for an unknown name."""
    return choose("optimiser", str(OPTIMISER.of(plan.options)), OPTIMISERS)(plan, model.parameters())
