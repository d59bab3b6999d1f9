"""MLLess's supervisor collects every worker's report of each step, and decides which updates to expect and whether to
continue.

With the scale-in auto-tuner it also removes workers: the one that reported last. It doesn't import torch, so a small
function is enough.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from slslab_workers.channels.queues import Queues, acknowledge
from slslab_workers.mlless import settings
from slslab_workers.mlless.schedule import Removal, Schedule
from slslab_workers.mlless.tuner import Decision, Tuner
from slslab_workers.plan import InvocationInput
from slslab_workers.training.lifetime import Companion, accompany


@dataclass(frozen=True)
class Supervision(InvocationInput):
    """The input of one invocation.

    It supervises steps `first` to `until` of the run, the latter as if no worker were removed. `below` is how many
    steps in a row were at or below the end threshold. `reports` are the reports of step `first` received so far, in
    this order. Wall times, s: `since`, the start of the run; `began`, the first of these reports; `reported`, the last
    report of any step; `decided`, the decision on the step before `first` (0 at the start). `removals` are the steps
    and ranks of removed workers, `tuner` is the tuner's state.
    """

    first: int
    until: int
    below: int = 0
    since: float = 0.0
    reports: tuple[Mapping[str, Any], ...] = ()
    began: float = 0.0
    reported: float = 0.0
    decided: float = 0.0
    removals: tuple[Removal, ...] = ()
    tuner: Mapping[str, Any] | None = None


class Supervisor(Companion[Supervision]):
    """The supervisor in one invocation. Its only state is its event."""

    keeps_s = 30.0

    def __init__(self, supervision: Supervision, context: Any, queues: Queues) -> None:
        super().__init__(supervision, context, queues)
        self._position = supervision.first
        self._below = supervision.below
        self._reports = {int(report["worker"]): report for report in supervision.reports}
        self._began = supervision.began
        self._reported = supervision.reported or time.time()
        self._decided = supervision.decided
        self._schedule = Schedule(self.plan.workers, self.plan.batches, supervision.removals)
        self._tuner = _make_tuner(supervision)

    def run(self) -> Supervision | None:
        """Supervise to the end, and return None; or until time is short, and return the next input."""
        end = None
        while self._position < self._schedule.actual(self.task.until) and end is None:
            if not self._collect_reports():
                return replace(
                    self.task,
                    first=self._position,
                    below=self._below,
                    reports=tuple(self._reports.values()),
                    began=self._began,
                    reported=self._reported,
                    decided=self._decided,
                    removals=self._schedule.removals,
                    tuner=self._tuner.to_document() if self._tuner else None,
                )
            end = self._conclude()
        return None

    def _collect_reports(self) -> bool:
        """Receive all reports of this step; False if time is too short, TimeoutError after an hour without reports."""
        queue = settings.supervisor_queue(self.plan)
        while len(self._reports) < len(self._schedule.ranks):
            message = self.receive(queue, self._reported, self._silent, self._is_repeated)
            if message is None:
                return False
            self._note(json.loads(message.body))
            acknowledge(message)
        return True

    def _silent(self) -> str:
        missing = sorted(set(self._schedule.ranks) - self._reports.keys())
        return f"Workers {missing} reported nothing in step {self._position}"

    def _note(self, report: Mapping[str, Any]) -> None:
        if report["step"] > self._position:
            # AWS may deliver an asynchronous event twice.
            raise RuntimeError(
                f"Worker {report['worker']} is at step {report['step']} before step {self._position} is decided: "
                "another invocation supervises in this one's place. Run the plan again."
            )
        if report["step"] == self._position and report["worker"] not in self._reports:
            self._reported = time.time()
            self._began = self._began if self._reports else self._reported
            self._reports[report["worker"]] = report

    def _is_repeated(self, body: bytes) -> bool:
        report = json.loads(body)
        return report["step"] < self._position or report["worker"] in self._reports

    def _conclude(self) -> str | None:
        position, reports = self._position, [self._reports[rank] for rank in sorted(self._reports)]
        loss = sum(report["loss"] for report in reports) / len(reports)
        end = self._judge(loss)
        last = end is not None or position + 1 == self._schedule.actual(self.task.until)
        tuned = self._tune(loss, end)
        removed = None
        if tuned is not None and tuned.remove:
            # Dictionaries are ordered: this worker reported last.
            removed = int(next(reversed(self._reports)))
            self._schedule = self._schedule.after(position, removed)
        self._decide(reports, end, last, removed)
        if end is not None:
            self.queues.fan_out(settings.exchange_name(self.plan), self._message("F"), "other")
            seconds = time.time() - self.task.since
            self._inform_client({"type": "T", "step": position, "seconds": seconds, "end": end}, overhead=True)
        # The last message of a step. After it the driver may delete the queues.
        statistics: dict[str, Any] = {
            "step": position,
            "seconds": self._reported - self._began,
            "below": self._below,
            "end": end,
        }
        if self._tuner is not None:
            statistics["tuned"] = None if tuned is None else {**asdict(tuned), "removed": removed}
            # The state for the next stretch's supervisor. Sent in every step, the messages would keep growing.
            statistics["tuner"] = self._tuner.to_document() if last and end is None else None
        self._inform_client({"type": "TD", **statistics}, overhead=False)
        self._position, self._reports = position + 1, {}
        return end

    def _tune(self, loss: float, end: str | None) -> Decision | None:
        before, self._decided = self._decided, time.time()
        if self._tuner is None:
            return None
        # The duration of a stretch's first step is unknown, because its workers were started in it.
        self._tuner.record(self._position, loss, self._decided - before if before else None)
        return self._tuner.decide(self._position) if end is None else None

    def _judge(self, loss: float) -> str | None:
        self._below = settings.count_below(self.plan, loss, self._below)
        if self._below >= settings.END_STEPS:
            return "loss"
        max_time = float(self.plan.options["max-time"])
        if max_time and time.time() - self.task.since >= max_time:
            return "time"
        return "epochs" if self._position + 1 == self._schedule.start(self.plan.epochs) else None

    def _decide(self, reports: list[Mapping[str, Any]], end: str | None, last: bool, removed: int | None) -> None:
        """Tell the removed worker, if any (K), and then all workers which updates to expect, whether to continue, and
        who is removed (C)."""
        updates = [report["worker"] for report in reports if report["update"]]
        if removed is not None:
            told = self._message("K", updates=updates)
            self.queues.publish(settings.worker_queue(self.plan, rank=removed), told, "synchronise")
        leaving = not last and any(report["leaving"] for report in reports if report["worker"] != removed)
        decision = self._message("C", updates=updates, end=end, leaving=leaving, removed=removed)
        self.queues.fan_out(settings.exchange_name(self.plan), decision, "synchronise", overhead=False)

    def _message(self, kind: str, **content: Any) -> bytes:
        return json.dumps({"type": kind, "worker": settings.SUPERVISOR, "step": self._position, **content}).encode()

    def _inform_client(self, content: dict[str, Any], *, overhead: bool) -> None:
        self.queues.publish(settings.client_queue(self.plan), json.dumps(content).encode(), "other", overhead=overhead)


def _make_tuner(supervision: Supervision) -> Tuner | None:
    plan = supervision.plan
    if not settings.scales_in(plan):
        return None
    threshold, interval_s = (float(plan.options[f"remove-{name}"]) for name in ("threshold", "interval"))
    if supervision.tuner is None:
        return Tuner(threshold, interval_s, plan.workers)
    return Tuner.from_document(supervision.tuner, threshold, interval_s)


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Supervise: AWS Lambda's entry point."""
    task = Supervision.from_event(event)
    return accompany(task, task.plan.workers, context, lambda queues: Supervisor(task, context, queues).run())
