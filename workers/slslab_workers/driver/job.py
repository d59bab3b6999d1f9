"""A run's bucket and what its driver does with it, wherever workers run: minibatches in, models out, evaluation."""

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from itertools import pairwise, product
from typing import Any

import botocore.exceptions

from slslab_workers.architecture import Cloud, Outcome, Progress, RunFailed
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Objects
from slslab_workers.channels.queues import QueueError
from slslab_workers.channels.stream import Refused, Unreachable
from slslab_workers.driver.stopping import Stopping
from slslab_workers.models import spec_of
from slslab_workers.plan import Plan
from slslab_workers.training import datasets
from slslab_workers.training.keys import minibatch_key, model_key
from slslab_workers.training.samples import Samples

UPLOADERS = 4
# How often to try emptying a bucket: S3 doesn't delete buckets with objects.
REMOVALS = 10


@contextmanager
def failures() -> Iterator[None]:
    """Convert errors of AWS, a queue or a tensor database within the block to RunFailed."""
    try:
        yield
    except botocore.exceptions.ClientError as error:
        raise RunFailed(error.response["Error"]["Code"], str(error)) from error
    except (botocore.exceptions.BotoCoreError, QueueError, Refused, Unreachable) as error:
        raise RunFailed(type(error).__name__, str(error)) from error


class Job(ABC):
    """One run's data set, bucket and test accuracies so far (0..1, per epoch).

    `created` removes what was created, the last first.
    """

    def __init_subclass__(cls, **settings: Any) -> None:
        """Refuse a former method (TypeError): what it removes would stay."""
        super().__init_subclass__(**settings)
        if hasattr(cls, "remove"):
            raise TypeError(f"{cls.__name__} defines remove, which is now a callback of created")

    def __init__(self, plan: Plan, cloud: Cloud, progress: Progress) -> None:
        self.plan = plan
        self.deployed = cloud.deployed
        self.bucket = cloud.deployed.bucket if cloud.deployed else f"slslab-{plan.run}".lower()[:63].rstrip("-")
        self.accuracies: list[float] = []
        self.created = ExitStack()
        self._progress = progress
        self._stops = Stopping(plan)
        self._s3 = cloud.client("s3")
        self._tracer = Tracer(cloud.emit, plan.run)
        self._objects = Objects(self._s3, self.bucket, self._tracer)
        self._uploaded = 0

    @cached_property
    def _samples(self) -> Samples:
        return Samples(self.plan, lambda done, total: self._progress.report("load", done, total))

    def run(self) -> Outcome:
        """Create, train, and always remove; an error of AWS or another service fails the run (RunFailed)."""
        with failures():
            try:
                self.create()
                return self.train()
            finally:
                self.created.close()

    @abstractmethod
    def train(self) -> Outcome:
        """Train all epochs, or until the plan's accuracy or patience ends training."""

    def create(self) -> None:
        """Create the run's bucket, unless it exists."""
        self.created.callback(self._remove_bucket)
        if self.deployed is None:
            self._s3.create_bucket(Bucket=self.bucket)

    def _remove_bucket(self) -> None:
        """Delete everything in the bucket, and the bucket itself if the driver made it. It may be gone already.

        Workers that still run, as after another's failure, may put objects meanwhile. Then everything is repeated.
        """
        with suppress(self._s3.exceptions.NoSuchBucket):
            for left in reversed(range(REMOVALS)):
                for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket):
                    if entries := [{"Key": entry["Key"]} for entry in page.get("Contents", [])]:
                        self._s3.delete_objects(Bucket=self.bucket, Delete={"Objects": entries, "Quiet": True})
                if self.deployed is not None:
                    return
                try:
                    self._s3.delete_bucket(Bucket=self.bucket)
                except botocore.exceptions.ClientError as error:
                    if not left or error.response["Error"]["Code"] != "BucketNotEmpty":
                        raise
                else:
                    return

    def upload(self, epochs: Iterable[int]) -> None:
        """Store the minibatches of these epochs."""
        plan, samples, epochs = self.plan, self._samples, list(epochs)
        total = self._uploaded + plan.workers * plan.batches * len(epochs)
        put = partial(self.store, samples.images, samples.labels)
        for epoch in epochs:
            indices, batches = samples.indices(epoch), product(range(plan.workers), range(plan.batches))
            keyed = (
                (minibatch_key(plan, epoch=epoch, step=step, rank=rank), indices[rank, step]) for rank, step in batches
            )
            self.upload_all(put, keyed, total)

    def upload_all(self, put: Callable[[Any], None], items: Iterable[Any], total: int) -> None:
        """Call `put` for all items, a few at a time. `total` counts all of the run's uploads up to the last item."""
        with ThreadPoolExecutor(UPLOADERS, thread_name_prefix="upload") as pool:
            # An interrupt or an error cancels uploads that haven't begun.
            for _ in pool.map(put, items):
                self._uploaded += 1
                self._progress.report("upload", self._uploaded, total)

    def store(self, inputs: Any, labels: Any, keyed: tuple[str, Any]) -> None:
        """Store a minibatch, given as its key and the indices of its samples in `inputs` (N, …) and `labels` (N,)."""
        key, chosen = keyed
        body, metadata = datasets.encode_minibatch(inputs[chosen], labels[chosen], self._samples.dataset.policy)
        self._objects.put(key, body, "other", metadata=metadata)

    def evaluate(self, epoch: int) -> bool:
        """Evaluate rank 0's model after an epoch, unless the plan skips evaluation; return whether the plan's accuracy
        or patience ends training."""
        if not self.plan.evaluation:
            return False
        from slslab_workers.training import models
        from slslab_workers.training.evaluation import evaluate

        stored = self._objects.get(model_key(self.plan, epoch=epoch), "other").body
        model = models.build(spec_of(self.plan), self.plan.seed)
        dataset = self._samples.dataset
        accuracy, loss = evaluate(model, stored, dataset.test_images, dataset.test_labels, dataset.policy)
        if self._samples.validation is not None:
            _, loss = evaluate(model, stored, *self._samples.validation, dataset.policy)
        return self.record(epoch, accuracy, loss)

    def record(self, epoch: int, accuracy: float, loss: float) -> bool:
        """Record an epoch's evaluation; return whether the plan's accuracy or patience ends training."""
        self._progress.report("evaluate", epoch + 1, self.plan.epochs)
        self.accuracies.append(accuracy)
        return self._stops.record(accuracy, loss) is not None

    def finished_epochs(self, result: Mapping[str, Any]) -> int:
        """Return how many epochs a worker has trained, including an unfinished last one."""
        return math.ceil(int(result["position"]) / self.plan.batches)

    def outcome(self, results: list[dict[str, Any]]) -> Outcome:
        """Return the results of the run, from the workers' results by rank."""
        first = results[0]
        details = {"torch": first["torch"], **self._shares()}
        if "buffers_sha256" in first:
            details["buffers_equal"] = len({result["buffers_sha256"] for result in results}) == 1
        steps = min(len(result["losses"]) for result in results)
        return Outcome(
            loss=mean_losses(results, range(0, steps, self.plan.batches)),
            accuracy=tuple(self.accuracies),
            parameters=first["parameters"],
            parameters_sha256=first["parameters_sha256"],
            replicas_equal=len({result["parameters_sha256"] for result in results}) == 1,
            epochs=len(self.accuracies),
            updates=first["updates"],
            threads=first["threads"],
            details=details,
        )

    def _shares(self) -> dict[str, list[list[int]]]:
        """Return the detail of who has which samples, if the partition is uneven."""
        shares = self._samples.shares()
        return {"shares": shares} if shares else {}


def mean_losses(results: Sequence[Mapping[str, Any]], starts: Sequence[int]) -> tuple[float, ...]:
    """Return each epoch's mean training loss over all workers' minibatches, including an unfinished epoch's.

    `starts` are the positions of the epochs' first steps. A loss is None if the worker hadn't joined yet.
    """
    return tuple(
        statistics.fmean(loss for result in results for loss in result["losses"][first:until] if loss is not None)
        for first, until in pairwise([*starts, None])
    )


def gradient_mb(plan: Plan) -> int:
    """Return the memory of one gradient of the plan's model, MB rounded up."""
    return math.ceil(4 * spec_of(plan).parameters / (1 << 20))
