"""KubeML's trigger script: it invokes each epoch's functions, and the job that merges their models."""

import json
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from statistics import fmean
from types import MappingProxyType
from typing import Any

from slslab_workers.architecture import Cloud, Outcome, Progress, Requirements, ResidentPhase, RunFailed
from slslab_workers.channels import endpoints
from slslab_workers.channels.stream import Unreachable
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.driver.deployment import (
    PATIENCE_S,
    QUEUE_OPTIONS,
    Deployment,
    FunctionArchitecture,
    FunctionSpec,
    refuse_modes,
)
from slslab_workers.driver.job import gradient_mb
from slslab_workers.kubeml import settings
from slslab_workers.kubeml.job import Task
from slslab_workers.kubeml.merging import weighted
from slslab_workers.kubeml.pattern import pattern
from slslab_workers.kubeml.shares import ALL, DOCUMENT, K, document_count
from slslab_workers.models import spec_of
from slslab_workers.option import Option
from slslab_workers.patterns import Counts
from slslab_workers.patterns.messages import Recorded
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training.options import OPTIMISER, PARTITION, uneven

# Memory of the job without the models that it holds, MB: NumPy and boto3. It holds a sum and a part of one.
JOB_MB, JOB_MODELS = 256, 3
JOB_MEMORY = Option(
    "job-memory",
    int,
    0,
    f"Memory size of the job, which merges, MB. 0 means {JOB_MB} MB plus {JOB_MODELS} models.",
    memory=True,
    needed_mb=lambda plan: JOB_MB + JOB_MODELS * gradient_mb(plan),
    chosen=("the job needs", "choose --job-memory"),
)


# Relative to the epoch that decided the last change of the number of functions.
NO_SLOWER, SLOWER = 1.05, 1.2


class Scheduler:
    """Decides how many functions train: one more while epochs don't take longer, one fewer when they do."""

    def __init__(self, plan: Plan) -> None:
        self.functions = plan.workers
        self._static = plan.options[settings.PARALLELISM.name] == settings.STATIC
        self._most = settings.most_functions(plan)
        self._reference_s: float | None = None

    def record(self, elapsed_s: float) -> None:
        """Decide by how long the last epoch took; the first is the reference for later ones."""
        if self._static:
            return
        reference = self._reference_s
        if reference is None or elapsed_s <= NO_SLOWER * reference:
            self.functions, self._reference_s = min(self.functions + 1, self._most), elapsed_s
        elif elapsed_s >= SLOWER * reference:
            self.functions, self._reference_s = max(self.functions - 1, 1), elapsed_s


class KubeMLDeployment(Deployment):
    """Deploys the functions, the job that merges, and the driver, which schedules."""

    def __init__(self, plan: Plan, handler: str, cloud: Cloud, progress: Progress) -> None:
        super().__init__(plan, handler, cloud, progress)
        self._init, self._job = (f"{self.function[:59]}-{name}" for name in ("init", "job"))
        self._most = settings.most_functions(plan)
        self._invokers = ThreadPoolExecutor(self._most + 1, thread_name_prefix="invoke")
        self._merging: Future[dict[str, Any]] = Future()
        # The functions' results by epoch, and the functions that failed.
        self._results: list[list[dict[str, Any]]] = []
        self._failed: list[dict[str, Any]] = []
        self.created.callback(self._remove_tensors)

    def functions(self) -> list[FunctionSpec]:
        """Return the functions that train and validate, the one that initialises the model, and the job."""
        plan = self.plan
        return [
            FunctionSpec(self.function, self.handler, plan.memory_mb, ("s3:GetObject",)),
            FunctionSpec(self._init, self.handler, plan.memory_mb),
            FunctionSpec(self._job, "slslab_workers.kubeml.job.handler", JOB_MEMORY.size_mb(plan), (), self._job),
        ]

    def bindings(self) -> dict[str, str]:
        """Return the queues of the job, the driver, and all functions that there may be."""
        functions = (settings.function_queue(self.plan, function=function) for function in range(self._most))
        return dict.fromkeys((settings.job_queue(self.plan), settings.client_queue(self.plan), *functions), "")

    def train(self) -> Outcome:
        """Train all epochs, or until the plan's accuracy. The scheduler decides how many functions each epoch has."""
        plan, scheduler = self.plan, Scheduler(self.plan)
        self._store(settings.TRAIN, self._samples.images, self._samples.labels, self._samples.indices(0).reshape(-1))
        dataset = self._samples.dataset
        if plan.evaluation:
            self._store(settings.TEST, dataset.test_images, dataset.test_labels, range(len(dataset.test_labels)))
        layers = self.call(self._init, self._event("init", 0, 0, 1), "RequestResponse", 0)["layers"]
        event = Task(plan, tuple(layers)).to_event()
        self._merging = self._invokers.submit(self.call, self._job, event, self.kind, None)
        judged: list[dict[str, Any]] = []
        for epoch in range(plan.epochs):
            began = time.monotonic()
            self._train_epoch(epoch, scheduler.functions)
            elapsed_s = time.monotonic() - began
            if plan.evaluation:
                judged = self._call_all("val", epoch, scheduler.functions)
                if self.record(epoch, *weighted(judged)):
                    break
            scheduler.record(elapsed_s)
        self._tell_job({"type": settings.STOP})
        self._first_failure_ends([self._merging])
        return self._outcome(layers, judged)

    def _remove_tensors(self) -> None:
        with suppress(Unreachable), self._database() as database:
            database.delete_all(settings.reference_key(self.plan, layer=""))

    def _database(self) -> TensorDatabase:
        return TensorDatabase(endpoints.tensor_urls(self._cloud.environment)[0], self._tracer)

    def _store(self, collection: str, inputs: Any, labels: Any, order: Any) -> None:
        numbers = range(document_count(len(order)))
        keyed = (
            (
                settings.document_key(self.plan, collection=collection, number=number),
                order[number * DOCUMENT : (number + 1) * DOCUMENT],
            )
            for number in numbers
        )
        self.upload_all(partial(self.store, inputs, labels), keyed, self._uploaded + len(numbers))

    def _event(self, task: str, epoch: int, function: int, functions: int) -> dict[str, Any]:
        return {
            "plan": self.plan.to_document(),
            "bucket": self.bucket,
            "task": task,
            "test_samples": len(self._samples.dataset.test_labels),
            "epoch": epoch,
            "function": function,
            "functions": functions,
        }

    def _call_all(self, task: str, epoch: int, functions: int) -> list[dict[str, Any]]:
        events = [self._event(task, epoch, function, functions) for function in range(functions)]
        return self._first_failure_ends(
            [
                self._invokers.submit(self.call, self.function, event, "RequestResponse", event["function"])
                for event in events
            ]
        )

    def _train_epoch(self, epoch: int, functions: int) -> None:
        """Run all functions of an epoch until all rounds are merged.

        A failed function is left out from the round that it doesn't report in. RunFailed if all functions fail, or the
        job.
        """
        answers = self._first_failure_ends(
            [self._invokers.submit(self._train, epoch, function, functions) for function in range(functions)]
        )
        results = [answer for answer in answers if not isinstance(answer, RunFailed)]
        for failure in [answer for answer in answers if isinstance(answer, RunFailed)]:
            if not results:
                raise failure
            self._failed.append({"epoch": epoch, "function": failure.worker, "error": f"{failure.type}: {failure}"})
        queue = settings.client_queue(self.plan)
        with self._queues() as queues:
            while not queues.await_content(
                queue, PATIENCE_S, "other", lambda content: content["epoch"] == epoch, overhead=True
            ):
                self._check_companion()
        self._results.append(results)

    def _train(self, epoch: int, function: int, functions: int) -> dict[str, Any] | RunFailed:
        event = self._event("train", epoch, function, functions)
        try:
            return self.call(self.function, event, "RequestResponse", function)
        except RunFailed as failure:
            self._tell_job(settings.report(settings.FAILED, epoch, functions, function, -1))
            return failure

    def _tell_job(self, content: Mapping[str, Any]) -> None:
        with self._queues() as queues:
            queues.publish(settings.job_queue(self.plan), json.dumps(content).encode(), "other")

    def _check_companion(self) -> None:
        if self._merging.done() and self._merging.result()["status"] == "continued":
            self._raise_recorded(None)

    def _outcome(self, layers: list[str], judged: list[dict[str, Any]]) -> Outcome:
        """Return the results of the run by the reference model; `judged` are the functions' last evaluations."""
        from slslab_workers.kubeml.local import parameters_of, write_tensors
        from slslab_workers.training import gradients, models

        model = models.build(spec_of(self.plan), self.plan.seed)
        with self._database() as database:
            keys = {layer: settings.reference_key(self.plan, layer=layer) for layer in layers}
            write_tensors(model, {layer: database.get(key, "other") for layer, key in keys.items()})
        flat = parameters_of(model)
        sha256 = gradients.sha256(flat)
        failed = {"failed_functions": self._failed} if self._failed else {}
        first = self._results[-1][0]
        return Outcome(
            loss=tuple(fmean(loss for one in results for loss in one["losses"]) for results in self._results),
            accuracy=tuple(self.accuracies),
            parameters=flat.numel(),
            parameters_sha256=sha256,
            replicas_equal={one["parameters_sha256"] for one in judged} <= {sha256},
            epochs=len(self._results),
            updates=sum(len(results[0]["losses"]) for results in self._results),
            threads=first["threads"],
            details={"torch": first["torch"], **self._shares(), **failed},
        )


class KubeML(FunctionArchitecture):
    """KubeML: K-AVG in functions that last an epoch, merged by a job that lasts all epochs."""

    name = "kubeml"
    title = "KubeML"
    paper = "Petrescu et al. 2023"
    summary = (
        "KubeML over a tensor database: N functions an epoch train locally, and every K minibatches a job averages "
        "their models (K-AVG).\n\n"
        "Data are documents of 64 samples in a stored order. Functions validate after each epoch. With --as-released "
        "the throughput decides how many functions there are."
    )
    options = (
        K,
        settings.PARALLELISM,
        OPTIMISER,
        JOB_MEMORY,
        *QUEUE_OPTIONS,
        PARTITION,
    )
    # Rules that withstand Byzantine functions.
    former = MappingProxyType({"combine": "mean", "byzantine": 0, "attack": "none"})
    handler = "slslab_workers.kubeml.function.handler"
    deploys = KubeMLDeployment
    messages = staticmethod(pattern)
    exchange = "slslab_workers.kubeml.protocol:protocol"
    learns = "slslab_workers.kubeml.replicas:KubeMLReplicas"

    def requirements(self, plan: Plan) -> Requirements:
        """Return a tensor database and a queue; PlanError if KubeML can't run the plan."""
        options, k = plan.options, int(plan.options[K.name])
        refuse_modes(plan, "KubeML's driver invokes its functions once an epoch, and waits for them.")
        if plan.early_stopping:
            raise PlanError(
                "KubeML can only stop at a goal accuracy: it holds no samples out.",
                "give --until-accuracy, or leave out --early-stopping.",
            )
        if k < 1 and k != ALL:
            raise PlanError(f"k is {k}.", f"give 1 minibatch or more, or {ALL} for a whole epoch.")
        documents = settings.epoch_of(plan, plan.workers).documents
        if plan.workers > documents:
            raise PlanError(
                f"There are {plan.workers} functions but only {documents} documents of {DOCUMENT} samples.",
                f"--workers {documents} fits, or more --batches.",
            )
        _check_partition(plan)
        return Requirements.with_queue(options, 1)

    def resident_set(self, plan: Plan) -> tuple[ResidentPhase, ...]:
        """Return the memory of the most functions that may run at once, the job, and a database with all their models
        and the reference."""
        functions = settings.most_functions(plan)
        beside_mb = JOB_MEMORY.size_mb(plan) + (functions + 1) * gradient_mb(plan)
        return (ResidentPhase(self.name, functions, beside_mb, companions=1),)

    def counts_in(self, run: Recorded, epochs: int) -> Counts:
        """Return the `counts` of a recorded run; PlanError if a function failed."""
        if run.document is not None and run.document["details"].get("failed_functions"):
            raise PlanError("a function failed", "check a run without faults.")
        return super().counts_in(run, epochs)

    def participant(self, plan: Plan, worker: int) -> str:
        return "the job" if worker == settings.job_rank(plan) else super().participant(plan, worker)

    def solo(self, plan: Plan) -> Plan:
        """Return the plan of one function with documents for its own minibatches, and the same parallelism."""
        solo = super().solo(plan)
        return replace(solo, options={**solo.options, settings.PARALLELISM.name: settings.STATIC})


def _check_partition(plan: Plan) -> None:
    """Raise PlanError if the plan gives each function samples of its own, and functions can't keep them apart."""
    chosen = PARTITION.of(plan.options)
    if uneven(plan) is None and chosen != "overlapping":
        return
    if plan.options[settings.PARALLELISM.name] != settings.STATIC:
        raise PlanError(
            f"--partition {chosen} needs a fixed number of functions, but --parallelism throughput changes it.",
            f"give --parallelism {settings.STATIC}.",
        )
    if samples := plan.batches * plan.batch_size % DOCUMENT:
        raise PlanError(
            f"KubeML's functions read whole documents of {DOCUMENT} samples, and the last {samples} samples of a "
            "function would share one with the next function's.",
            f"give --batches and --batch-size with a product that {DOCUMENT} divides.",
        )
