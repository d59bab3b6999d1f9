"""All workers of an architecture in one process: the same minibatches, gradients, sums and updates, and nothing else.

No function, store or queue takes part, so it tells what an architecture learns and not how long that takes. Equal plans
give the same bits as the distributed run, whose own code does the arithmetic.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from slslab_workers import gradients, training
from slslab_workers.plan import Plan, thread_count
from slslab_workers.samples import Samples
from slslab_workers.training import WorkerState


@dataclass(frozen=True)
class Epoch:
    """What training an epoch gave.

    The mean loss of its minibatches and how many these were; how often the model has been updated since the
    beginning; how many significant updates were sent, None where no filter decides that; how long gradients took, s.
    """

    loss: float
    minibatches: int
    updates: int
    sent: int | None
    compute_s: float


@dataclass(frozen=True)
class Judgement:
    """A model on the test images: accuracy (0..1) and mean loss; and its loss on held-out ones, if there are any."""

    accuracy: float
    loss: float
    validation_loss: float | None

    @property
    def stopping_loss(self) -> float:
        """The loss by which training stops."""
        return self.loss if self.validation_loss is None else self.validation_loss


class Replicas:
    """n logical workers that update in every step with the mean of their gradients; rooms that do otherwise inherit.

    Workers that start equal stay equal, and share one model and optimiser; buffers (BatchNorm statistics) are each
    worker's own. The model lives on `device`, all that is exchanged in the host's memory. `heard` is called after
    every minibatch.
    """

    def __init__(
        self, plan: Plan, samples: Samples, device: str = "cpu", heard: Callable[[], None] = lambda: None
    ) -> None:
        torch.set_num_threads(thread_count(plan.memory_mb))
        self.plan = plan
        self.samples = samples
        self.device = torch.device(device)
        # Why training ends before the plan's last step, if the room ends it.
        self.ended: str | None = None
        self.shared = plan.options.get("replicas", "seeded") == "seeded"
        self.states = self._fresh()
        self._heard = heard
        self._buffers = [_copy_buffers(state.model) for state in self.states]
        self._indices: tuple[int, NDArray[np.int64]] | None = None
        self._losses: list[float] = []
        self._compute_s = 0.0

    @staticmethod
    def check(plan: Plan) -> None:
        """PlanError for what one process cannot tell."""

    @property
    def position(self) -> int:
        """Steps done."""
        return self.states[0].position

    def train_epoch(self) -> Epoch:
        """Train to the end of the epoch, or to where the room ends training."""
        self._losses, self._compute_s = [], 0.0
        while self.ended is None:
            self.advance()
            if self.position % self.plan.batches == 0:
                break
        count = len(self._losses)
        return Epoch(statistics.fmean(self._losses), count, self.states[0].updates, self.sent(), self._compute_s)

    def advance(self) -> None:
        """Train to the next point at which the workers synchronise: one step."""
        epoch, step = divmod(self.position, self.plan.batches)
        self.synchronise(self.gradient(rank, epoch, step) for rank in range(self.plan.workers))
        for state in self.states:
            state.position += 1

    def synchronise(self, parts: Iterator[torch.Tensor]) -> None:
        """Take the gradients (P,) of a step in rank order, and update, or not."""
        self.update(gradients.mean_in_rank_order(parts))

    def update(self, aggregate: torch.Tensor) -> None:
        """One step of every worker's optimiser with an aggregate (P,)."""
        for state in islice(self.states, 1 if self.shared else None):
            state.update(aggregate)
        for state in self.states:
            state.updates = self.states[0].updates

    def sent(self) -> int | None:
        """How many significant updates were sent in this epoch, where a filter decides that."""
        return None

    def judge(self) -> Judgement:
        """Evaluate the parameters and buffers that the room stores after an epoch: those of rank 0."""
        model = self.turn_to(self.judging_rank())
        dataset, validation = self.samples.dataset, self.samples.validation
        accuracy, loss = training.judge(model, dataset.test_images, dataset.test_labels, dataset.policy)
        held_out = training.judge(model, *validation, dataset.policy)[1] if validation is not None else None
        model.train()
        return Judgement(accuracy, loss, held_out)

    def judging_rank(self) -> int:
        """Whose buffers a model is evaluated with."""
        return 0

    def parameters(self, rank: int = 0) -> torch.Tensor:
        """A worker's parameters (P,) in the host's memory."""
        return gradients.flatten(self.states[rank].model.parameters()).cpu()

    def gradient(self, rank: int, epoch: int, step: int) -> torch.Tensor:
        """A worker's gradient (P,) of a minibatch, in the host's memory."""
        inputs, targets = self.samples.prepare(self._chosen(epoch)[rank, step], epoch, rank, step)
        model = self.turn_to(rank)
        began = time.monotonic()
        loss, gradient = self.compute(model, inputs.to(self.device), targets.to(self.device))
        gradient = gradient.cpu()
        self._compute_s += time.monotonic() - began
        self._losses.append(loss)
        self._heard()
        return gradient

    def compute(
        self, model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor
    ) -> tuple[float, torch.Tensor]:
        """Loss and gradient (P,) of a minibatch."""
        return training.compute_gradient(model, inputs, targets)

    def turn_to(self, rank: int) -> torch.nn.Module:
        """A worker's model, with its own buffers in it."""
        model = self.states[rank].model
        buffers = iter(self._buffers[rank])
        for module in model.modules():
            for name, _ in module.named_buffers(recurse=False):
                setattr(module, name, next(buffers))
        return model

    def to_bytes(self) -> Iterator[bytearray]:
        """Every worker's state in turn: what `restore` goes on with, bit for bit."""
        for rank, state in enumerate(self.states):
            self.turn_to(rank)
            yield state.to_bytes()

    def restore(self, bodies: Iterator[bytearray]) -> None:
        """Take over what `to_bytes` gave."""
        for rank, (state, body) in enumerate(zip(self.states, bodies, strict=True)):
            self.turn_to(rank)
            state.restore(body)

    def _fresh(self) -> list[WorkerState]:
        ranks = range(self.plan.workers)
        if not self.shared:
            return [self._on_device(rank) for rank in ranks]
        first = self._on_device(0)
        return [first, *(WorkerState(first.model, first.optimiser) for _ in ranks[1:])]

    def _on_device(self, rank: int) -> WorkerState:
        state = WorkerState.fresh(self.plan, rank)
        state.model.to(self.device)
        return state

    def _chosen(self, epoch: int) -> NDArray[np.int64]:
        if self._indices is None or self._indices[0] != epoch:
            self._indices = (epoch, self.samples.indices(epoch))
        return self._indices[1]


def _copy_buffers(model: torch.nn.Module) -> list[torch.Tensor]:
    """A network's buffers, module by module."""
    return [buffer.clone() for module in model.modules() for _, buffer in module.named_buffers(recurse=False)]
