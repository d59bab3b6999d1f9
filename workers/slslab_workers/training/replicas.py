"""All workers of an architecture in one process: the same minibatches, gradients, sums and updates, and nothing else.

It uses no function, store or queue, so it shows what an architecture learns, but not how long training takes. It runs
the arithmetic of the distributed run, so equal plans give the same bits.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice

import torch

from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import aggregation, algorithms, buffers, evaluation, gradients, robust
from slslab_workers.training.local import ModelAveraging
from slslab_workers.training.loop import Training
from slslab_workers.training.options import REPLICAS
from slslab_workers.training.samples import Samples
from slslab_workers.training.state import WorkerState


@dataclass(frozen=True)
class Epoch:
    """A trained epoch.

    The mean loss of its minibatches and their number; the number of model updates since the beginning; the number of
    significant updates sent, None without a filter; the time spent on gradients, s.
    """

    loss: float
    minibatches: int
    updates: int
    sent: int | None
    compute_s: float


@dataclass(frozen=True)
class Judgement:
    """A model's accuracy (0..1) and mean loss on the test images, and its loss on held-out images, if there are any."""

    accuracy: float
    loss: float
    validation_loss: float | None


class Replicas(Training):
    """n logical workers that apply the aggregate of their gradients in every step, or train locally between exchanges.

    Architectures that train differently subclass it. Workers that start and stay equal share one model and optimiser,
    but each has its own buffers (BatchNorm statistics). `trusted` is rank 0's minibatch. `on_minibatch` is called after
    every minibatch.
    """

    def __init__(
        self, plan: Plan, samples: Samples, device: str = "cpu", on_minibatch: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(plan, device)
        self.samples = samples
        self.shared = REPLICAS.of(plan.options) == "seeded" and self.local is None
        ranks = range(plan.workers)
        if self.shared:
            first = WorkerState.fresh(plan, 0, self.device)
            self.states = [first, *(WorkerState(first.model, first.optimiser) for _ in ranks[1:])]
        else:
            self.states = [WorkerState.fresh(plan, rank, self.device) for rank in ranks]
        self._on_minibatch = on_minibatch
        self._buffers = [[buffer.clone() for buffer in state.model.buffers()] for state in self.states]
        # All minibatches of an epoch need its indices.
        self._indices = lru_cache(maxsize=1)(samples.indices)
        self._losses: list[float] = []
        self._compute_s = 0.0
        if self.local is not None and self.local.starts_from_data:
            parameters = self.local.first(self.samples.prepare(self._indices(0)[0, 0], 0, 0, 0)[0])
            for state in self.states:
                gradients.write_parameters(state.model, parameters)
        self.begin()

    def begin(self) -> None:
        """Prepare what a subclass adds, before the first step; by default nothing."""

    @staticmethod
    def check(plan: Plan) -> None:
        """Raise PlanError for a plan that can't be trained in one process."""
        if algorithms.is_asynchronous(plan.options):
            raise PlanError(
                "What S-ASP learns depends on which worker is faster, but one process runs them in turns.",
                "train it with `slslab run`.",
            )

    @property
    def position(self) -> int:
        """Return the number of steps done."""
        return self.states[0].position

    def train_epoch(self) -> Epoch:
        """Train to the end of the epoch, or until the architecture ends training."""
        self._losses, self._compute_s = [], 0.0
        while self.ended is None:
            self.advance()
            if self.position % self.plan.batches == 0:
                break
        return Epoch(
            statistics.fmean(self._losses), len(self._losses), self.states[0].updates, self.sent(), self._compute_s
        )

    def advance(self) -> None:
        """Train to the next synchronisation of the workers: one step."""
        epoch, step = divmod(self.position, self.plan.batches)
        gradients_by_rank = self.sent_gradients(epoch, step)
        if self.local is None:
            aggregate = self.synchronise(map(self._with_buffers, count(), gradients_by_rank))
            if aggregate is not None:
                self.update(self._without_buffers(aggregate))
        else:
            self._train_locally(self.local, gradients_by_rank)
        for state in self.states:
            state.position += 1

    def sent_gradients(self, epoch: int, step: int) -> Iterator[torch.Tensor]:
        """Yield the vectors (P,) that the workers send in a step, in rank order: gradients, or attackers' replacements.

        An attack that needs the honest workers' gradients waits until all of them are known.
        """
        own = (self.gradient(rank, epoch, step) for rank in range(self.plan.workers))
        parts = (self.attack.gradient(rank, gradient, self.position) for rank, gradient in enumerate(own))
        if not self.attack.omniscient:
            yield from parts
            return
        computed, attackers = list(parts), self.attack.ranks
        made = self.attack.of_honest([part for rank, part in enumerate(computed) if rank not in attackers])
        yield from (made if rank in attackers else part for rank, part in enumerate(computed))

    def _train_locally(self, local: ModelAveraging, parts: Iterator[torch.Tensor]) -> None:
        for state, gradient in zip(self.states, parts, strict=True):
            corrected = local.correct(state, gradient)
            if corrected is not None:
                state.update(corrected)
        if local.exchanges_after(self.position):
            messages = map(self._with_buffers, count(), map(local.message, self.states))
            both = self.combine(aggregation.sum_in_rank_order(messages), self.plan.workers, self.plan.workers)
            aggregate = self._without_buffers(both)
            for state in self.states:
                local.receive(state, aggregate)
            self.ended = local.ended

    def synchronise(self, parts: Iterator[torch.Tensor]) -> torch.Tensor | None:
        """Return the aggregate (P,) of a step's gradients (P,), in rank order; None if there's nothing to apply."""
        if self.robust is not None:
            return robust.applied(self.plan, list(parts), self.states[0].model, self.trusted)
        return self.combine(aggregation.sum_in_rank_order(parts), self.plan.workers, self.plan.workers)

    def update(self, aggregate: torch.Tensor) -> None:
        """Take one step of every worker's optimiser with an aggregate (P,)."""
        for state in islice(self.states, 1 if self.shared else None):
            state.update(aggregate)
        for state in self.states:
            state.updates = self.states[0].updates

    def sent(self) -> int | None:
        """Return the number of significant updates sent in this epoch; None without a filter."""
        return None

    def judge(self) -> Judgement:
        """Evaluate the model that the architecture stores after an epoch, with the buffers of `judging_rank`."""
        model = self.turn_to(self.judging_rank())
        dataset, validation = self.samples.dataset, self.samples.validation
        accuracy, loss = evaluation.judge(model, dataset.test_images, dataset.test_labels, dataset.policy)
        held_out = evaluation.judge(model, *validation, dataset.policy)[1] if validation is not None else None
        model.train()
        return Judgement(accuracy, loss, held_out)

    def judging_rank(self) -> int:
        """Return the rank that provides the buffers for evaluation."""
        return 0

    def parameters(self, rank: int = 0) -> torch.Tensor:
        """Return a worker's parameters (P,), in the host's memory."""
        return gradients.flatten(self.states[rank].model.parameters()).cpu()

    def gradient(self, rank: int, epoch: int, step: int) -> torch.Tensor:
        """Fetch a worker's minibatch and compute its gradient (P,), in the host's memory."""
        inputs, targets = self.samples.prepare(self._indices(epoch)[rank, step], epoch, rank, step)
        inputs, targets = inputs.to(self.device), targets.to(self.device)
        if rank == 0 and self.robust == robust.ZENO:
            self.trusted = inputs, targets
        model, targets = self.turn_to(rank), self.attack.targets(rank, targets)
        began = time.monotonic()
        loss, gradient = self.minibatch_gradient(model, inputs, targets)
        gradient = gradient.cpu()
        self._compute_s += time.monotonic() - began
        self._losses.append(loss)
        self._on_minibatch()
        return gradient

    def turn_to(self, rank: int) -> torch.nn.Module:
        """Return a worker's model with its own buffers."""
        model = self.states[rank].model
        own = iter(self._buffers[rank])
        for module in model.modules():
            for name, _ in module.named_buffers(recurse=False):
                setattr(module, name, next(own))
        return model

    def to_bytes(self) -> Iterator[bytearray]:
        """Yield every worker's state in turn, for `restore`."""
        for rank, state in enumerate(self.states):
            self.turn_to(rank)
            yield state.to_bytes()

    def restore(self, bodies: Iterator[bytearray]) -> None:
        """Restore the states that `to_bytes` yielded, bit for bit."""
        for rank, (state, body) in enumerate(zip(self.states, bodies, strict=True)):
            self.turn_to(rank)
            state.restore(body)

    def _with_buffers(self, rank: int, vector: torch.Tensor) -> torch.Tensor:
        return buffers.append(self.plan, rank, self._buffers[rank], vector)

    def _without_buffers(self, aggregate: torch.Tensor) -> torch.Tensor:
        """Give all workers the buffers behind an aggregate, and return the rest (P,)."""
        for own in self._buffers:
            rest = buffers.take(self.plan, own, aggregate)
        return rest
