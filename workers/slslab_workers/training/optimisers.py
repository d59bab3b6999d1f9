"""The optimisers by name: whatever architecture has an option `optimiser` offers them all."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import torch

from slslab_workers.option import choose
from slslab_workers.plan import Plan
from slslab_workers.training.options import OPTIMISER

Parameters = Iterator[torch.nn.Parameter]


def sgd(plan: Plan, parameters: Parameters) -> torch.optim.Optimizer:
    """Return SGD with the plan's rate, momentum and weight decay."""
    return torch.optim.SGD(parameters, lr=plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay)


def adam(plan: Plan, parameters: Parameters) -> torch.optim.Optimizer:
    """Return Adam with the plan's rate and otherwise PyTorch's defaults, as the released MLLess has it."""
    return torch.optim.Adam(parameters, lr=plan.lr)


OPTIMISERS: Mapping[str, Callable[[Plan, Parameters], torch.optim.Optimizer]] = MappingProxyType(
    {"sgd": sgd, "adam": adam}
)


def make_optimiser(plan: Plan, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser that the plan names, of all the model's parameters; raise PlanError for an unknown name."""
    return choose("optimiser", str(OPTIMISER.of(plan.options)), OPTIMISERS)(plan, model.parameters())
