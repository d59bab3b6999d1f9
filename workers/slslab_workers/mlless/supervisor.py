"""MLLess's supervisor: hears of every worker in every step, and says whose updates to expect and whether to go on.

It imports no torch, so that a small function does.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from slslab_workers import endpoints
from slslab_workers.events import Tracer
from slslab_workers.lifetime import invoke_again, remaining_s, reserve_s
from slslab_workers.mlless.settings import (
    END_STEPS,
    SUPERVISOR,
    Settings,
    client_queue,
    exchange_name,
    supervisor_queue,
)
from slslab_workers.plan import Plan
from slslab_workers.queues import Queues, open_queues


@dataclass(frozen=True)
class Supervision:
    """What one invocation is asked to do: steps `first` to `until` of the run, having seen `below` steps in a row at or
    below the end threshold; `since` is the wall time (s) at which the run began."""

    plan: Plan
    first: int
    until: int
    below: int = 0
    since: float = 0.0

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Self:
        """Read a Lambda event."""
        return cls(**{**event, "plan": Plan.from_document(event["plan"])})

    def to_event(self) -> dict[str, Any]:
        """The Lambda event."""
        return {**asdict(self), "plan": self.plan.to_document()}


class Supervisor:
    """The supervisor in one invocation. In the trace it is the worker after the last one."""

    def __init__(self, supervision: Supervision, context: Any, queues: Queues) -> None:
        self._task = supervision
        self._plan = supervision.plan
        self._settings = Settings.of(supervision.plan)
        self._context = context
        self._queues = queues
        self._below = supervision.below
        self._longest_step_s = 0.0
        # What is told of later steps than the present one, by step and worker.
        self._told: dict[int, dict[int, dict[str, Any]]] = {}

    def run(self) -> dict[str, Any]:
        """Supervise until the end or until time is short; what was decided last."""
        for position in range(self._task.first, self._task.until):
            started = time.monotonic()
            reports, spread_s = self._hear(position)
            end = self._judge(reports, position)
            self._longest_step_s = max(self._longest_step_s, time.monotonic() - started)
            last = position + 1 == self._task.until
            leaving = not last and end is None and (self._short_of_time() or any(r["leaving"] for r in reports))
            self._decide(position, reports, end, leaving)
            self._tell_client({"type": "TD", "step": position, "seconds": spread_s}, overhead=False)
            if leaving:
                return {"status": "continued", "position": position + 1, "below": self._below}
            if end is not None:
                self._finish(position + 1, end)
                return {"status": "finished", "position": position + 1, "below": self._below}
        return {"status": "finished", "position": self._task.until, "below": self._below}

    def _hear(self, position: int) -> tuple[list[dict[str, Any]], float]:
        """I messages of all workers for this step by rank, and seconds between the first and the last."""
        told = self._told.pop(position, {})
        first = time.monotonic()
        while len(told) < self._plan.workers:
            queue = supervisor_queue(self._plan)
            patience_s = max(1.0, remaining_s(self._context))
            message = self._queues.consume(
                queue,
                patience_s,
                "synchronise",
                overhead=lambda body: self._is_repeated(json.loads(body), position, told),
            )
            if message is None:
                missing = sorted(set(range(self._plan.workers)) - set(told))
                raise TimeoutError(
                    f"Nothing was heard of workers {missing} in step {position} until the time was over."
                )
            report = json.loads(message.body)
            message.ack()
            if not told:
                first = time.monotonic()
            if report["step"] == position:
                told.setdefault(report["worker"], report)
            elif report["step"] > position:
                self._told.setdefault(report["step"], {}).setdefault(report["worker"], report)
        return [told[rank] for rank in sorted(told)], time.monotonic() - first

    def _is_repeated(self, report: Mapping[str, Any], position: int, told: Mapping[int, Any]) -> bool:
        """Whether a report was delivered before."""
        step, worker = report["step"], report["worker"]
        return step < position or worker in (told if step == position else self._told.get(step, {}))

    def _judge(self, reports: list[dict[str, Any]], position: int) -> str | None:
        """Why training ends after this step, if it does."""
        loss = sum(report["loss"] for report in reports) / len(reports)
        self._below = self._below + 1 if loss <= self._settings.end_threshold else 0
        if self._below >= END_STEPS:
            return "loss"
        if self._settings.max_time and time.time() - self._task.since >= self._settings.max_time:
            return "time"
        return "epochs" if position + 1 == self._plan.epochs * self._plan.batches else None

    def _decide(self, position: int, reports: list[dict[str, Any]], end: str | None, leaving: bool) -> None:
        decision = {
            "type": "C",
            "worker": SUPERVISOR,
            "step": position,
            "updates": [report["worker"] for report in reports if report["update"]],
            "end": end,
            "leaving": leaving,
        }
        exchange = exchange_name(self._plan)
        self._queues.fan_out(exchange, json.dumps(decision).encode(), "synchronise", overhead=False)

    def _finish(self, position: int, end: str) -> None:
        finish = json.dumps({"type": "F", "worker": SUPERVISOR, "step": position}).encode()
        self._queues.fan_out(exchange_name(self._plan), finish, "other")
        seconds = time.time() - self._task.since
        self._tell_client({"type": "T", "step": position, "seconds": seconds, "end": end}, overhead=True)

    def _tell_client(self, content: dict[str, Any], *, overhead: bool) -> None:
        self._queues.publish(client_queue(self._plan), json.dumps(content).encode(), "other", overhead=overhead)

    def _short_of_time(self) -> bool:
        """Whether too little is left for another step and the hand-over."""
        return remaining_s(self._context) < reserve_s(self._plan.timeout, self._longest_step_s)


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """AWS Lambda's entry point."""
    task = Supervision.from_event(event)
    tracer = Tracer(run=task.plan.run, worker=task.plan.workers, invocation=context.aws_request_id)
    queues = open_queues(endpoints.queue_url(), tracer)
    try:
        result = Supervisor(task, context, queues).run()
    finally:
        queues.close()
    if result["status"] == "continued":
        following = Supervision(task.plan, result["position"], task.until, result["below"], task.since)
        invoke_again(following.to_event(), context, tracer)
    return result
