"""A run's bucket, which goes with everything that workers still put there meanwhile, and the losses of its epochs."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import botocore.exceptions
import pytest
from tests.lambdaml_space import Silent
from tests.memory.stores import S3

from slslab_workers.architecture import Cloud, Outcome
from slslab_workers.driver import job as module
from slslab_workers.driver.job import REMOVALS, UPLOADERS, Job, mean_losses
from slslab_workers.plan import Plan
from slslab_workers.training.keys import minibatch_key

PLAN = Plan("run", "allreduce", "lenet", "digits", 16, 2, 1024)


class Busy(S3):
    """S3 with a worker that puts an object before a bucket is deleted, this many times."""

    def __init__(self, puts: int) -> None:
        super().__init__(lambda: None)
        self.puts = puts

    def delete_bucket(self, *, Bucket: str) -> None:
        if self.puts:
            self.puts -= 1
            self.store(Bucket, "late", b"")
        super().delete_bucket(Bucket=Bucket)


class Untrained(Job):
    """A job that is never run."""

    def train(self) -> Outcome:
        raise NotImplementedError


def job(s3: S3) -> Job:
    return Untrained(PLAN, Cloud({"s3": s3}.__getitem__, lambda _: None), Silent())


@pytest.mark.parametrize("puts", [0, 1, REMOVALS - 1])
def test_a_bucket_is_deleted_although_workers_still_put_objects(puts: int) -> None:
    s3 = Busy(puts)
    created = job(s3)
    created.create()
    created.created.close()
    assert s3.buckets == {}
    # It may have gone already.
    created.created.callback(created._remove_bucket)
    created.created.close()


def test_a_bucket_that_is_never_empty_is_given_up() -> None:
    s3 = Busy(REMOVALS)
    created = job(s3)
    created.create()
    with pytest.raises(botocore.exceptions.ClientError, match="BucketNotEmpty"):
        created.created.close()


def test_an_interrupt_cancels_the_uploads_that_have_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    ending = threading.Event()

    class Slow(S3):
        def put_object(self, **request: Any) -> dict[str, Any]:
            if request["Key"] != minibatch_key(PLAN, epoch=0, step=0, rank=0):
                ending.wait()
            return super().put_object(**request)

    class Pool(ThreadPoolExecutor):
        def shutdown(self, *arguments: Any, **more: Any) -> None:
            ending.set()
            super().shutdown(*arguments, **more)

    class Interrupted(Silent):
        def report(self, stage: str, done: int, total: int) -> None:  # noqa: ARG002
            if stage == "upload":
                raise KeyboardInterrupt

    monkeypatch.setattr(module, "ThreadPoolExecutor", Pool)
    s3 = Slow(lambda: None)
    uploading = Untrained(replace(PLAN, batches=16), Cloud({"s3": s3}.__getitem__, lambda _: None), Interrupted())
    uploading.create()
    with pytest.raises(KeyboardInterrupt):
        uploading.upload(range(1))
    assert 1 <= len(s3.buckets[uploading.bucket]) <= 1 + UPLOADERS


def test_losses_are_means_over_all_minibatches_of_an_epoch() -> None:
    results = [{"losses": [1.0, 2.0, 3.0, 4.0]}, {"losses": [2.0, 3.0, 4.0, 5.0]}]
    assert mean_losses(results, (0, 2)) == (2.0, 4.0)
    assert mean_losses([*results, {"losses": [6.0]}], (0, 3)) == (3.0, 4.5), "one who left after its first step"
