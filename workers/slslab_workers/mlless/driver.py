"""MLLess's trigger scripts: queues, the supervisor, n workers, and the client who hears of every step."""

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slslab_workers import endpoints
from slslab_workers.architecture import (
    Architecture,
    Cloud,
    Option,
    Outcome,
    Progress,
    Requirements,
    ResidentPhase,
    RunFailed,
)
from slslab_workers.deployment import Deployment, FunctionSpec, deploy_and_train
from slslab_workers.events import Tracer
from slslab_workers.job import PARTITION, REPLICAS, gradient_mb
from slslab_workers.logs import LOG_TRAFFIC
from slslab_workers.mlless.counts import counts
from slslab_workers.mlless.pattern import pattern
from slslab_workers.mlless.schedule import Schedule
from slslab_workers.mlless.settings import (
    REMOVED,
    Settings,
    acknowledge,
    client_queue,
    exchange_name,
    supervisor_queue,
    worker_queue,
)
from slslab_workers.mlless.supervisor import Supervision
from slslab_workers.plan import Plan, PlanError
from slslab_workers.queues import QUEUE, QueueError, Queues, open_queues

if TYPE_CHECKING:
    from slslab_workers.replicas import Replicas

SUPERVISOR_MEMORY = Option("supervisor-memory", int, 512, "Memory size of the supervisor's function, MB.")
# How often the client, while it hears nothing, looks whether somebody has died.
LOOK_S = 0.5


class MLLess(Architecture):
    """MLLess with a queue and a tensor database."""

    name = "mlless"
    summary = (
        "MLLess: a worker sends its update only when it is significant; a supervisor tells all workers which updates "
        "to expect.\n\n"
        "--as-released does what the authors' replication did: no filter, updates in S3, Adam, and its workers' log "
        "traffic."
    )
    options = (
        Option(
            "filter",
            str,
            "norm-ratio",
            "What is significant: norm-ratio sends everything kept so far when it is large against the model, "
            "coordinate (the original's) sends single coordinates, none sends every gradient.",
            ("norm-ratio", "coordinate", "none"),
            released="none",
        ),
        Option("threshold", float, 1.0, "The filter's threshold: larger sends less, 0 everything, inf nothing."),
        Option(
            "mean-over",
            str,
            "workers",
            "What the sum of a step's updates is divided by: workers counts every gradient once and as much as any "
            "other, as the original does; senders divides by those who sent in this step, as the released code does.",
            ("workers", "senders"),
            released="senders",
        ),
        Option(
            "store",
            str,
            "tensordb",
            "Where updates are kept: tensordb (the paper), s3 (as released).",
            ("tensordb", "s3"),
            released="s3",
        ),
        Option(
            "optimiser",
            str,
            "sgd",
            "sgd with the plan's momentum and weight decay, or adam; momentum may diverge with a filter "
            "(docs/architectures.md).",
            ("sgd", "adam"),
            released="adam",
        ),
        Option(
            "end-threshold", float, 0.0, "Training ends after ten steps in a row with a mean loss at or below this."
        ),
        Option(
            "max-time", float, 0.0, "Training ends after the step in which this many seconds are over; 0 for never."
        ),
        Option(
            "remove-threshold",
            float,
            "off",
            "Scale in: once the loss has flattened, remove one worker, and others while the loss projected for 10 s "
            "later is worse by less than this, in per cent of the one projected with all workers; for example 15. "
            "Needs --remove-interval.",
        ),
        Option(
            "remove-interval",
            float,
            "off",
            "Scale in: at least this many seconds between two decisions; for example 20. Needs --remove-threshold.",
        ),
        SUPERVISOR_MEMORY,
        QUEUE,
        LOG_TRAFFIC,
        REPLICAS,
        PARTITION,
    )

    def requirements(self, plan: Plan) -> Requirements:
        """A queue, and one tensor database that all share."""
        settings = Settings.of(plan)
        if settings.scales_in and plan.workers == 1:
            raise PlanError(
                "The only worker cannot be removed.",
                "give --workers 2 or more, or neither --remove-threshold nor --remove-interval.",
            )
        queue = str(plan.options.get("queue", "auto"))
        return Requirements(tensor_databases=1 if settings.store == "tensordb" else 0, queue=queue)

    def resident_set(self, plan: Plan) -> tuple[ResidentPhase, ...]:
        """All workers wait for each other and for the supervisor; a database keeps two updates of each, and the models
        of those who are removed."""
        beside_mb = int(plan.options.get(SUPERVISOR_MEMORY.name, SUPERVISOR_MEMORY.default))
        settings = Settings.of(plan)
        if settings.store == "tensordb":
            vectors = 2 * plan.workers + (plan.workers - 1 if settings.scales_in else 0)
            beside_mb += vectors * gradient_mb(plan)
        return (ResidentPhase(self.name, plan.workers, beside_mb),)

    counts = staticmethod(counts)
    pattern = staticmethod(pattern)

    def replicas(self) -> "type[Replicas]":
        """What is significant, when it is."""
        from slslab_workers.mlless.replicas import MLLessReplicas

        return MLLessReplicas

    def drive(self, plan: Plan, cloud: Cloud, progress: Progress) -> Outcome:
        """Deploy, invoke, wait, evaluate."""
        return deploy_and_train(MLLessDeployment(plan, cloud, progress))


class MLLessDeployment(Deployment):
    """Workers, their supervisor, and the queues between them."""

    def __init__(self, plan: Plan, cloud: Cloud, progress: Progress) -> None:
        super().__init__(plan, "slslab_workers.mlless.handlers.handler", cloud, progress)
        self.supervisor = f"{self.function[:53]}-supervisor"
        self._tracer = Tracer(cloud.emit, plan.run)
        self._environment: Mapping[str, str] = cloud.environment
        # What the supervisor of one stretch of steps leaves to that of the next.
        self._since, self._below = 0.0, 0
        self._tuner: dict[str, Any] | None = None
        # Every decision of the tuner, the steps that workers were removed after, and what these have left.
        self._decisions: list[dict[str, Any]] = []
        self._schedule = Schedule(plan.workers, plan.batches)
        self._removed: list[dict[str, Any]] = []

    def functions(self) -> list[FunctionSpec]:
        """Workers and supervisor."""
        memory_mb = int(self.plan.options.get(SUPERVISOR_MEMORY.name, SUPERVISOR_MEMORY.default))
        return [
            *super().functions(),
            FunctionSpec(self.supervisor, "slslab_workers.mlless.supervisor.handler", memory_mb),
        ]

    def create(self) -> None:
        """The functions, and the queues before anybody sends to them."""
        super().create()
        with self._queues() as queues:
            create_queues(queues, self.plan)

    def remove(self) -> None:
        """The functions, then the queues: whoever still waits at one of them ends with it."""
        try:
            super().remove()
        finally:
            with self._queues() as queues:
                delete_queues(queues, self.plan)

    def finished_epochs(self, result: Mapping[str, Any]) -> int:
        """Epochs that a worker has trained, which become longer when workers leave."""
        epoch, step = self._schedule.place(int(result["position"]))
        return epoch + (step > 0)

    def actual(self, planned: int, answer: Mapping[str, Any]) -> int:
        """The step that takes the place of a planned one, as far as a worker's last answer tells."""
        removals = answer.get("removals", self._schedule.removals)
        return Schedule(self.plan.workers, self.plan.batches, removals).actual(planned)

    def outcome(self, results: list[dict[str, Any]]) -> Outcome:
        """What those who are left computed; the losses are of all, and the details tell who was removed and why."""
        from slslab_workers.training import mean_losses

        outcome = super().outcome(results)
        if not Settings.of(self.plan).scales_in:
            return outcome
        starts = [self._schedule.start(epoch) for epoch in range(self.finished_epochs(results[0]))]
        losses = mean_losses([*results, *self._removed], starts)
        return replace(outcome, loss=losses, details={**outcome.details, "scale_in": self._decisions})

    def _stretch(self, first: int, until: int, *, keep: bool) -> list[dict[str, Any]]:
        """Results of those who are left."""
        results = super()._stretch(first, until, keep=keep)
        self._removed += [result for result in results if result["ended"] == REMOVED]
        left = [result for result in results if result["ended"] != REMOVED]
        self.ranks = [int(result["rank"]) for result in left]
        return left

    def _companions(self, first: int, until: int) -> list["Future[dict[str, Any]]"]:
        self._since = self._since or time.time()
        return [self._invokers.submit(self._supervise, first, until)]

    def _supervise(self, first: int, until: int) -> dict[str, Any]:
        """Have steps supervised, and hear of each of them; what was said of the last one."""
        supervision = Supervision(
            self.plan,
            first,
            until,
            self._below,
            self._since,
            removals=self._schedule.removals,
            tuner=self._tuner,
        )
        kind = "Event" if self.plan.invoke == "event" else "RequestResponse"
        answer = self.call(self.supervisor, supervision.to_event(), kind, None)
        with self._queues() as queues:
            statistics: dict[str, Any] = {"step": first - 1, "end": None}
            while statistics["step"] + 1 < self._schedule.actual(until) and statistics["end"] is None:
                heard = hear_statistics(queues, self.plan, statistics["step"] + 1)
                if heard is not None:
                    statistics = heard
                    self._note(heard.get("tuned"))
                elif self._stopping.is_set():
                    raise RunFailed("Stopped", "a worker failed first")
                elif answer.get("status") == "finished":
                    raise RunFailed("SupervisorSilent", f"the supervisor left nothing of step {statistics['step'] + 1}")
                else:
                    self._raise_recorded(None)
        self._below, self._tuner = statistics["below"], statistics.get("tuner")
        return statistics

    def _note(self, decision: dict[str, Any] | None) -> None:
        """Keep what the tuner decided after a step, if it did."""
        if decision is None:
            return
        self._decisions.append(decision)
        if decision["removed"] is not None:
            self._schedule = self._schedule.after(decision["step"], decision["removed"])

    @contextmanager
    def _queues(self) -> Iterator[Queues]:
        """A connection to the queues; whatever is wrong with it fails the run."""
        try:
            with open_queues(endpoints.queue_url(self._environment), self._tracer) as queues:
                yield queues
        except QueueError as error:
            raise RunFailed(type(error).__name__, str(error)) from error


def create_queues(queues: Queues, plan: Plan) -> None:
    """Have the queues of a run, those of its workers bound to the fan-out."""
    for queue in (supervisor_queue(plan), client_queue(plan)):
        queues.declare(queue)
    for rank in range(plan.workers):
        queue = worker_queue(plan, rank)
        queues.declare(queue)
        queues.bind(queue, exchange_name(plan))


def delete_queues(queues: Queues, plan: Plan) -> None:
    """Delete the queues of a run, if they are there."""
    for queue in (supervisor_queue(plan), client_queue(plan)):
        queues.delete(queue)
    for rank in range(plan.workers):
        queues.delete(worker_queue(plan, rank))
    queues.delete_exchange(exchange_name(plan))


def hear_statistics(queues: Queues, plan: Plan, step: int) -> dict[str, Any] | None:
    """What the supervisor tells the client of this step (TD), or None if it says nothing for half a second."""

    def is_other(body: bytes) -> bool:
        content = json.loads(body)
        return bool(content["type"] != "TD" or content["step"] != step)

    while (message := queues.consume(client_queue(plan), LOOK_S, "other", overhead=is_other)) is not None:
        acknowledge(message)
        if not is_other(message.body):
            return dict(json.loads(message.body))
    return None
