"""A function's own training between two merges, and its validation. Functions and replicas use the same code."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Object
from slslab_workers.kubeml.settings import Tensors, Vector
from slslab_workers.kubeml.shares import minibatches
from slslab_workers.plan import Plan
from slslab_workers.training import datasets, evaluation, gradients, models
from slslab_workers.training import step as step_module
from slslab_workers.training.datasets import Inputs, Labels, Policy
from slslab_workers.training.sparse_rows import SparseRows
from slslab_workers.training.state import WorkerState


def read_tensors(model: torch.nn.Module) -> dict[str, Vector]:
    """Return a flat float32 copy of every entry of the model's state_dict, integers included."""
    entries: Mapping[str, torch.Tensor] = model.state_dict()
    return {name: entry.reshape(-1).to("cpu", torch.float32, copy=True).numpy() for name, entry in entries.items()}


def write_tensors(model: torch.nn.Module, tensors: Tensors) -> None:
    """Write every entry of the model's state_dict; means of integers are truncated."""
    for name, entry in model.state_dict().items():
        entry.copy_(torch.from_numpy(tensors[name]).view_as(entry))


def parameters_of(model: torch.nn.Module) -> torch.Tensor:
    """Return the model's parameters (P,) in the host's memory."""
    return gradients.flatten(model.parameters()).cpu()


class LocalTraining:
    """A function in one epoch: after each merge it trains by itself, with a new optimiser."""

    def __init__(self, plan: Plan, rank: int, epoch: int, state: WorkerState, tracer: Tracer) -> None:
        self.plan = plan
        self.rank = rank
        self.epoch = epoch
        self.state = state
        self.tracer = tracer
        # Number of minibatches so far in this epoch, which decides how images are augmented.
        self.step = 0

    def train(self, reference: Tensors, inputs: Inputs, labels: Labels, policy: Policy | None) -> Iterator[float]:
        """Train from the reference model, with samples in stored order; yield each minibatch's loss."""
        state, device = self.state, next(self.state.model.parameters()).device
        write_tensors(state.model, reference)
        state.optimiser.state.clear()
        state.model.train()
        for chosen in minibatches(len(labels), self.plan.batch_size):
            self.tracer.step = self.step
            with self.tracer.span("prepare", "fetch"):
                images, targets = datasets.prepare(
                    inputs[chosen], labels[chosen], policy, self.plan.seed, self.epoch, self.rank, self.step
                )
                images = models.arranged(images, self.plan.memory_format)
            with self.tracer.span("compute", "compute") as span:
                loss, gradient = step_module.compute_gradient(state.model, images.to(device), targets.to(device))
                span.loss = loss
            with self.tracer.span("update", "update"):
                state.update(gradient)
            self.step += 1
            yield loss


def validate(model: torch.nn.Module, inputs: Inputs, labels: Labels, policy: Policy | None) -> dict[str, Any]:
    """Return accuracy (0..1), mean loss and size of a function's share of the test samples."""
    accuracy, loss = evaluation.judge(model, inputs, labels, policy)
    return {"accuracy": accuracy, "loss": loss, "length": len(labels)}


def joined(documents: list[Object]) -> tuple[Inputs, Labels, Policy | None]:
    """Concatenate stored documents; return samples, labels, and how images become inputs."""
    decoded = (datasets.decode_minibatch(stored.body, stored.metadata) for stored in documents)
    inputs, labels, (policy, *_) = zip(*decoded, strict=True)
    if isinstance(inputs[0], SparseRows):
        lengths, columns, values = (
            np.concatenate([getattr(one, name) for one in inputs]) for name in ("lengths", "columns", "values")
        )
        return SparseRows.of(lengths, columns, values, inputs[0].width), np.concatenate(labels), policy
    return np.concatenate(inputs), np.concatenate(labels), policy
