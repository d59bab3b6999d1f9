"""The GPU baseline beyond what all architectures share: its driver, its counts, what it refuses, and CUDA."""

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tests.workers.architectures.conftest import Stages

from slslab_lab.runs.planning import architectures
from slslab_workers.architecture import Cloud, RunFailed
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Objects
from slslab_workers.gpu.driver import Gpu
from slslab_workers.gpu.instance import GpuWorker
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training.devices import choose_device
from slslab_workers.training.instance import main

MakePlan = Callable[..., Plan]
Reference = Callable[[Plan], Any]
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")


class ThreadInstances:
    """Instances that are threads of this process, so that a driver is tested with its workers' real code."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._futures: list[Future[dict[str, Any]]] = []
        self.events: list[dict[str, Any]] = []
        self.variables: Mapping[str, str] = {}

    @contextmanager
    def launch(
        self, module: str, events: Sequence[Mapping[str, Any]], variables: Mapping[str, str]
    ) -> Iterator["ThreadInstances"]:
        assert module == Gpu.module
        self.variables = variables
        with ThreadPoolExecutor(len(events)) as pool:
            self._futures = [pool.submit(self._work, json.loads(json.dumps(event))) for event in events]
            yield self

    def check(self) -> None:
        for future in self._futures:
            if future.done() and (error := future.exception()) is not None:
                raise RunFailed(type(error).__name__, str(error), 0)

    def join(self) -> None:
        wait(self._futures, return_when=FIRST_EXCEPTION)
        self.check()

    def _work(self, event: Mapping[str, Any]) -> dict[str, Any]:
        plan = Plan.from_document(event["plan"])
        tracer = Tracer(self.events.append, plan.run, event["rank"])
        return GpuWorker(plan, event["rank"], Objects(self._store, event["bucket"], tracer)).run()


@pytest.fixture
def launcher(store: Any) -> Iterator[ThreadInstances]:
    """Afterwards nothing of the test's runs may be left; other tests use the same object store."""

    def buckets() -> set[str]:
        return {bucket["Name"] for bucket in store.list_buckets()["Buckets"]}

    before = buckets()
    yield ThreadInstances(store)
    assert [name for name in buckets() - before if name.startswith("slslab-")] == []


@pytest.fixture
def drive(store: Any, launcher: ThreadInstances) -> Callable[[Plan], Any]:
    def run(plan: Plan) -> Any:
        cloud = Cloud(lambda _service: store, launcher.events.append, launcher=launcher)
        return architectures()["gpu"].drive(plan, cloud, Stages())

    return run


def test_driver(
    drive: Callable[[Plan], Any], launcher: ThreadInstances, make_plan: MakePlan, curve: Callable[[Plan], Any]
) -> None:
    plan = make_plan("gpu", workers=3, epochs=2)
    outcome = drive(plan)
    assert (outcome.epochs, len(outcome.loss), len(outcome.accuracy), outcome.updates) == (2, 2, 2, 4)
    assert outcome.replicas_equal
    assert (outcome.loss, outcome.accuracy, outcome.parameters_sha256) == curve(plan)
    assert not [event for event in launcher.events if "/verdicts/" in event["resource"]], "none waits for a verdict"
    assert launcher.variables == {"OMP_WAIT_POLICY": "PASSIVE"}


@pytest.mark.parametrize(
    ("changes", "epochs"),
    [({"until_accuracy": 0.01}, 1), ({"until_accuracy": 1.0}, 3), ({"early_stopping": True, "batches": 1}, 3)],
)
def test_the_driver_says_after_each_epoch_whether_there_is_another(
    changes: dict[str, Any],
    epochs: int,
    drive: Callable[[Plan], Any],
    launcher: ThreadInstances,
    make_plan: MakePlan,
    reference: Reference,
) -> None:
    plan = make_plan("gpu", workers=2, epochs=3, **changes)
    outcome = drive(plan)
    assert outcome.epochs == len(outcome.loss) == len(outcome.accuracy) == epochs
    if not plan.early_stopping:
        assert outcome.parameters_sha256 == reference(plan)[0][epochs * plan.batches - 1]
    expected = architectures()["gpu"].counts(2, plan.batches, epochs, 61_706)
    protocol: dict[str, int] = {}
    for event in launcher.events:
        if not event["overhead"]:
            protocol[event["op"]] = protocol.get(event["op"], 0) + event["requests"]
    assert protocol == dict(expected.operations)
    verdicts = [e for e in launcher.events if "/verdicts/" in e["resource"] and not e["failed"]]
    heard = [e for e in verdicts if e["op"] == "object.get"]
    assert len(heard) == 2 * min(epochs, 2), "both workers, after every epoch but the plan's last"
    assert all(event["overhead"] for event in verdicts)


def test_a_failed_instance_fails_the_run(
    drive: Callable[[Plan], Any], make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_worker: GpuWorker) -> dict[str, Any]:
        raise OSError("the disk is gone")

    monkeypatch.setattr(GpuWorker, "run", fail)
    for changes in ({}, {"until_accuracy": 0.5}):
        with pytest.raises(RunFailed, match="the disk is gone"):
            drive(make_plan("gpu", workers=2, epochs=2, **changes))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mode": "per-batch"}, "launched, not invoked"),
        ({"invoke": "event"}, "launched, not invoked"),
        ({"as_released": True}, "a single process that plays all workers"),
    ],
)
def test_what_instances_cannot_do_is_refused(changes: dict[str, Any], says: str, make_plan: MakePlan) -> None:
    with pytest.raises(PlanError, match=says):
        architectures()["gpu"].requirements(make_plan("gpu", **changes))


def test_without_a_launcher_there_are_no_instances(store: Any, make_plan: MakePlan) -> None:
    with pytest.raises(PlanError, match="stack can't start instances"):
        architectures()["gpu"].drive(make_plan("gpu"), Cloud(lambda _service: store, lambda _event: None), Stages())


def test_options_name_the_fleet(make_plan: MakePlan) -> None:
    plan = make_plan("gpu", options={"device": "cpu", "instance-type": "p3.2xlarge"})
    fleet = architectures()["gpu"].requirements(plan).instances
    assert fleet is not None
    assert (fleet.instance_type, fleet.device) == ("p3.2xlarge", "cpu")


def test_counts_by_hand() -> None:
    """Literal numbers: n = 4, b = 24, MobileNet."""
    counts = architectures()["gpu"].counts
    found = counts(4, 24, 1, 3_217_226)
    assert found.operations == {"object.put": 96, "object.get": 288, "object.delete": 22 * 4}
    assert (found.bytes_in, found.bytes_out) == (96 * 12_868_904, 288 * 12_868_904)
    assert counts(1, 1, 1, 10).operations == {"object.put": 1}
    assert counts(2, 1, 2, 10).operations == {"object.put": 4, "object.get": 4}
    assert counts(2, 2, 3, 10).operations["object.delete"] == 4 * 2


def test_an_instance_is_told_by_standard_input_and_environment(
    store: Any, make_plan: MakePlan, upload: Callable[[Plan], str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The module's own entry; without a descriptor for the trace, records are JSON log lines, as on EC2."""
    monkeypatch.delenv("SLSLAB_TRACE_FD", raising=False)
    plan = make_plan("gpu", workers=1)
    bucket = upload(plan)
    event = io.StringIO(json.dumps({"plan": plan.to_document(), "bucket": bucket, "rank": 0}))
    monkeypatch.setattr(sys, "stdin", event)
    main(GpuWorker)
    told = [json.loads(line)["slslab"] for line in capsys.readouterr().out.splitlines()]
    assert [record["op"] for record in told].count("update") == 2
    listed = store.list_objects_v2(Bucket=bucket, Prefix=f"{plan.run}/results/")
    assert [entry["Key"] for entry in listed["Contents"]] == [f"{plan.run}/results/0"]


def test_rank_0s_batchnorm_statistics_judge_as_in_one_process(
    drive: Callable[[Plan], Any], make_plan: MakePlan, curve: Callable[[Plan], Any]
) -> None:
    """Of a network that has some; each worker's are its own."""
    plan = make_plan("gpu", model="mobilenet", dataset="synthetic", workers=2, batch_size=8, memory_mb=1769)
    outcome = drive(plan)
    assert (outcome.loss, outcome.accuracy, outcome.parameters_sha256) == curve(plan)


@CUDA
@pytest.mark.parametrize("model", ["lenet", "mobilenet"])
def test_cuda_computes_what_the_cpu_computes(
    model: str, store: Any, make_plan: MakePlan, upload: Callable[[Plan], str], reference: Reference
) -> None:
    """Two replicas on one GPU: equal to each other to the bit, to one process on the CPU up to summation order, which
    a second step of MobileNet would amplify."""
    dataset = "digits" if model == "lenet" else "synthetic"
    plan = make_plan("gpu", model=model, dataset=dataset, workers=2, memory_mb=3008, batches=1)
    bucket = upload(plan)
    events: list[dict[str, Any]] = []
    workers = [
        GpuWorker(plan, rank, Objects(store, bucket, Tracer(events.append, plan.run, rank)), choose_device("cuda"))
        for rank in range(2)
    ]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(GpuWorker.run, workers))
    assert results[0]["parameters_sha256"] == results[1]["parameters_sha256"]
    stored = store.get_object(Bucket=bucket, Key=f"{plan.run}/model/0")["Body"].read()
    _, expected = reference(plan)
    found = torch.frombuffer(bytearray(stored[: 4 * expected.numel()]), dtype=torch.float32)
    assert float((found - expected).norm() / expected.norm()) < 1e-3
    assert sum(event["bytes"] for event in events if event["op"] == "object.put" and not event["overhead"]) == (
        architectures()["gpu"].counts(2, plan.batches, 1, expected.numel()).bytes_in
    )
