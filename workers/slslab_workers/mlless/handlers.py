"""MLLess's worker: filter, announce, wait for the supervisor's decision, apply what was announced.

A removed worker stores its model for the others and exits.
"""

import json
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from slslab_workers.channels import endpoints
from slslab_workers.channels.objects import ObjectChannel
from slslab_workers.channels.queues import Message, Queues, acknowledge, open_queues
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.mlless import settings
from slslab_workers.mlless.filters import make_filter
from slslab_workers.mlless.schedule import Schedule
from slslab_workers.plan import Assignment
from slslab_workers.training import aggregation, gradients
from slslab_workers.training.lifetime import remaining_s
from slslab_workers.training.state import WorkerState
from slslab_workers.training.worker import Worker, handle

PROTOCOL = ("U", "C")
# The other messages that workers receive; they remove a worker.
REMOVAL = ("K", "D")
# Part of the function's time that a worker reserves for reporting what it waited for.
REPORT_S = 1.0
# Steps and ranks of the removed workers, in a worker's state.
REMOVALS = "removals"


class MLLessWorker(Worker):
    """A worker in one invocation."""

    # Seven lines a step, even if nothing is sent.
    logged = ("compute", "filter_gradient", "send", "report", "await_updates", "get_updates", "update")

    def __init__(
        self, assignment: Assignment, context: Any, objects: ObjectChannel | None = None, queues: Queues | None = None
    ) -> None:
        super().__init__(assignment, context, objects)
        self._filter = make_filter(self.plan)
        self.combine = aggregation.RULES[f"mean-over-{self.plan.options['mean-over']}"]
        self._queue = settings.worker_queue(self.plan, rank=self.rank)
        self._open = ExitStack()
        # Messages of this and later steps, by step, and then by type and sender.
        self._received: dict[int, dict[tuple[str, int], dict[str, Any]]] = {}
        # Unacknowledged messages of later steps: the broker keeps them for another invocation until they are needed.
        self._early: list[tuple[int, Message]] = []
        if queues is None:
            with self.tracer.span("connect", "other"):
                queues = self._open.enter_context(open_queues(endpoints.queue_url(), self.tracer))
        self._queues = queues
        self._tensors: TensorDatabase | None = None
        if self.plan.options["store"] == "tensordb":
            self._tensors = self._open.enter_context(TensorDatabase(endpoints.tensor_urls()[0], self.tracer))

    def run(self) -> dict[str, Any]:
        """Train; connections close when the invocation ends."""
        with self._open:
            return super().run()

    def synchronise(self, state: WorkerState, gradient: torch.Tensor) -> torch.Tensor | None:
        """Send what is significant; return the aggregate (P,) of the updates sent in this step, or None without any."""
        leaving = self.is_short_of_time()
        update = self.filter_gradient(state, gradient)
        self.send(state, update)
        self.report(state, update is not None, leaving)
        decision = self.await_updates(state)
        self.ended, self.leaving = decision["end"], decision["leaving"]
        received = self.get_updates(state, decision["updates"])
        if not received:
            return None
        if self.robust is not None:
            return self.withstand(state, received)
        with self.tracer.span("reduce", "synchronise", "sum", bytes=len(received) * gradient.nbytes):
            parts = [self._filter.decode(stored, gradient.numel()) for stored in received]
            return self.combine(aggregation.sum_in_rank_order(parts), len(self._schedule(state).ranks), len(parts))

    def filter_gradient(self, state: WorkerState, gradient: torch.Tensor) -> torch.Tensor | None:
        """Return the significant update, in the filter's encoding, or None; the rest stays in the residual."""
        with self.tracer.span("filter", "synchronise"):
            return self._filter.significant(state, gradient, state.position)

    def send(self, state: WorkerState, update: torch.Tensor | None) -> None:
        """Store an update, if there is one, and announce it to all (U)."""
        if update is not None:
            key = settings.update_key(self.plan, self.rank, state.position)
            self._store(key, update, overhead=False)
            message = self._message("U", state.position, key=key)
            self._queues.fan_out(settings.exchange_name(self.plan), message, "synchronise", overhead=False)

    def report(self, state: WorkerState, sent: bool, leaving: bool) -> None:
        """Report to the supervisor (I): the loss, whether an update was sent, and this worker's vote to stop."""
        report = self._message("I", state.position, loss=state.losses[-1], update=sent, leaving=leaving)
        self._queues.publish(settings.supervisor_queue(self.plan), report, "synchronise", overhead=False)

    def await_updates(self, state: WorkerState) -> dict[str, Any]:
        """Wait for the supervisor's decision (C), and for the updates that it names (U); return the decision."""
        decision = self._await(state.position, {("C", settings.SUPERVISOR)})["C", settings.SUPERVISOR]
        self._await(state.position, {("U", rank) for rank in decision["updates"]})
        return decision

    def get_updates(self, state: WorkerState, senders: list[int]) -> list[torch.Tensor]:
        """Return the senders' updates as they are stored."""
        return [self._get(settings.update_key(self.plan, rank, state.position), overhead=False) for rank in senders]

    def after_update(self, state: WorkerState) -> None:
        """Remove a worker if the supervisor has decided so."""
        removed = self._received[state.position]["C", settings.SUPERVISOR]["removed"]
        if removed is not None:
            self._remove(state, removed)
        del self._received[state.position]

    def place(self, state: WorkerState) -> tuple[int, int]:
        """Return the epoch, and the step in it; epochs become longer when workers are removed."""
        return self._schedule(state).place(state.position)

    def minibatch(self, state: WorkerState) -> tuple[int, int, int]:
        """Return rank, epoch and step of the stored minibatch that this worker reads next."""
        schedule = self._schedule(state)
        step, rank = divmod(schedule.minibatch(self.rank, state.position), self.plan.workers)
        return rank, schedule.place(state.position)[0], step

    def stores_model(self, state: WorkerState) -> bool:
        """Return whether this is the first remaining worker."""
        return self.rank == self._schedule(state).ranks[0]

    def until(self, state: WorkerState) -> int:
        """Return the step at which the assignment ends. Removals move it."""
        return self._schedule(state).actual(self.assignment.until)

    def _schedule(self, state: WorkerState) -> Schedule:
        return Schedule(self.plan.workers, self.plan.batches, state.notes.get(REMOVALS, ()))

    def _remove(self, state: WorkerState, removed: int) -> None:
        position = state.position
        state.notes.setdefault(REMOVALS, []).append([position, removed])
        own = gradients.flatten(state.model.parameters()).cpu()
        if removed == self.rank:
            self._await(position, {("K", settings.SUPERVISOR)})
            self._leave(position, own)
            return
        model = self._get(self._await(position, {("D", removed)})["D", removed]["key"], overhead=True)
        with self.tracer.span("reduce", "synchronise", "add", bytes=own.nbytes):
            gradients.write_parameters(state.model, own.add_(model).div_(2))

    def _leave(self, position: int, model: torch.Tensor) -> None:
        """Store the model (P,) for the others, and delete this worker's queue, now unused."""
        key = settings.removed_model_key(self.plan, rank=self.rank)
        self._store(key, model, overhead=True)
        updates = self._received[position]["K", settings.SUPERVISOR]["updates"]
        message = self._message("D", position, key=key, updates=updates)
        self._queues.fan_out(settings.exchange_name(self.plan), message, "synchronise")
        self._queues.delete(self._queue)
        self.ended = settings.REMOVED

    def _message(self, kind: str, position: int, **content: Any) -> bytes:
        return json.dumps({"type": kind, "worker": self.rank, "step": position, **content}).encode()

    def _await(self, position: int, expected: set[tuple[str, int]]) -> dict[tuple[str, int], dict[str, Any]]:
        """Wait for these messages (type and sender) of a step; return all messages received for it.

        If a worker waits for a failed one, the driver ends it by deleting the queues (NoQueue).
        """
        received = self._received.setdefault(position, {})
        while self._early and self._early[0][0] <= position:
            acknowledge(self._early.pop(0)[1])
        while not received.keys() >= expected:
            patience_s = remaining_s(self.context) - REPORT_S
            if patience_s <= 0:
                missing = ", ".join(
                    f"{kind} of {'the supervisor' if sender == settings.SUPERVISOR else f'worker {sender}'}"
                    for kind, sender in sorted(expected - received.keys())
                )
                raise TimeoutError(f"Step {position} waited for {missing} until the function's time was over.")
            message = self._queues.consume(self._queue, patience_s, "synchronise", overhead=self._is_repeated)
            if message is not None:
                self._note(message, position)
        return received

    def _note(self, message: Message, position: int) -> None:
        """Keep a message of this or a later step; of each type and sender, only the first counts."""
        content = json.loads(message.body)
        step = content["step"]
        if content["type"] in PROTOCOL + REMOVAL and step >= position:
            self._received.setdefault(step, {}).setdefault((content["type"], content["worker"]), content)
        if step > position:
            self._early.append((step, message))
            self._early.sort(key=lambda early: early[0])
        else:
            acknowledge(message)

    def _is_repeated(self, body: bytes) -> bool:
        """Return whether to ignore a message: it was delivered before, or it ends training or removes a worker."""
        content = json.loads(body)
        if content["type"] not in PROTOCOL or content["step"] < min(self._received):
            return True
        return (content["type"], content["worker"]) in self._received.get(content["step"], {})

    def _store(self, key: str, vector: torch.Tensor, *, overhead: bool) -> None:
        if self._tensors is not None:
            self._tensors.set(key, vector.numpy(), "synchronise", overhead=overhead)
        else:
            self.objects.put(key, gradients.as_bytes(vector), "synchronise", overhead=overhead)

    def _get(self, key: str, *, overhead: bool) -> torch.Tensor:
        if self._tensors is not None:
            return torch.from_numpy(self._tensors.get(key, "synchronise", overhead=overhead))
        return gradients.from_bytes(self.objects.get(key, "synchronise", overhead=overhead).body)


# AWS Lambda's entry point.
handler = partial(handle, worker=MLLessWorker)
