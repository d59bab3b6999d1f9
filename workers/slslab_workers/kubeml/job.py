"""KubeML's job, a function that outlives the others: it owns the reference model and merges in rounds.

A round ends when every function of the epoch has reported or ended. The mean of their models becomes the reference, and
waiting functions continue. It imports no torch.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from slslab_workers.channels import endpoints
from slslab_workers.channels.queues import Queues, acknowledge
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.kubeml import settings
from slslab_workers.kubeml.merging import Mean
from slslab_workers.plan import InvocationInput
from slslab_workers.training.lifetime import accompany, receive_report, remaining_s

PHASE = "synchronise"


@dataclass(frozen=True)
class Task(InvocationInput):
    """The input of one invocation.

    In `epoch` the functions `active` are running (None: the epoch has not begun). `reports` are round `round`'s so far:
    functions with NEXT or another kind. The last message came at wall time `heard`, s.
    """

    layers: tuple[str, ...]
    epoch: int = 0
    round: int = 0
    active: tuple[int, ...] | None = None
    reports: tuple[tuple[int, str], ...] = ()
    heard: float = 0.0


class Job:
    """The job in one invocation."""

    def __init__(self, task: Task, context: Any, queues: Queues, database: TensorDatabase) -> None:
        self._task = task
        self._plan = task.plan
        self._context = context
        self._queues = queues
        self._database = database
        self._epoch, self._round = task.epoch, task.round
        self._active = None if task.active is None else set(task.active)
        self._reports = dict(task.reports)
        self._heard = task.heard or time.time()
        self._mean = Mean()

    def run(self) -> Task | None:
        """Merge until the driver says stop, and return None; or until time is short, and return the next input.

        Functions don't notice: the reports that they send meanwhile wait in the queue.
        """
        while (message := self._receive()) is not None:
            if message["type"] == settings.STOP:
                return None
            self._note(message)
            self._add()
            if self._active is not None and self._active <= self._reports.keys():
                self._merge()
        return replace(
            self._task,
            epoch=self._epoch,
            round=self._round,
            active=None if self._active is None else tuple(sorted(self._active)),
            reports=tuple(self._reports.items()),
            heard=self._heard,
        )

    def _receive(self) -> dict[str, Any] | None:
        """Return the next new message; None if time is too short, TimeoutError after an hour without messages."""
        queue, silent = settings.job_queue(self._plan), f"Nothing was reported in epoch {self._epoch}"
        while message := receive_report(self._queues, queue, self._left_s, self._heard, silent, self._is_no_report):
            acknowledge(message)
            content: dict[str, Any] = json.loads(message.body)
            if content["type"] in (settings.STOP, settings.FAILED) or not self._is_no_report(message.body):
                self._heard = time.time()
                return content
        return None

    def _left_s(self) -> float:
        return remaining_s(self._context) - hand_over_s(self._plan.timeout)

    def _is_no_report(self, body: bytes) -> bool:
        content = json.loads(body)
        if content["type"] in (settings.STOP, settings.FAILED):
            return True
        place = content["epoch"], content["round"]
        return place != (self._epoch, self._round) or content["function"] in self._reports

    def _note(self, message: Mapping[str, Any]) -> None:
        """Keep a report; a function that failed takes part in no later round of its epoch."""
        if message["epoch"] != self._epoch:
            return
        self._database.tracer.epoch = self._epoch
        if self._active is None:
            self._active = set(range(message["functions"]))
        if message["type"] == settings.FAILED:
            self._active.discard(message["function"])
        else:
            self._reports[message["function"]] = message["type"]

    def _add(self) -> None:
        """Add reported models in rank order: an early one waits until the ranks before it have reported."""
        assert self._active is not None or not self._reports
        for function in sorted((self._active or set()) | self._reports.keys()):
            if function in self._mean.ranks:
                continue
            if function not in self._reports:
                return
            keys = {layer: settings.copy_key(self._plan, layer, function) for layer in self._task.layers}
            tensors = {layer: self._database.get(key, PHASE, overhead=False) for layer, key in keys.items()}
            with self._database.tracer.span("reduce", PHASE) as span:
                span.bytes = sum(vector.nbytes for vector in tensors.values())
                self._mean.add(function, tensors)

    def _merge(self) -> None:
        assert self._active is not None
        if self._reports:
            with self._database.tracer.span("reduce", PHASE):
                merged = self._mean.take()
            for layer, vector in merged.items():
                self._database.set(settings.reference_key(self._plan, layer), vector, PHASE, overhead=False)
        waiting = sorted(function for function, kind in self._reports.items() if kind == settings.NEXT)
        body = json.dumps({"merged": [self._epoch, self._round]}).encode()
        for function in waiting:
            self._queues.publish(settings.function_queue(self._plan, function), body, PHASE, overhead=False)
        self._active &= set(waiting)
        self._reports, self._round = {}, self._round + 1
        if not self._active:
            ended = json.dumps({"epoch": self._epoch}).encode()
            self._queues.publish(settings.client_queue(self._plan), ended, "other")
            self._epoch, self._round, self._active = self._epoch + 1, 0, None


def hand_over_s(timeout_s: int) -> float:
    """Return the time that the job reserves for finishing a merge and invoking itself, s."""
    return min(60.0, timeout_s / 4)


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Merge (AWS Lambda's entry point)."""
    task = Task.from_event(event)

    def work(queues: Queues) -> Task | None:
        with TensorDatabase(endpoints.tensor_urls()[0], queues.tracer) as database:
            return Job(task, context, queues, database).run()

    return accompany(task, settings.job_rank(task.plan), context, work)
