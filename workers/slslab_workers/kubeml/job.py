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
from slslab_workers.training.lifetime import Companion, accompany

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


class Job(Companion[Task]):
    """The job in one invocation. It also keeps time for finishing a merge."""

    keeps_s = 60.0

    def __init__(self, task: Task, context: Any, queues: Queues, database: TensorDatabase) -> None:
        super().__init__(task, context, queues)
        self._database = database
        self._epoch, self._round = task.epoch, task.round
        self._active = None if task.active is None else set(task.active)
        self._reports = dict(task.reports)
        self._heard = task.heard or time.time()
        self._mean = Mean()

    def run(self) -> Task | None:
        """Merge until the driver says stop, and return None; or until time is short, and return the next input."""
        while (message := self._receive()) is not None:
            if message["type"] == settings.STOP:
                return None
            self._note(message)
            self._add()
            if self._active is not None and self._active <= self._reports.keys():
                self._merge()
        return replace(
            self.task,
            epoch=self._epoch,
            round=self._round,
            active=None if self._active is None else tuple(sorted(self._active)),
            reports=tuple(self._reports.items()),
            heard=self._heard,
        )

    def _receive(self) -> dict[str, Any] | None:
        """Return the next new message; None if time is too short, TimeoutError after an hour without messages."""
        queue, silent = settings.job_queue(self.plan), lambda: f"Nothing was reported in epoch {self._epoch}"
        while message := self.receive(queue, self._heard, silent, self._is_no_report):
            acknowledge(message)
            content: dict[str, Any] = json.loads(message.body)
            if content["type"] in (settings.STOP, settings.FAILED) or not self._is_no_report(message.body):
                self._heard = time.time()
                return content
        return None

    def _is_no_report(self, body: bytes) -> bool:
        content = json.loads(body)
        if content["type"] in (settings.STOP, settings.FAILED):
            return True
        reported = content["epoch"], content["round"]
        return reported != (self._epoch, self._round) or content["function"] in self._reports

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
            keys = {layer: settings.copy_key(self.plan, layer=layer, function=function) for layer in self.task.layers}
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
                self._database.set(settings.reference_key(self.plan, layer=layer), vector, PHASE, overhead=False)
        waiting = sorted(function for function, kind in self._reports.items() if kind == settings.NEXT)
        body = json.dumps({"merged": [self._epoch, self._round]}).encode()
        for function in waiting:
            self.queues.publish(settings.function_queue(self.plan, function=function), body, PHASE, overhead=False)
        self._active &= set(waiting)
        self._reports, self._round = {}, self._round + 1
        if not self._active:
            self.queues.publish(settings.client_queue(self.plan), json.dumps({"epoch": self._epoch}).encode(), "other")
            self._epoch, self._round, self._active = self._epoch + 1, 0, None


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Merge (AWS Lambda's entry point)."""
    task = Task.from_event(event)

    def work(queues: Queues) -> Task | None:
        with TensorDatabase(endpoints.tensor_urls()[0], queues.tracer) as database:
            return Job(task, context, queues, database).run()

    return accompany(task, settings.job_rank(task.plan), context, work)
