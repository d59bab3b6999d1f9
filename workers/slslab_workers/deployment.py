"""From a plan to running functions and back, through AWS's APIs alone: what the rooms' trigger scripts share.

Package and deploy → store minibatches → invoke → wait for results → evaluate → clean up.
"""

import base64
import io
import json
import math
import threading
import zipfile
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.exceptions

from slslab_workers import datasets, models
from slslab_workers.architecture import Cloud, Option, Outcome, Progress, RunFailed
from slslab_workers.events import Tracer
from slslab_workers.keys import minibatch_key, model_key, result_key
from slslab_workers.objects import Objects
from slslab_workers.plan import Assignment, Plan

ROLE = "arn:aws:iam::000000000000:role/slslab-worker"
UPLOADERS = 4
RESULT_POLL_S = 0.1
PATIENCE_EPOCHS = 10
HELD_OUT = 10

REPLICAS = Option(
    "replicas",
    str,
    "seeded",
    "Initial models: seeded gives every worker the same; unseeded gives each its own, as the authors' code does.",
    ("seeded", "unseeded"),
)
PARTITION = Option(
    "partition",
    str,
    "disjoint",
    "The workers' training images: disjoint slices of one shuffle, or overlapping ones as in the authors' code.",
    ("disjoint", "overlapping"),
)


def package() -> bytes:
    """The Lambda package: this very package, zipped as it is but for bytecode (equal sources give equal bytes)."""
    root = Path(__file__).parent
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc"):
            entry = zipfile.ZipInfo(str(path.relative_to(root.parent)))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def train_data_parallel(plan: Plan, handler: str, cloud: Cloud, progress: Progress) -> Outcome:
    """Run a synchronous data-parallel architecture: n workers of one function, equal but for their rank."""
    return deploy_and_train(Deployment(plan, handler, cloud, progress))


def deploy_and_train(deployment: "Deployment") -> Outcome:
    """Create, train and remove, whatever happens; what AWS refuses is the run's failure."""
    try:
        try:
            deployment.create()
            return deployment.train()
        finally:
            deployment.remove()
    except botocore.exceptions.ClientError as error:
        raise RunFailed(error.response["Error"]["Code"], str(error)) from error
    except botocore.exceptions.BotoCoreError as error:
        raise RunFailed(type(error).__name__, str(error)) from error


def _load(plan: Plan, progress: Progress) -> datasets.Dataset:
    samples = plan.workers * plan.batches * plan.batch_size
    if plan.early_stopping:
        samples = math.ceil(samples * HELD_OUT / (HELD_OUT - 1))
    loaded = datasets.load(plan.dataset, samples, plan.seed, lambda done, total: progress.report("load", done, total))
    return loaded.with_channels(models.spec(plan.model).channels)


@dataclass(frozen=True)
class FunctionSpec:
    """A Lambda function of a room."""

    name: str
    handler: str
    memory_mb: int


class Deployment:
    """One run's bucket and function, and the driver's view of its workers."""

    def __init__(self, plan: Plan, handler: str, cloud: Cloud, progress: Progress) -> None:
        self.plan = plan
        self.handler = handler
        self.bucket = f"slslab-{plan.run}".lower()[:63].rstrip("-")
        self.function = f"slslab-{plan.run}"[:64]
        self._cloud = cloud
        self._progress = progress
        self._dataset = dataset = _load(plan, progress)
        self._lambda = cloud.client("lambda")
        self._s3 = cloud.client("s3")
        self._objects = Objects(self._s3, self.bucket, Tracer(cloud.emit, plan.run))
        self._stopping = threading.Event()
        self._invokers = ThreadPoolExecutor(plan.workers, thread_name_prefix="invoke")
        self._uploaded = 0
        self._created: list[str] = []
        images, labels = dataset.train_images, dataset.train_labels
        self._validation: tuple[Any, Any] | None = None
        if plan.early_stopping:
            images, labels = self._hold_out(images, labels)
        self._images, self._labels = images, labels

    def create(self) -> None:
        """Bucket and function; asynchronous failures are not retried (a retried worker would overwrite its peers'
        view of a step) and leave a record in the bucket."""
        # The arithmetic is checked before anything is made.
        self._indices(0)
        functions = self.functions()
        self._progress.report("deploy", 0, len(functions))
        self._s3.create_bucket(Bucket=self.bucket)
        for number, function in enumerate(functions, 1):
            self._create_function(function)
            self._progress.report("deploy", number, len(functions))

    def functions(self) -> list["FunctionSpec"]:
        """The room's functions, the workers' first."""
        return [FunctionSpec(self.function, self.handler, self.plan.memory_mb)]

    def _create_function(self, function: "FunctionSpec") -> None:
        self._lambda.create_function(
            FunctionName=function.name,
            Runtime="python3.11",
            Role=ROLE,
            Handler=function.handler,
            Code={"ZipFile": package()},
            MemorySize=function.memory_mb,
            Timeout=self.plan.timeout,
            # Threads that wait for each other sleep instead of spinning: a spinning thread burns the CPU share.
            Environment={"Variables": {"OMP_WAIT_POLICY": "PASSIVE"}},
        )
        self._created.append(function.name)
        self._lambda.get_waiter("function_active_v2").wait(FunctionName=function.name)
        self._lambda.put_function_event_invoke_config(
            FunctionName=function.name,
            MaximumRetryAttempts=0,
            DestinationConfig={"OnFailure": {"Destination": f"arn:aws:s3:::{self.bucket}"}},
        )

    def train(self) -> Outcome:
        """All epochs, or until the plan's accuracy or patience says stop."""
        plan = self.plan
        accuracies: list[float] = []
        if plan.gradual:
            results, epochs = self._train_gradually(accuracies)
        else:
            self._upload(range(plan.epochs))
            results = self._stretch(0, plan.epochs * plan.batches, keep=False)
            # A room may end training before its last step.
            epochs = math.ceil(results[0]["position"] / plan.batches)
            accuracies = [accuracy for accuracy, _ in map(self._evaluate, range(epochs))]
        return self._outcome(results, accuracies, epochs)

    def remove(self) -> None:
        """Delete the functions, everything in the bucket, and the bucket; end the invoking threads."""
        self._stopping.set()
        self._invokers.shutdown(wait=False, cancel_futures=True)
        try:
            for name in self._created:
                with suppress(self._lambda.exceptions.ResourceNotFoundException):
                    self._lambda.delete_function(FunctionName=name)
        finally:
            self._empty()

    def _empty(self) -> None:
        with suppress(self._s3.exceptions.NoSuchBucket):
            for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket):
                entries = [{"Key": entry["Key"]} for entry in page.get("Contents", [])]
                if entries:
                    self._s3.delete_objects(Bucket=self.bucket, Delete={"Objects": entries, "Quiet": True})
            self._s3.delete_bucket(Bucket=self.bucket)

    def _train_gradually(self, accuracies: list[float]) -> tuple[list[dict[str, Any]], int]:
        plan, best, since = self.plan, math.inf, 0
        results: list[dict[str, Any]] = []
        for epoch in range(plan.epochs):
            self._upload([epoch])
            results = self._stretch(epoch * plan.batches, (epoch + 1) * plan.batches, keep=True)
            ended = results[0]["ended"]
            accuracy, validation_loss = self._evaluate(epoch)
            accuracies.append(accuracy)
            if ended is not None or (plan.until_accuracy is not None and accuracy >= plan.until_accuracy):
                return results, epoch + 1
            if plan.early_stopping:
                best, since = (validation_loss, 0) if validation_loss < best else (best, since + 1)
                if since >= PATIENCE_EPOCHS:
                    return results, epoch + 1
        return results, plan.epochs

    def _stretch(self, first: int, until: int, *, keep: bool) -> list[dict[str, Any]]:
        """Have every worker train from one step to another, in the plan's mode; results by rank."""
        per_batch = self.plan.mode == "per-batch"
        work = self._each_batch if per_batch else self._one_invocation
        futures = [self._invokers.submit(work, rank, first, until, keep) for rank in range(self.plan.workers)]
        return self._first_failure_ends(futures + self._companions(first, until))[: self.plan.workers]

    def _companions(self, _first: int, _until: int) -> list["Future[dict[str, Any]]"]:
        """What else of the room runs from one step to another, beside the workers."""
        return []

    def _one_invocation(self, rank: int, first: int, until: int, keep: bool) -> dict[str, Any]:
        assignment = self._assignment(rank, first, until, resume=first > 0, keep=keep)
        if self.plan.invoke == "event":
            self._invoke(assignment, "Event")
            return self._await_result(rank, until)
        answer = self._invoke(assignment, "RequestResponse")
        return answer if answer["status"] == "finished" else self._await_result(rank, until)

    def _each_batch(self, rank: int, first: int, until: int, keep: bool) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        last = self.plan.epochs * self.plan.batches
        for position in range(first, until):
            if self._stopping.is_set():
                raise RunFailed("Stopped", "another worker failed first", rank)
            more = position + 1 < last
            assignment = self._assignment(rank, position, position + 1, resume=position > 0, keep=more or keep)
            answer = self._invoke(assignment, "RequestResponse")
            if answer["ended"] is not None:
                break
        return answer

    def _assignment(self, rank: int, first: int, until: int, *, resume: bool, keep: bool) -> Assignment:
        return Assignment(self.plan, self.bucket, rank, first, until, resume, keep, generation=0)

    def _invoke(self, assignment: Assignment, kind: str) -> dict[str, Any]:
        return self.call(self.function, assignment.to_event(), kind, assignment.rank)

    def call(self, function: str, event: Mapping[str, Any], kind: str, rank: int | None) -> dict[str, Any]:
        """Invoke a function and, unless `kind` is Event, return its answer; RunFailed of this rank if it fails."""
        answer = self._lambda.invoke(
            FunctionName=function,
            InvocationType=kind,
            Payload=json.dumps(event).encode(),
            **({"LogType": "Tail"} if kind == "RequestResponse" else {}),
        )
        payload = json.loads(answer["Payload"].read() or b"{}")
        if answer.get("FunctionError"):
            raise _worker_failure(payload, rank, base64.b64decode(answer["LogResult"]).decode())
        result: dict[str, Any] = payload
        return result

    def _await_result(self, rank: int, until: int) -> dict[str, Any]:
        """Wait for a worker that goes on in asynchronous invocations: its result, or the record of its failure."""
        wanted = result_key(self.plan, rank)
        while not self._stopping.is_set():
            if wanted in self._objects.list(wanted, "other"):
                result: dict[str, Any] = json.loads(self._objects.get(wanted, "other").body)
                if result["position"] == until or result["ended"] is not None:
                    return result
            for key in self._objects.list("aws/lambda/async/", "other"):
                record = json.loads(self._objects.get(key, "other").body)
                failed = record["requestPayload"].get("rank")
                # A function without a rank (a supervisor) fails for everybody.
                if failed in (rank, None):
                    raise _worker_failure(record["responsePayload"], failed, "")
            self._stopping.wait(RESULT_POLL_S)
        raise RunFailed("Stopped", "another worker failed first", rank)

    def _first_failure_ends(self, futures: list["Future[dict[str, Any]]"]) -> list[dict[str, Any]]:
        """Results by rank; a dead worker ends the run at once instead of leaving its peers to their time-outs."""
        pending: set[Future[dict[str, Any]]] = set(futures)
        while pending:
            # A bounded wait, so that Ctrl-C is heard.
            over, pending = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in over:
                if (error := future.exception()) is not None:
                    self._stopping.set()
                    raise error
        return [future.result() for future in futures]

    def _indices(self, epoch: int) -> Any:
        plan = self.plan
        overlapping = plan.options.get("partition", "disjoint") == "overlapping"
        return datasets.partition(
            len(self._labels), plan.workers, plan.batches, plan.batch_size, plan.seed, epoch, overlapping
        )

    def _upload(self, epochs: Iterable[int]) -> None:
        """Store the minibatches of these epochs."""
        plan = self.plan
        each = plan.workers * plan.batches
        wanted = list(epochs)
        total = self._uploaded + each * len(wanted)
        policy = self._dataset.policy

        def put(epoch: int, rank: int, step: int, chosen: Any) -> None:
            body, metadata = datasets.encode_minibatch(self._images[chosen], self._labels[chosen], policy)
            self._objects.put(minibatch_key(plan, epoch, step, rank), body, "other", metadata=metadata)

        with ThreadPoolExecutor(UPLOADERS, thread_name_prefix="upload") as pool:
            for epoch in wanted:
                indices = self._indices(epoch)
                futures = [
                    pool.submit(put, epoch, rank, step, indices[rank, step])
                    for rank in range(plan.workers)
                    for step in range(plan.batches)
                ]
                for future in futures:
                    future.result()
                    self._uploaded += 1
                    self._progress.report("upload", self._uploaded, total)

    def _evaluate(self, epoch: int) -> tuple[float, float]:
        """Test accuracy and validation loss (test loss without held-out images) of rank 0's model after an epoch."""
        from slslab_workers.training import evaluate

        stored = self._objects.get(model_key(self.plan, epoch), "other").body
        model = models.build(self.plan.model, self.plan.seed)
        dataset = self._dataset
        accuracy, loss = evaluate(model, stored, dataset.test_images, dataset.test_labels, dataset.policy)
        if self._validation is not None:
            _, loss = evaluate(model, stored, *self._validation, dataset.policy)
        self._progress.report("evaluate", epoch + 1, self.plan.epochs)
        return accuracy, loss

    def _hold_out(self, images: Any, labels: Any) -> tuple[Any, Any]:
        """A seeded tenth of the training images, the same for every architecture, judges when to stop."""
        import numpy as np

        order = np.random.default_rng([self.plan.seed, 0, HELD_OUT]).permutation(len(labels))
        held = np.sort(order[: len(labels) // HELD_OUT])
        rest = np.sort(order[len(labels) // HELD_OUT :])
        self._validation = (images[held], labels[held])
        return images[rest], labels[rest]

    def _outcome(self, results: list[dict[str, Any]], accuracies: list[float], epochs: int) -> Outcome:
        from slslab_workers.training import mean_losses

        first = results[0]
        return Outcome(
            loss=mean_losses(results, self.plan.batches),
            accuracy=tuple(accuracies),
            parameters=first["parameters"],
            parameters_sha256=first["parameters_sha256"],
            replicas_equal=len({result["parameters_sha256"] for result in results}) == 1,
            epochs=epochs,
            updates=first["updates"],
            threads=first["threads"],
            details={"torch": first["torch"]},
        )


def _worker_failure(payload: Mapping[str, Any], rank: int | None, log_tail: str) -> RunFailed:
    return RunFailed(
        str(payload.get("errorType", "Unknown")), str(payload.get("errorMessage", "")), rank, None, log_tail
    )
