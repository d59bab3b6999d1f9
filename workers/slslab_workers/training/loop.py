"""The training loop: fetch → compute → synchronise → update, once per step.

An architecture's `synchronise` turns the gradients of all workers into one aggregate. Everything else is the same for
all architectures.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import torch

from slslab_workers.channels.objects import ObjectChannel
from slslab_workers.plan import Plan, thread_count
from slslab_workers.training import aggregation, buffers, gradients, robust
from slslab_workers.training.attacks import Attack
from slslab_workers.training.keys import result_key
from slslab_workers.training.local import local_training
from slslab_workers.training.options import COMBINE
from slslab_workers.training.state import WorkerState, buffers_to_bytes
from slslab_workers.training.step import compute_gradient, fetch_minibatch, store_model


class Training:
    """What a plan's training needs, wherever its workers run. Making one sets torch's threads for the process.

    `combine` is the aggregation rule, or `robust` the name of a rule that withstands Byzantine workers. `local` is the
    algorithm of workers that train locally between two exchanges. `ended` is the reason if training ends before the
    plan's last step. The model is on `device`, a device name of torch; exchanged and stored data are in the host's
    memory. `trusted` is the step's minibatch, if a worker scores vectors with it.
    """

    combine: aggregation.Rule
    ended: str | None = None
    trusted: tuple[torch.Tensor, torch.Tensor] | None = None
    # Computes a minibatch's mean loss and its gradient (P,).
    minibatch_gradient: Callable[..., tuple[float, torch.Tensor]] = staticmethod(compute_gradient)

    def __init__(self, plan: Plan, device: str = "cpu") -> None:
        self.plan = plan
        self.device = torch.device(device)
        self.threads = thread_count(plan.memory_mb)
        self.robust = robust.name_of(plan.options)
        if self.robust is None:
            self.combine = buffers.rule(plan, aggregation.RULES[str(COMBINE.of(plan.options))])
        self.local = local_training(plan)
        if self.local is not None:
            self.minibatch_gradient = self.local.compute
        self.attack = Attack.of(plan)
        torch.set_num_threads(self.threads)


class Trainer(Training):
    """One worker's training, in an invocation of a function or on an instance."""

    def __init__(self, plan: Plan, rank: int, objects: ObjectChannel, device: str = "cpu") -> None:
        super().__init__(plan, device)
        self.rank = rank
        self.objects = objects
        self.tracer = objects.tracer
        self._staging: torch.Tensor | None = None

    def train_step(self, state: WorkerState) -> None:
        """Train one step: fetch, compute, synchronise, update."""
        self.end_step(state, self.synchronise(state, self.begin_step(state)))

    def begin_step(self, state: WorkerState) -> torch.Tensor:
        """Fetch the step's minibatch, and return its gradient (P,), with buffers if workers exchange them with it."""
        self.enter_step(state)
        inputs, targets = fetch_minibatch(self.objects, self.plan, *self.minibatch(state))
        inputs, targets = inputs.to(self.device), targets.to(self.device)
        if self.robust == robust.ZENO:
            self.trusted = inputs, targets
        loss, gradient = self.compute(state, inputs, self.attack.targets(self.rank, targets))
        state.losses.append(loss)
        gradient = self.attack.gradient(self.rank, gradient, state.position)
        return gradient if self.local is not None else self.with_buffers(state, gradient)

    def enter_step(self, state: WorkerState) -> None:
        """Give the trace events the epoch and step of the state's position."""
        self.tracer.epoch, self.tracer.step = self.place(state)

    def end_step(self, state: WorkerState, aggregate: torch.Tensor | None) -> None:
        """Update with the aggregate (P,), which buffers may follow; after an epoch's or the training's last step, one
        worker stores the model."""
        epoch = self.tracer.epoch
        if aggregate is not None and self.local is None:
            aggregate = buffers.take(self.plan, state.model.buffers(), aggregate)
        self.update(state, aggregate)  # a step of the optimiser
        self.after_update(state)

        state.position += 1
        self.tracer.epoch = self.tracer.step = -1
        if self.stores_model(state) and (self.place(state)[1] == 0 or self.ended is not None):
            store_model(self.objects, self.plan, epoch, state.model)

    def with_buffers(self, state: WorkerState, vector: torch.Tensor) -> torch.Tensor:
        """Return a vector (P,) to exchange, followed by the model's buffers if the plan exchanges them."""
        return buffers.append(self.plan, self.rank, state.model.buffers(), vector)

    def compute(self, state: WorkerState, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, torch.Tensor]:
        """Return the minibatch's mean loss, and its gradient (P,) in the host's memory."""
        with self.tracer.span("compute", "compute") as span:
            loss, gradient = self.minibatch_gradient(state.model, inputs, targets)
            span.loss = loss
            return loss, self.to_exchange(gradient)

    def synchronise(self, state: WorkerState, gradient: torch.Tensor) -> torch.Tensor | None:
        """Exchange a gradient (P,) with the other workers and return the aggregate (P,).

        Return None if there is nothing to apply in this step. The gradient's loss is the last of `state.losses`.
        """
        raise NotImplementedError

    def withstand(self, state: WorkerState, vectors: list[torch.Tensor]) -> torch.Tensor:
        """Apply the robust rule to all workers' vectors (P,), in rank order, and return the aggregate (P,)."""
        assert self.robust is not None
        with self.tracer.span("reduce", "synchronise", self.robust, bytes=sum(vector.nbytes for vector in vectors)):
            return robust.applied(self.plan, vectors, state.model, self.trusted)

    def update(self, state: WorkerState, aggregate: torch.Tensor | None) -> None:
        """Take one step of the optimiser with an aggregate (P,) in the host's memory, if there is one."""
        if aggregate is None:
            return
        with self.tracer.span("update", "update"):
            state.update(aggregate)
            if self.device.type == "cuda":
                # A GPU computes asynchronously; the event must end with the update.
                torch.cuda.synchronize(self.device)

    def after_update(self, state: WorkerState) -> None:
        """Finish the step after the model was updated; by default do nothing."""

    def place(self, state: WorkerState) -> tuple[int, int]:
        """Return the epoch at the state's position, and the step in that epoch."""
        return divmod(state.position, self.plan.batches)

    def minibatch(self, state: WorkerState) -> tuple[int, int, int]:
        """Return the rank, epoch and step of the next stored minibatch."""
        return self.rank, *self.place(state)

    def stores_model(self, state: WorkerState) -> bool:  # noqa: ARG002 - needed if workers leave early
        """Return whether this worker stores the model for all workers."""
        return self.rank == 0

    def to_exchange(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient in the host's memory, where it is exchanged.

        A gradient from a GPU is copied into page-locked memory, which every step reuses.
        """
        if gradient.device.type == "cpu":
            return gradient
        if self._staging is None:
            self._staging = torch.empty(gradient.numel(), pin_memory=True)
        return self._staging.copy_(gradient)

    def _fresh(self) -> WorkerState:
        with self.tracer.span("build", "other"):
            return WorkerState.fresh(self.plan, self.rank, self.device)

    def publish(self, state: WorkerState) -> dict[str, Any]:
        """Store this worker's result, and return it."""
        result = self._result(state)
        self.objects.put(result_key(self.plan, rank=self.rank), json.dumps(result).encode(), "other")
        return result

    def _result(self, state: WorkerState) -> dict[str, Any]:
        flat, own = gradients.flatten(state.model.parameters()).cpu(), buffers_to_bytes(state.model)
        return {
            "status": "finished",
            "rank": self.rank,
            "position": state.position,
            "ended": self.ended,
            "losses": state.losses,
            "updates": state.updates,
            "parameters": flat.numel(),
            "parameters_sha256": gradients.sha256(flat),
            **({"buffers_sha256": hashlib.sha256(own).hexdigest()} if own else {}),
            "threads": self.threads,
            "torch": torch.__version__,
        }
