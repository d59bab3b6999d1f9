"""MLLess's worker: filter, announce, wait for the supervisor's word, apply what was announced.

Who is removed leaves its model to the others and goes.
"""

import json
from collections.abc import Mapping
from typing import Any

import torch

from slslab_workers import endpoints, gradients
from slslab_workers.lifetime import remaining_s
from slslab_workers.logs import Log
from slslab_workers.mlless.filters import make_filter
from slslab_workers.mlless.schedule import Schedule
from slslab_workers.mlless.settings import (
    REMOVED,
    SUPERVISOR,
    Settings,
    acknowledge,
    exchange_name,
    removed_model_key,
    supervisor_queue,
    update_key,
    worker_queue,
)
from slslab_workers.objects import Objects
from slslab_workers.plan import Assignment
from slslab_workers.queues import Message, Queues, open_queues
from slslab_workers.tensors import TensorDatabase
from slslab_workers.training import Step, Worker, WorkerState, handle

PROTOCOL = ("U", "C")
# Beside it, what removes a worker.
REMOVAL = ("K", "D")
# Steps and ranks of those who have left, in a worker's state.
REMOVALS = "removals"


class MLLessWorker(Worker):
    """One worker in one invocation."""

    def __init__(
        self, assignment: Assignment, context: Any, objects: Objects | None = None, queues: Queues | None = None
    ) -> None:
        super().__init__(assignment, context, objects)
        self._settings = Settings.of(self.plan)
        self._filter = make_filter(self.plan, self._settings)
        self._queue = worker_queue(self.plan, self.rank)
        self._exchange = exchange_name(self.plan)
        self._log = Log(self.plan, self.rank, self.objects)
        # What was heard of the present step and later ones, by step, and by type and sender.
        self._heard: dict[int, dict[tuple[str, int], dict[str, Any]]] = {}
        # Messages of later steps, which the broker keeps for another invocation until this one needs them.
        self._early: list[tuple[int, Message]] = []
        if queues is None:
            with self.tracer.span("connect", "other"):
                queues = open_queues(endpoints.queue_url(), self.tracer)
        self._queues = queues
        self._tensors: TensorDatabase | None = None
        if self._settings.store == "tensordb":
            self._tensors = TensorDatabase(endpoints.tensor_urls()[0], self.tracer)

    def run(self) -> dict[str, Any]:
        """Train; connections end with the invocation."""
        try:
            return super().run()
        finally:
            self._queues.close()
            if self._tensors is not None:
                self._tensors.close()

    def synchronise(self, state: WorkerState, step: Step) -> bool:
        """Send what is significant, and update with the sum of it over the divisor, if anybody sent anything.

        That is seven lines of the log, whatever is sent.
        """
        position = state.position
        self._log.append(f"minibatch computed, loss {step.loss:.4f}")
        with self.tracer.span("filter", "synchronise"):
            update = self._filter.significant(state, step.gradient, position)
        self._log.append("no significant update" if update is None else "significant update")
        if update is not None:
            self._store(update_key(self.plan, self.rank, position), update, overhead=False)
            self._announce(position)
        self._log.append("nothing announced" if update is None else "update stored and announced")
        self._report(position, step, update is not None)
        self._log.append("reported to the supervisor")
        decision = self._await(position, {("C", SUPERVISOR)})["C", SUPERVISOR]
        self._await(position, {("U", rank) for rank in decision["updates"]})
        self._log.append(f"{len(decision['updates'])} updates announced by all")
        received = [self._fetch(update_key(self.plan, rank, position), overhead=False) for rank in decision["updates"]]
        self._log.append(f"{len(received)} updates gotten")
        if received:
            with self.tracer.span("reduce", "synchronise"):
                parts = [self._filter.decode(stored, step.gradient.numel()) for stored in received]
                divisor = self._settings.divisor(len(self._schedule(state).ranks), len(parts))
                aggregate = gradients.sum_in_rank_order(parts).div_(divisor)
            self.update(state, aggregate)
        self._log.append("model updated" if received else "no update")
        self.ended = decision["end"]
        if decision["removed"] is not None:
            self._remove(state, int(decision["removed"]))
        del self._heard[position]
        return bool(decision["leaving"])

    def place(self, state: WorkerState) -> tuple[int, int]:
        """Epoch, and step in it; epochs become longer when workers leave."""
        return self._schedule(state).place(state.position)

    def minibatch(self, state: WorkerState) -> tuple[int, int, int]:
        """Rank, epoch and step of the stored minibatch that falls to this worker."""
        schedule = self._schedule(state)
        step, rank = divmod(schedule.minibatch(self.rank, state.position), self.plan.workers)
        return rank, schedule.place(state.position)[0], step

    def stores_model(self, state: WorkerState) -> bool:
        """The first of those who are left."""
        return self.rank == self._schedule(state).ranks[0]

    def until(self, state: WorkerState) -> int:
        """The end of the assignment's last epoch, wherever it is by now; of its batch, if it has but one."""
        until = self.assignment.until
        return until if self.plan.mode == "per-batch" else self._schedule(state).actual(until)

    def _schedule(self, state: WorkerState) -> Schedule:
        return Schedule(self.plan.workers, self.plan.batches, state.notes.get(REMOVALS, ()))

    def _result(self, state: WorkerState) -> dict[str, Any]:
        return {**super()._result(state), REMOVALS: state.notes.get(REMOVALS, [])}

    def _remove(self, state: WorkerState, removed: int) -> None:
        """Somebody leaves after this step: its model is averaged into that of each who is left."""
        position = state.position
        state.notes.setdefault(REMOVALS, []).append([position, removed])
        own = gradients.flatten(state.model.parameters())
        if removed == self.rank:
            self._await(position, {("K", SUPERVISOR)})
            self._leave(position, own)
            return
        key = self._await(position, {("D", removed)})["D", removed]["key"]
        model = self._fetch(key, overhead=True)
        with self.tracer.span("reduce", "synchronise"):
            gradients.write_parameters(state.model, own.add_(model).div_(2))

    def _leave(self, position: int, model: torch.Tensor) -> None:
        """Leave the model (P,) to the others, and take away the queue, which nobody empties any more."""
        key = removed_model_key(self.plan, self.rank)
        self._store(key, model, overhead=True)
        updates = self._heard[position]["K", SUPERVISOR]["updates"]
        message = {"type": "D", "worker": self.rank, "step": position, "key": key, "updates": updates}
        self._queues.fan_out(self._exchange, json.dumps(message).encode(), "synchronise")
        self._queues.delete(self._queue)
        self.ended = REMOVED

    def _announce(self, position: int) -> None:
        message = {
            "type": "U",
            "worker": self.rank,
            "step": position,
            "key": update_key(self.plan, self.rank, position),
        }
        self._queues.fan_out(self._exchange, json.dumps(message).encode(), "synchronise", overhead=False)

    def _report(self, position: int, step: Step, update: bool) -> None:
        message = {
            "type": "I",
            "worker": self.rank,
            "step": position,
            "loss": step.loss,
            "update": update,
            "leaving": step.leaving,
        }
        queue = supervisor_queue(self.plan)
        self._queues.publish(queue, json.dumps(message).encode(), "synchronise", overhead=False)

    def _await(self, position: int, expected: set[tuple[str, int]]) -> dict[tuple[str, int], dict[str, Any]]:
        """What was heard of this step, once these messages (type and sender) are among it.

        Who waits for somebody dead is ended by the driver, who deletes the queues (NoQueue).
        """
        heard = self._heard.setdefault(position, {})
        while self._early and self._early[0][0] <= position:
            acknowledge(self._early.pop(0)[1])
        while not heard.keys() >= expected:
            patience_s = remaining_s(self.context)
            if patience_s <= 0:
                missing = ", ".join(
                    f"{kind} of {'the supervisor' if sender == SUPERVISOR else f'worker {sender}'}"
                    for kind, sender in sorted(expected - heard.keys())
                )
                raise TimeoutError(f"Step {position} waited for {missing} until the time was over.")
            message = self._queues.consume(self._queue, patience_s, "synchronise", overhead=self._is_repeated)
            if message is not None:
                self._note(message, position)
        return heard

    def _note(self, message: Message, position: int) -> None:
        """Keep what a message says of this step or a later one, the first one of each type and sender."""
        content = json.loads(message.body)
        step = content["step"]
        if content["type"] in PROTOCOL + REMOVAL and step >= position:
            self._heard.setdefault(step, {}).setdefault((content["type"], content["worker"]), content)
        if step > position:
            self._early.append((step, message))
            self._early.sort(key=lambda early: early[0])
        else:
            acknowledge(message)

    def _is_repeated(self, body: bytes) -> bool:
        """Whether a message is no part of the protocol: it was delivered before, or it ends training or a worker."""
        content = json.loads(body)
        known = self._heard.get(content["step"])
        if content["type"] not in PROTOCOL or content["step"] < min(self._heard):
            return True
        return known is not None and (content["type"], content["worker"]) in known

    def _store(self, key: str, vector: torch.Tensor, *, overhead: bool) -> None:
        """Put a vector where the plan keeps updates."""
        if self._tensors is not None:
            self._tensors.set(key, vector.numpy(), "synchronise", overhead=overhead)
        else:
            body = gradients.as_bytes(vector)
            self.objects.put(key, body, "synchronise", overhead=overhead, metadata={"dtype": "float32"})

    def _fetch(self, key: str, *, overhead: bool) -> torch.Tensor:
        """A vector from where the plan keeps updates."""
        if self._tensors is not None:
            return torch.from_numpy(self._tensors.get(key, "synchronise", overhead=overhead))
        return gradients.from_bytes(self.objects.get(key, "synchronise", overhead=overhead).body)


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """AWS Lambda's entry point."""
    return handle(event, context, MLLessWorker)
