"""MLLess beyond one invocation: hand-overs, and its driver on the emulator."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import redis
from tests import commands
from tests.commands import IMPORTS, forked_environments
from tests.memory.training import Trained, hurry
from tests.workers.architectures.conftest import Stages
from tests.workers.mlless.closed_form import counts

from slslab.aws.keys import Keyring
from slslab.lambda_.emulator import Emulator
from slslab.run.records import InvocationRecord
from slslab.stack.queues import find_rabbitmq
from slslab_workers.architecture import Cloud, Outcome, RunFailed
from slslab_workers.channels import endpoints
from slslab_workers.channels.queues import scoped
from slslab_workers.driver.deployment import FunctionSpec
from slslab_workers.mlless.driver import MLLess, MLLessDeployment
from slslab_workers.mlless.handlers import MLLessWorker
from slslab_workers.plan import Plan
from slslab_workers.training import lifetime
from slslab_workers.training.keys import minibatch_key

MakePlan = Callable[..., Plan]
Reference = Callable[[Plan], Any]
P = 61_706


def supervise_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the supervisor leave after every fourth report, in the middle of a step."""
    asked: Counter[str] = Counter()
    really = lifetime.remaining_s

    def remaining_s(context: Any) -> float:
        asked[context.aws_request_id] += 1
        return 0.0 if asked[context.aws_request_id] > 4 else really(context)

    # Workers have this name from their own modules.
    monkeypatch.setattr(lifetime, "remaining_s", remaining_s)


def supervised(trained: Trained) -> int:
    """Invocations of the supervisor."""
    return sum(record["function"].endswith("-supervisor") for record in trained.invocations)


def test_hand_overs_in_the_middle_of_epochs_and_steps_change_nothing(
    train: Callable[[Plan], Trained], make_plan: MakePlan, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All workers leave after the steps in which worker 1 is short of time. The supervisor hands on what it heard."""
    hurry(MLLessWorker, monkeypatch)
    supervise_briefly(monkeypatch)
    plan = make_plan("mlless", workers=3, batches=3, epochs=2, options={"filter": "none"})
    trained = train(plan)
    assert trained.continued == [(position, rank) for position in (2, 4) for rank in range(3)]
    assert [result["status"] for result in trained.results] == ["finished"] * 3
    assert {result["parameters_sha256"] for result in trained.results} == {reference(plan)[0][-1]}
    assert supervised(trained) == 5
    expected = counts(3, 6, 1, P)
    assert trained.protocol() == (dict(expected.operations), expected.bytes_in, expected.bytes_out)


@pytest.fixture(scope="module")
def aws(store: Any, tensors_and_queue: tuple[str, str], keys: Keyring) -> Iterator[Emulator]:
    """An emulator with functions that find the stores and the queue."""
    assert store is not None
    tensors, queue = tensors_and_queue
    variables = {
        "AWS_ENDPOINT_URL_S3": os.environ["AWS_ENDPOINT_URL_S3"],
        endpoints.TENSOR_URLS: tensors,
        endpoints.QUEUE_URL: queue,
    }
    with forked_environments(), Emulator(keys=keys, variables=variables, template=IMPORTS) as emulator:
        yield emulator


@dataclass
class Driven:
    """Drives plans, checks that finished ones leave no bucket, and keeps the driver's own events."""

    aws: Emulator
    queue: str
    clients: list[Any] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    def __call__(self, plan: Plan, kind: type[MLLessDeployment] = MLLessDeployment) -> Outcome:
        cloud = Cloud(self.client, self.events.append, {endpoints.QUEUE_URL: self.queue})
        self.runs.append(plan.run)
        outcome = kind(plan, MLLess.handler, cloud, Stages()).run()
        listed = self.client("s3").list_buckets()["Buckets"]
        assert f"slslab-{plan.run}" not in [bucket["Name"] for bucket in listed]
        return outcome

    def client(self, service: str) -> Any:
        self.clients.append(self.aws.client(service))
        return self.clients[-1]

    @property
    def records(self) -> list[InvocationRecord]:
        """Invocations of the last plan's functions; an earlier plan's that failed may still end."""
        function = f"slslab-{self.runs[-1]}"
        return [record for record in self.aws.records if record.function in (function, f"{function}-supervisor")]

    def supervised(self) -> int:
        """Invocations of the supervisor."""
        return sum(record.function.endswith("-supervisor") for record in self.records)


@pytest.fixture
def drive(aws: Emulator, tensors_and_queue: tuple[str, str]) -> Iterator[Driven]:
    """Drives plans; however they end, no function, queue or exchange may be left."""
    driven = Driven(aws, tensors_and_queue[1])
    yield driven
    assert driven.client("lambda").list_functions()["Functions"] == []
    with closing(redis.Redis.from_url(tensors_and_queue[1], protocol=2)) as server:
        names = [name.decode() for name in (*server.scan_iter("*"), *server.smembers("queues"))]
    assert [name for name in names for run in driven.runs if scoped(run, "") in name] == []
    for client in driven.clients:
        client.close()


def test_event_invocations_and_a_loss_that_ends_the_third_epoch(
    drive: Driven, make_plan: MakePlan, reference: Reference
) -> None:
    """Ten low steps in a row end the run, though every epoch has a supervisor's invocation of its own."""
    options = {"filter": "none", "end-threshold": 1e9}
    changes: dict[str, Any] = {"batches": 4, "epochs": 5, "batch_size": 4, "invoke": "event", "until_accuracy": 1.0}
    plan = make_plan("mlless", workers=2, options=options, **changes)
    outcome = drive(plan)
    assert outcome.epochs == len(outcome.loss) == len(outcome.accuracy) == 3
    assert outcome.replicas_equal
    assert (outcome.updates, outcome.parameters_sha256) == (10, reference(plan)[0][9])
    assert [record.invocation_type for record in drive.records] == ["Event"] * 9
    assert drive.supervised() == 3
    heard = [e for e in drive.events if e["op"] == "queue.deliver" and not e["overhead"]]
    assert len(heard) == 10, "the client hears of every step once"


class Hasty(MLLessDeployment):
    """The supervisor keeps 30 s of its time-out of 31 s for its hand-over, and four batches take longer than 1 s."""

    def call(self, function: str, event: Any, kind: str, rank: int | None) -> dict[str, Any]:
        if function == self.supervisor:
            event = {**event, "plan": {**event["plan"], "timeout": 900}}
        else:
            time.sleep(0.3)
        return super().call(function, event, kind, rank)


def test_per_batch_invocations_under_several_supervisors(
    drive: Driven, make_plan: MakePlan, reference: Reference
) -> None:
    """The driver waits for each batch, but not for the invocations in which the supervisor continues."""
    options = {"filter": "none", "store": "s3"}
    plan = make_plan("mlless", workers=2, epochs=2, mode="per-batch", timeout=31, options=options)
    outcome = drive(plan, Hasty)
    assert outcome.parameters_sha256 == reference(plan)[0][-1]
    assert len(drive.records) - drive.supervised() == 2 * 2 * 2
    assert drive.supervised() >= 2, "a second is less than the run takes"


class WorkerDies(MLLessDeployment):
    """Worker 1 finds no minibatch in its second step, while the others wait for it."""

    def upload(self, epochs: Any) -> None:
        super().upload(epochs)
        self._s3.delete_object(Bucket=self.bucket, Key=minibatch_key(self.plan, epoch=0, step=1, rank=1))


class SupervisorDies(MLLessDeployment):
    """The supervisor's code cannot be imported."""

    def functions(self) -> list[FunctionSpec]:
        *workers, supervising = super().functions()
        return [*workers, replace(supervising, handler="slslab_workers.mlless.nobody.handler")]


class SuccessorDies(SupervisorDies):
    """The supervisor dies in an invocation that the one before started, and that isn't waited for."""

    def call(self, function: str, event: Any, kind: str, rank: int | None) -> dict[str, Any]:
        if function != self.supervisor:
            return super().call(function, event, kind, rank)
        super().call(function, event, "Event", rank)
        return {"status": "continued"}


@pytest.mark.parametrize(
    ("kind", "worker", "error", "changes"),
    [
        (WorkerDies, 1, "Absent", {}),
        (WorkerDies, 1, "Absent", {"invoke": "event"}),
        (SupervisorDies, None, "Runtime.ImportModuleError", {}),
        (SuccessorDies, None, "Runtime.ImportModuleError", {"mode": "per-batch"}),
    ],
)
def test_whoever_dies_ends_the_run(
    kind: type[MLLessDeployment],
    worker: int | None,
    error: str,
    changes: dict[str, Any],
    drive: Driven,
    make_plan: MakePlan,
) -> None:
    """Long before the time-out of 900 s, after which the test would have failed."""
    with pytest.raises(RunFailed) as failed:
        drive(make_plan("mlless", workers=2, options={"filter": "none"}, **changes), kind)
    assert (failed.value.worker, failed.value.type) == (worker, error)


def test_a_queue_that_is_gone_ends_the_run(drive: Driven, make_plan: MakePlan) -> None:
    drive.queue = "redis://127.0.0.1:1"
    with pytest.raises(RunFailed, match="The connection to the queue's server broke"):
        drive(make_plan("mlless"))


def slslab(directory: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document of a run through the command line."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLSLAB_"))}
    variables["SLSLAB_RUNS"] = str(directory)
    with commands.own_variables(variables):
        done = commands.slslab("run", "mlless", *arguments, "--json")
    return done.code, done.printed


def test_a_run_through_the_command_line(tmp_path: Path, reference: Reference) -> None:
    queue = "rabbitmq" if find_rabbitmq() else "embedded"
    with forked_environments():
        code, document = slslab(tmp_path, *"--workers 2 --batches 2 --epochs 2 --filter none --queue".split(), queue)
    assert (code, document["error"], document["status"]) == (0, None, "done")
    assert (document["replicas_equal"], document["updates"], document["invocations"]) == (True, 4, 3)
    assert document["parameters_sha256"] == reference(Plan.from_document(document["plan"]))[0][-1]
    expected = counts(2, 2, 2, P)
    assert document["counts"] == dict(expected.operations)
    assert document["bytes"] == {"in": expected.bytes_in, "out": expected.bytes_out}
    assert len(document["accuracy"]) == len(document["loss"]) == 2


def test_a_worker_that_is_killed_for_memory_ends_the_run(tmp_path: Path) -> None:
    arguments = "--model mobilenet --dataset synthetic --workers 2 --batches 1 --batch-size 128 --memory 512"
    code, document = slslab(tmp_path, *arguments.split(), "--queue", "embedded")
    assert (code, document["status"]) == (1, "failed")
    assert document["error"]["type"] == "Runtime.OutOfMemory"
    assert document["error"]["worker"] in (0, 1)
    assert document["error"]["hint"].startswith("killed at its limit of 512 MB")
