"""MLLess's trigger scripts: queues, the supervisor, n workers, and the client that receives each step's statistics."""

import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from slslab_workers.architecture import Cloud, Outcome, Progress, Requirements, ResidentPhase, RunFailed
from slslab_workers.channels.queues import Queues
from slslab_workers.driver.deployment import PATIENCE_S, QUEUE_OPTIONS, Deployment, FunctionArchitecture, FunctionSpec
from slslab_workers.driver.job import gradient_mb, mean_losses
from slslab_workers.mlless import settings
from slslab_workers.mlless.pattern import pattern
from slslab_workers.mlless.schedule import Schedule
from slslab_workers.mlless.supervisor import Supervision
from slslab_workers.option import Option
from slslab_workers.patterns import Counts
from slslab_workers.patterns.messages import Recorded
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import attacks, robust
from slslab_workers.training.options import OPTIMISER, PARTITION, REPLICAS, uneven
from slslab_workers.training.released_log import LOG_TRAFFIC


class MLLessDeployment(Deployment):
    """Deploys workers, their supervisor, and the queues between them."""

    def __init__(self, plan: Plan, handler: str, cloud: Cloud, progress: Progress) -> None:
        super().__init__(plan, handler, cloud, progress)
        self.supervisor = f"{self.function[:53]}-supervisor"
        # State that the supervisor of one stretch of steps passes on to the next one's.
        self._since, self._below = 0.0, 0
        self._tuner: dict[str, Any] | None = None
        # Every decision of the tuner, the steps after which workers were removed, and these workers' results.
        self._decisions: list[dict[str, Any]] = []
        self._schedule = Schedule(plan.workers, plan.batches)
        self._removed: list[dict[str, Any]] = []

    def functions(self) -> list[FunctionSpec]:
        memory_mb = int(self.plan.options["supervisor-memory"])
        return [
            *super().functions(),
            FunctionSpec(self.supervisor, "slslab_workers.mlless.supervisor.handler", memory_mb, (), self.supervisor),
        ]

    def bindings(self) -> dict[str, str]:
        """Return the supervisor's and client's queues, and the workers' queues, which are bound to the fan-out."""
        plan = self.plan
        workers = {settings.worker_queue(plan, rank=rank): settings.exchange_name(plan) for rank in range(plan.workers)}
        return {settings.supervisor_queue(plan): "", settings.client_queue(plan): "", **workers}

    def finished_epochs(self, result: Mapping[str, Any]) -> int:
        """Return how many epochs a worker has trained. Epochs become longer when workers are removed."""
        epoch, step = self._schedule.place(int(result["position"]))
        return epoch + (step > 0)

    def outcome(self, results: list[dict[str, Any]]) -> Outcome:
        """Return the remaining workers' results, with the losses of all workers; details name the removed workers."""
        outcome = super().outcome(results)
        if not settings.scales_in(self.plan):
            return outcome
        starts = [self._schedule.start(epoch) for epoch in range(self.finished_epochs(results[0]))]
        return replace(
            outcome,
            loss=mean_losses([*results, *self._removed], starts),
            details={**outcome.details, "scale_in": self._decisions},
        )

    def _stretch(self, first: int, until: int, *, keep: bool) -> list[dict[str, Any]]:
        results = super()._stretch(first, until, keep=keep)
        self._removed += [result for result in results if result["ended"] == settings.REMOVED]
        remaining = [result for result in results if result["ended"] != settings.REMOVED]
        self.ranks = [int(result["rank"]) for result in remaining]
        return remaining

    def _companions(self, first: int, until: int) -> list["Future[dict[str, Any]]"]:
        self._since = self._since or time.time()
        return [self._invokers.submit(self._supervise, first, until)]

    def _supervise(self, first: int, until: int) -> dict[str, Any]:
        supervision = Supervision(
            self.plan, first, until, self._below, self._since, removals=self._schedule.removals, tuner=self._tuner
        )
        answer = self.call(self.supervisor, supervision.to_event(), self.kind, None)
        with self._queues() as queues:
            statistics: dict[str, Any] = {"step": first - 1, "end": None}
            while statistics["step"] + 1 < self._schedule.actual(until) and statistics["end"] is None:
                received = receive_statistics(queues, self.plan, statistics["step"] + 1)
                if received is not None:
                    statistics = received
                    if decision := received.get("tuned"):
                        self._decisions.append(decision)
                        if decision["removed"] is not None:
                            self._schedule = self._schedule.after(decision["step"], decision["removed"])
                elif self._stopping.is_set():
                    raise RunFailed("Stopped", "a worker failed first")
                elif answer.get("status") == "finished":
                    raise RunFailed("SupervisorSilent", f"the supervisor sent nothing in step {statistics['step'] + 1}")
                else:
                    self._raise_recorded(None)
        self._below, self._tuner = statistics["below"], statistics.get("tuner")
        return statistics


class MLLess(FunctionArchitecture):
    """MLLess with a queue and a tensor database."""

    name = "mlless"
    title = "MLLess"
    paper = "Barrak et al. 2025"
    colour = "3"
    summary = (
        "MLLess: a worker sends its update only when it is significant; a supervisor announces which updates to "
        "expect.\n\n"
        "--as-released does what the authors' replication did: no filter, updates in S3, Adam, and its workers' log "
        "traffic."
    )
    options = (
        Option(
            "filter",
            str,
            "norm-ratio",
            "What counts as significant: norm-ratio sends the whole residual when it is large against the model, "
            "coordinate (the original's) sends single coordinates, none sends every gradient.",
            ("norm-ratio", "coordinate", "none"),
            released="none",
        ),
        Option("threshold", float, 1.0, "The filter's threshold: a larger one sends less, 0 everything, inf nothing."),
        Option(
            "mean-over",
            str,
            "workers",
            "The divisor for the sum of a step's updates: all workers, so that all gradients weigh the same, as in the "
            "original; or only the senders of this step, as in the released code.",
            ("workers", "senders"),
            released="senders",
        ),
        robust.option(
            "How a step's updates are combined: mean, see --mean-over; the other rules withstand Byzantine workers and "
            "need --filter none (docs/byzantine.md)."
        ),
        robust.BYZANTINE,
        attacks.ATTACK,
        Option(
            "store",
            str,
            "tensordb",
            "Where updates are stored: tensordb (the paper), s3 (as released).",
            ("tensordb", "s3"),
            released="s3",
        ),
        replace(
            OPTIMISER,
            help=f"{OPTIMISER.help} Momentum may diverge with a filter (docs/architectures.md).",
            released="adam",
        ),
        Option(
            "end-threshold", float, 0.0, "Training ends after ten steps in a row with a mean loss at or below this."
        ),
        Option("max-time", float, 0.0, "Training ends after the step that passes this many seconds; 0 for never."),
        Option(
            "remove-threshold",
            float,
            "off",
            "Scale in: remove a worker once the loss is flat. Remove more while the loss projected 10 s ahead is at "
            "most this many per cent higher than with all workers; for example 15. Needs --remove-interval.",
        ),
        Option(
            "remove-interval",
            float,
            "off",
            "Scale in: wait at least this many seconds between decisions; for example 20. Needs --remove-threshold.",
        ),
        Option("supervisor-memory", int, 512, "Memory size of the supervisor's function, MB.", memory=True),
        *QUEUE_OPTIONS,
        LOG_TRAFFIC,
        REPLICAS,
        PARTITION,
    )
    handler = "slslab_workers.mlless.handlers.handler"
    deploys = MLLessDeployment
    messages = staticmethod(pattern)
    exchange = "slslab_workers.mlless.protocol:protocol"
    learns = "slslab_workers.mlless.replicas:MLLessReplicas"

    def requirements(self, plan: Plan) -> Requirements:
        """Return a queue, and one tensor database that all workers share."""
        settings.check(plan)
        if settings.scales_in(plan):
            _check_scale_in(plan)
        robust.check(plan, "MLLess's workers announce their updates before they read the others'", "choose gpu.")
        filtered = plan.options["filter"]
        if filtered != "none":
            robust.refuse(
                plan,
                f"with --filter {filtered} a worker sends the sum of several steps' gradients, or nothing",
                "add --filter none.",
            )
            if str(attacks.ATTACK.of(plan.options)).startswith("nan:"):
                raise PlanError(
                    f"With --filter {filtered} NaN is never significant, and the attacker sends nothing.",
                    "add --filter none.",
                )
        return Requirements.with_queue(plan.options, int(plan.options["store"] == "tensordb"))

    def resident_set(self, plan: Plan) -> tuple[ResidentPhase, ...]:
        """Return the memory of all workers, which wait for each other, and of the supervisor.

        A database holds two updates of each worker, and the models of removed workers.
        """
        beside_mb = int(plan.options["supervisor-memory"])
        if plan.options["store"] == "tensordb":
            vectors = 2 * plan.workers + (plan.workers - 1 if settings.scales_in(plan) else 0)
            beside_mb += vectors * gradient_mb(plan)
        return (ResidentPhase(self.name, plan.workers, beside_mb, companions=1),)

    def counts_in(self, run: Recorded, epochs: int) -> Counts:
        """Return the `counts` of a recorded run; PlanError if a filter or the tuner decided them."""
        if run.plan.options["filter"] != "none" or settings.scales_in(run.plan):
            raise PlanError("a filter or the clock decides how many messages are sent", "choose --filter none.")
        return super().counts_in(run, epochs)

    def participant(self, plan: Plan, worker: int) -> str:
        return "the supervisor" if worker == plan.workers else super().participant(plan, worker)

    def solo(self, plan: Plan) -> Plan:
        """Return a plan for one worker that trains to the end and finds every residual significant."""
        solo = super().solo(plan)
        options = {**solo.options, "remove-threshold": "off", "remove-interval": "off", "max-time": 0.0}
        options["end-threshold"] = 0.0
        if options["filter"] == "norm-ratio":
            options["threshold"] = 0.0
        return replace(solo, options=options)


def _check_scale_in(plan: Plan) -> None:
    hint = "leave out --remove-threshold and --remove-interval."
    if plan.workers == 1:
        raise PlanError("A single worker can't be removed.", f"give --workers 2 or more, or {hint}")
    if plan.mode == "per-batch":
        raise PlanError("The auto-tuner times steps, which each begin with an invocation in --mode per-batch.", hint)
    if uneven(plan):
        raise PlanError(
            "Where workers may be removed, the others take over their minibatches: no worker keeps its samples.",
            f"leave out --partition, or {hint}",
        )
    robust.refuse(plan, "a removed worker sends none", hint)


def receive_statistics(queues: Queues, plan: Plan, step: int) -> dict[str, Any] | None:
    """Return the supervisor's statistics of this step (TD), or None if none arrive within half a second."""

    def is_awaited(content: Any) -> bool:
        return bool(content["type"] == "TD" and content["step"] == step)

    statistics: dict[str, Any] | None = queues.await_content(
        settings.client_queue(plan), PATIENCE_S, "other", is_awaited
    )
    return statistics
