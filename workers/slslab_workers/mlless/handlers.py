"""MLLess's worker: filter, announce, wait for the supervisor's word, apply what was announced."""

import json
from collections.abc import Mapping
from typing import Any

import torch

from slslab_workers import endpoints, gradients
from slslab_workers.lifetime import remaining_s
from slslab_workers.mlless.filters import make_filter
from slslab_workers.mlless.settings import (
    SUPERVISOR,
    Settings,
    acknowledge,
    exchange_name,
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
        # What was heard of the present step and later ones, by step and sender.
        self._heard: dict[int, dict[int, dict[str, Any]]] = {}
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
        """Send what is significant, and update with the mean of what anybody sent, if anybody did."""
        position = state.position
        with self.tracer.span("filter", "synchronise"):
            update = self._filter.significant(state, step.gradient, position)
        if update is not None:
            self._put(position, update)
            self._announce(position)
        self._report(position, step, update is not None)
        decision = self._await_decision(position)
        received = [self._get(rank, position) for rank in decision["updates"]]
        if received:
            with self.tracer.span("reduce", "synchronise"):
                parts = [self._filter.decode(stored, step.gradient.numel()) for stored in received]
                mean = gradients.sum_in_rank_order(parts).div_(len(parts))
            self.update(state, mean)
        self.ended = decision["end"]
        return bool(decision["leaving"])

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

    def _await_decision(self, position: int) -> dict[str, Any]:
        """The supervisor's C of this step, once every update that it names has been announced here.

        Who waits for somebody dead is ended by the driver, who deletes the queues (NoQueue).
        """
        heard = self._heard.setdefault(position, {})
        while self._early and self._early[0][0] <= position:
            acknowledge(self._early.pop(0)[1])
        while SUPERVISOR not in heard or not heard.keys() >= set(heard[SUPERVISOR]["updates"]):
            patience_s = remaining_s(self.context)
            if patience_s <= 0:
                raise TimeoutError(f"Nothing was heard of the supervisor in step {position} until the time was over.")
            message = self._queues.consume(self._queue, patience_s, "synchronise", overhead=self._is_repeated)
            if message is not None:
                self._note(message, position)
        return self._heard.pop(position)[SUPERVISOR]

    def _note(self, message: Message, position: int) -> None:
        """Keep what a message says of this step or a later one, the first one of each sender."""
        content = json.loads(message.body)
        step = content["step"]
        if content["type"] in PROTOCOL and step >= position:
            self._heard.setdefault(step, {}).setdefault(content["worker"], content)
        if step > position:
            self._early.append((step, message))
            self._early.sort(key=lambda early: early[0])
        else:
            acknowledge(message)

    def _is_repeated(self, body: bytes) -> bool:
        """Whether a message is no part of the protocol: it was delivered before, or it ends the training."""
        content = json.loads(body)
        known = self._heard.get(content["step"])
        if content["type"] not in PROTOCOL or content["step"] < min(self._heard):
            return True
        return known is not None and content["worker"] in known

    def _put(self, position: int, update: torch.Tensor) -> None:
        key = update_key(self.plan, self.rank, position)
        if self._tensors is not None:
            self._tensors.set(key, update.numpy(), "synchronise", overhead=False)
        else:
            body = gradients.as_bytes(update)
            self.objects.put(key, body, "synchronise", overhead=False, metadata={"dtype": "float32"})

    def _get(self, rank: int, position: int) -> torch.Tensor:
        key = update_key(self.plan, rank, position)
        if self._tensors is not None:
            return torch.from_numpy(self._tensors.get(key, "synchronise", overhead=False))
        return gradients.from_bytes(self.objects.get(key, "synchronise", overhead=False).body)


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """AWS Lambda's entry point."""
    return handle(event, context, MLLessWorker)
