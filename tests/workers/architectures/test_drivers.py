"""The architectures' drivers on the emulator, through AWS's APIs alone: modes, endings, and what is left behind."""

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import botocore.config
import pytest
from tests.workers.architectures.conftest import Stages

from slslab.lambda_.emulator import Emulator
from slslab_lab.runs.planning import architectures
from slslab_workers.architecture import Cloud, RunFailed
from slslab_workers.plan import Plan

MakePlan = Callable[..., Plan]
Reference = Callable[[Plan], Any]


@pytest.fixture
def cloud(aws: Emulator) -> Iterator[Cloud]:
    """The emulator as a driver sees it; afterwards nothing of a run may be left."""
    clients = []

    def client(service: str) -> Any:
        clients.append(aws.client(service))
        return clients[-1]

    yield Cloud(client, lambda _event: None)
    buckets = [bucket["Name"] for bucket in client("s3").list_buckets()["Buckets"]]
    assert [name for name in buckets if name.startswith("slslab-")] == []
    assert client("lambda").list_functions()["Functions"] == []
    for one in clients:
        one.close()


def test_event_invocations_epoch_by_epoch(
    cloud: Cloud, aws: Emulator, make_plan: MakePlan, reference: Reference
) -> None:
    plan = make_plan("allreduce", workers=2, epochs=2, invoke="event", until_accuracy=1.0)
    aws.records.clear()
    stages = Stages()
    outcome = architectures()["allreduce"].drive(plan, cloud, stages)
    assert outcome.epochs == len(outcome.loss) == len(outcome.accuracy) == 2
    assert outcome.replicas_equal
    assert outcome.parameters_sha256 == reference(plan)[0][-1]
    assert [record.invocation_type for record in aws.records] == ["Event"] * 4
    assert stages.last["upload"] == (8, 8)
    assert stages.last["evaluate"] == (2, 2)


def test_per_batch_is_an_invocation_per_batch(
    cloud: Cloud, aws: Emulator, make_plan: MakePlan, reference: Reference
) -> None:
    plan = make_plan("scatterreduce", workers=2, epochs=2, mode="per-batch", evaluation=False)
    aws.records.clear()
    stages = Stages()
    outcome = architectures()["scatterreduce"].drive(plan, cloud, stages)
    assert (len(outcome.loss), outcome.accuracy) == (2, ())
    assert "evaluate" not in stages.last
    assert outcome.parameters_sha256 == reference(plan)[0][-1]
    assert len(aws.records) == 2 * 2 * 2
    assert sum(record.cold_start for record in aws.records) == 2


@pytest.mark.parametrize("invoke", ["sync", "event"])
def test_a_dead_worker_ends_the_run(invoke: str, cloud: Cloud, make_plan: MakePlan) -> None:
    """128 MB do not hold PyTorch; asynchronous invocations tell it through their on-failure destination."""
    plan = make_plan("allreduce", workers=1, memory_mb=128, invoke=invoke)
    with pytest.raises(RunFailed) as failed:
        architectures()["allreduce"].drive(plan, cloud, Stages())
    assert failed.value.type == "Runtime.OutOfMemory"
    assert failed.value.message.endswith("signal: killed")
    assert failed.value.worker == 0
    assert ("REPORT RequestId" in failed.value.log_tail) == (invoke == "sync")


def test_an_endpoint_that_is_gone_ends_the_run(cloud: Cloud, make_plan: MakePlan) -> None:
    def client(service: str) -> Any:
        if service == "s3":
            return cloud.client("s3")
        session: Any = boto3.session.Session("key", "secret", region_name="us-east-1")
        config = botocore.config.Config(retries={"total_max_attempts": 1})
        return session.client("lambda", endpoint_url="http://127.0.0.1:1", config=config)

    with pytest.raises(RunFailed, match="Could not connect to the endpoint URL") as failed:
        architectures()["allreduce"].drive(make_plan("allreduce"), Cloud(client, cloud.emit), Stages())
    assert failed.value.type == "EndpointConnectionError"
