"""MLLess's trigger scripts: the supervisor first, which hears of everybody, then n workers."""

import json
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from slslab_workers import endpoints
from slslab_workers.architecture import (
    NO_OPTIONS,
    Architecture,
    Cloud,
    Counts,
    Option,
    Outcome,
    Progress,
    Requirements,
    ResidentPhase,
)
from slslab_workers.deployment import Deployment, FunctionSpec, deploy_and_train
from slslab_workers.events import Tracer
from slslab_workers.job import PARTITION, REPLICAS
from slslab_workers.mlless.counts import counts
from slslab_workers.mlless.settings import Settings, client_queue, exchange_name, supervisor_queue, worker_queue
from slslab_workers.mlless.supervisor import Supervision
from slslab_workers.plan import Plan, Value
from slslab_workers.queues import QUEUE, Queues, open_queues

SUPERVISOR_MEMORY = Option("supervisor-memory", int, 512, "Memory size of the supervisor's function, MB.")
CLIENT_PATIENCE_S = 10.0


class MLLess(Architecture):
    """MLLess with a queue and a tensor database."""

    name = "mlless"
    summary = (
        "MLLess: a worker sends its update only when it is significant; a supervisor tells all workers which updates "
        "to expect.\n\n"
        "--as-released does what the authors' replication did: no filter, updates in S3, Adam."
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
            "sgd with the plan's momentum and weight decay, or adam.",
            ("sgd", "adam"),
            released="adam",
        ),
        Option(
            "end-threshold", float, 0.0, "Training ends after ten steps in a row with a mean loss at or below this."
        ),
        Option(
            "max-time", float, 0.0, "Training ends after the step in which this many seconds are over; 0 for never."
        ),
        SUPERVISOR_MEMORY,
        QUEUE,
        REPLICAS,
        PARTITION,
    )

    def requirements(self, plan: Plan) -> Requirements:
        """A queue, and one tensor database that all share."""
        store = Settings.of(plan).store
        queue = str(plan.options.get("queue", "auto"))
        return Requirements(tensor_databases=1 if store == "tensordb" else 0, queue=queue)

    def resident_set(self, plan: Plan) -> tuple[ResidentPhase, ...]:
        """All workers wait for each other and for the supervisor."""
        return (ResidentPhase(self.name, plan.workers + 1),)

    def counts(
        self,
        workers: int,
        batches: int,
        epochs: int,
        parameters: int,
        options: Mapping[str, Value] = NO_OPTIONS,
    ) -> Counts:
        """Closed-form messages and bytes over all epochs, if every update is significant (`--filter none`)."""
        return counts(workers, batches, epochs, parameters, store=str(options.get("store", "tensordb")))

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
        self._since = 0.0

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
            for queue in (supervisor_queue(self.plan), client_queue(self.plan)):
                queues.declare(queue)
            for rank in range(self.plan.workers):
                queue = worker_queue(self.plan, rank)
                queues.declare(queue)
                queues.bind(queue, exchange_name(self.plan))

    def remove(self) -> None:
        """The functions first, so that nobody writes to the queues that go after them."""
        try:
            super().remove()
        finally:
            with self._queues() as queues:
                for queue in (supervisor_queue(self.plan), client_queue(self.plan)):
                    queues.delete(queue)
                for rank in range(self.plan.workers):
                    queues.delete(worker_queue(self.plan, rank))
                queues.delete_exchange(exchange_name(self.plan))

    def _stretch(self, first: int, until: int, *, keep: bool) -> list[dict[str, Any]]:
        results = super()._stretch(first, until, keep=keep)
        self._hear_statistics(results[0]["position"] - first)
        return results

    def _companions(self, first: int, until: int) -> list["Future[dict[str, Any]]"]:
        self._since = self._since or time.time()
        supervision = Supervision(self.plan, first, until, since=self._since)
        kind = "Event" if self.plan.invoke == "event" else "RequestResponse"
        return [self._invokers.submit(self.call, self.supervisor, supervision.to_event(), kind, None)]

    def _hear_statistics(self, steps: int) -> None:
        """Take the supervisor's statistics (TD), one a step, from the client's queue."""
        heard: set[int] = set()
        with self._queues() as queues:
            while len(heard) < steps:
                message = queues.consume(client_queue(self.plan), CLIENT_PATIENCE_S, "other", overhead=False)
                if message is None:
                    break
                content = json.loads(message.body)
                message.ack()
                if content["type"] == "TD":
                    heard.add(content["step"])

    def _queues(self) -> Queues:
        return open_queues(endpoints.queue_url(self._environment), self._tracer)
