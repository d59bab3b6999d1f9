"""The functions' Lambda handler. Its tasks: `init` stores the first model, `train` trains a share of an epoch's
documents from merge to merge, `val` evaluates a share of the test documents."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch

from slslab_workers.channels import endpoints
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Objects, connected
from slslab_workers.channels.queues import Queues, open_queues
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.kubeml import settings
from slslab_workers.kubeml.local import LocalTraining, joined, parameters_of, read_tensors, validate, write_tensors
from slslab_workers.kubeml.shares import document_count, share_of
from slslab_workers.plan import Plan, thread_count
from slslab_workers.training import gradients, models
from slslab_workers.training.lifetime import remaining_s
from slslab_workers.training.optimisers import make_optimiser
from slslab_workers.training.state import WorkerState

PHASE = "synchronise"


class Function(ExitStack):
    """One invocation. Use it as a context manager, which closes its connections."""

    def __init__(self, event: Mapping[str, Any], context: Any) -> None:
        super().__init__()
        self.plan = Plan.from_document(event["plan"])
        self.event = event
        self.context = context
        self.rank, self.epoch = int(event["function"]), int(event["epoch"])
        self.tracer = Tracer(run=self.plan.run, worker=self.rank, invocation=context.aws_request_id)
        self.tracer.epoch = self.epoch
        self.database = self.enter_context(TensorDatabase(endpoints.tensor_urls()[0], self.tracer))
        torch.set_num_threads(thread_count(self.plan.memory_mb))

    def init(self) -> dict[str, Any]:
        """Store the first model as the reference, and return its entries' names."""
        tensors = read_tensors(models.kept(self.plan, self.tracer))
        for layer, vector in tensors.items():
            self.database.set(settings.reference_key(self.plan, layer=layer), vector, "other", overhead=False)
        return {"layers": list(tensors)}

    def train(self) -> dict[str, Any]:
        """Train from merge to merge; return the losses of all minibatches."""
        model, functions = models.kept(self.plan, self.tracer), int(self.event["functions"])
        local = LocalTraining(
            self.plan, self.rank, self.epoch, WorkerState(model, make_optimiser(self.plan, model)), self.tracer
        )
        objects, layers, losses = connected(self.event["bucket"], self.tracer), list(model.state_dict()), list[float]()
        intervals = settings.epoch_of(self.plan, functions).intervals(self.rank)
        with open_queues(endpoints.queue_url(), self.tracer) as queues:
            for number, documents in enumerate(intervals):
                reference = settings.get_reference(self.database, self.plan, layers, "fetch")
                losses += local.train(reference, *self._documents(objects, settings.TRAIN, documents))
                self.tracer.step = -1
                for layer, vector in read_tensors(model).items():
                    self.database.set(
                        settings.copy_key(self.plan, layer=layer, function=self.rank), vector, PHASE, overhead=False
                    )
                last = number == len(intervals) - 1
                # Ask the job to merge this function's model (KubeML's POST /next), or tell it that the function ends.
                kind = settings.END if last else settings.NEXT
                report = json.dumps(settings.report(kind, self.epoch, functions, self.rank, number)).encode()
                queues.publish(settings.job_queue(self.plan), report, PHASE, overhead=False)
                if not last:
                    self._await_merge(queues, number)
        return {"losses": losses, "threads": thread_count(self.plan.memory_mb), "torch": torch.__version__}

    def val(self) -> dict[str, Any]:
        """Evaluate the reference model on this function's share of the test documents."""
        model = models.kept(self.plan, self.tracer)
        write_tensors(model, settings.get_reference(self.database, self.plan, list(model.state_dict()), "other"))
        share = share_of(document_count(int(self.event["test_samples"])), int(self.event["functions"]), self.rank)
        sha256 = gradients.sha256(parameters_of(model))
        if not share:
            return {"accuracy": 0.0, "loss": 0.0, "length": 0, "parameters_sha256": sha256}
        samples = self._documents(connected(self.event["bucket"], self.tracer), settings.TEST, share)
        with self.tracer.span("validate", "other"):
            return {**validate(model, *samples), "parameters_sha256": sha256}

    def _documents(self, objects: Objects, collection: str, documents: range) -> Any:
        phase = "fetch" if collection == settings.TRAIN else "other"
        keys = [settings.document_key(self.plan, collection=collection, number=number) for number in documents]
        return joined([objects.get(key, phase) for key in keys])

    def _await_merge(self, queues: Queues, round_: int) -> None:
        queue, awaited = settings.function_queue(self.plan, function=self.rank), [self.epoch, round_]
        time_s = remaining_s(self.context)
        if queues.await_content(queue, time_s, PHASE, lambda content: content["merged"] == awaited) is None:
            raise TimeoutError(
                f"Function {self.rank} waited for merge {round_} of epoch {self.epoch} until its time-out."
            )


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Do the event's task (AWS Lambda's entry point)."""
    with Function(event, context) as function:
        tasks = {"init": function.init, "train": function.train, "val": function.val}
        return tasks[event["task"]]()
