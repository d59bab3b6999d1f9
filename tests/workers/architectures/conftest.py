"""Plans, and what trains by them: functions in memory, instances in threads, all workers in one process."""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.commands import IMPORTS, assert_holds, forked_environments, slslab
from tests.memory import running
from tests.memory.running import Ran
from tests.memory.training import LIMIT_S, Delay, Trained
from tests.memory.training import train as train_functions
from tests.workers.architectures.peers import Peers

from slslab.aws.keys import Keyring
from slslab.lambda_.emulator import Emulator
from slslab.run.events import clock_domain
from slslab.run.run import Run as Recorded
from slslab.run.table import tabulate
from slslab.stack.object_store import EmbeddedObjectStore
from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab_lab.runs import planning
from slslab_lab.runs.planning import architectures
from slslab_workers.channels import endpoints
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Objects, s3_client
from slslab_workers.gloo.instance import GlooWorker
from slslab_workers.gpu.instance import GpuWorker
from slslab_workers.plan import Plan
from slslab_workers.training import datasets, gradients
from slslab_workers.training.instance import InstanceWorker
from slslab_workers.training.keys import minibatch_key
from slslab_workers.training.replicas import Replicas
from slslab_workers.training.samples import Samples
from slslab_workers.training.state import WorkerState

NUMBERS = count()
# Of an architecture, its options and other values of the plan: what the run left.
InMemory = Callable[..., Ran]
# Of the options of a run: its document.
Run = Callable[..., dict[str, Any]]
INSTANCES: dict[str, type[InstanceWorker]] = {"gloo": GlooWorker, "gpu": GpuWorker}


class Stages:
    """Keeps the last report of each stage."""

    def __init__(self) -> None:
        self.last: dict[str, tuple[int, int]] = {}

    def report(self, stage: str, done: int, total: int) -> None:
        self.last[stage] = (done, total)


@pytest.fixture(scope="session")
def keys() -> Keyring:
    """The keys of the object store, and of emulators with functions that use it."""
    return Keyring()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, keys: Keyring) -> Iterator[Any]:
    """An S3 client of an embedded object store."""
    with EmbeddedObjectStore(Path(tmp_path_factory.mktemp("s3")) / "data", keys, {}) as server:
        patch = pytest.MonkeyPatch()
        named = {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": server.endpoint}
        for name, value in {**keys.owner.variables(), **named}.items():
            patch.setenv(name, value)
        client = s3_client(max_pool_connections=64)
        yield client
        client.close()
        patch.undo()


@pytest.fixture(scope="module")
def aws(store: Any, keys: Keyring) -> Iterator[Emulator]:
    """An emulator with functions that find the object store."""
    assert store is not None
    variables = {"AWS_ENDPOINT_URL_S3": os.environ["AWS_ENDPOINT_URL_S3"]}
    with forked_environments(), Emulator(keys=keys, variables=variables, template=IMPORTS) as emulator:
        yield emulator


@pytest.fixture
def peers(tmp_path: Path) -> Peers:
    """Runs SPIRT's plans in memory."""
    return Peers(tmp_path)


@pytest.fixture(scope="session")
def tensors_and_queue(store: Any) -> Iterator[tuple[str, str]]:
    """Addresses of a tensor database and of a queue (another one's lists), which functions find in their variables."""
    assert store is not None
    with EmbeddedTensorDatabases(2, password="secret") as server, pytest.MonkeyPatch.context() as patch:
        tensors, queue = server.endpoints
        patch.setenv(endpoints.TENSOR_URLS, tensors)
        patch.setenv(endpoints.QUEUE_URL, queue)
        yield tensors, queue


@pytest.fixture
def make_plan() -> Callable[..., Plan]:
    """A small plan: lenet on digits, 2 batches of 16."""

    def make(architecture: str, **changes: Any) -> Plan:
        values: dict[str, Any] = {
            "run": f"run{next(NUMBERS)}",
            "architecture": architecture,
            "model": "lenet",
            "dataset": "digits",
            "batch_size": 16,
            "batches": 2,
            "memory_mb": 1024,
        }
        values |= changes
        values["options"] = architectures()[architecture].complete(values.get("options", {}))
        return Plan(**values)

    return make


@pytest.fixture
def upload(store: Any) -> Callable[[Plan], str]:
    """Store a plan's minibatches in a bucket of its own; returns its name."""

    def put(plan: Plan) -> str:
        bucket = f"conformance-{next(NUMBERS)}-{plan.run}"
        store.create_bucket(Bucket=bucket)
        store_minibatches(plan, store, bucket)
        return bucket

    return put


@pytest.fixture
def train(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Trained]:
    """Train by a plan and watch what every worker learns: functions in memory, instances in threads."""

    def run(plan: Plan, delay: Delay | None = None) -> Trained:
        if plan.architecture in INSTANCES:
            bucket = request.getfixturevalue("upload")(plan)
            return train_instances(plan, request.getfixturevalue("store"), bucket, delay)
        return train_functions(plan, tmp_path, delay)

    return run


def train_instances(plan: Plan, store: Any, bucket: str, delay: Delay | None) -> Trained:
    """Run the instances of a plan in threads, with a bucket of a real object store."""
    trained = Trained(plan)
    kind: Any = INSTANCES[plan.architecture]

    class Watched(kind):  # type: ignore[misc]
        def synchronise(self, state: WorkerState, gradient: torch.Tensor) -> torch.Tensor | None:
            if delay is not None:
                delay(self.rank, state.position)
            aggregate: torch.Tensor | None = super().synchronise(state, gradient)
            return aggregate

        def after_update(self, state: WorkerState) -> None:
            super().after_update(state)
            trained.watch(self, state)

    def work(rank: int) -> dict[str, Any]:
        # Appending is one step of the interpreter's.
        tracer = Tracer(trained.events.append, plan.run, rank, f"invocation-{rank}")
        return dict(Watched(plan, rank, Objects(store, bucket, tracer)).run())

    with ThreadPoolExecutor(plan.workers) as pool:
        futures = [pool.submit(work, rank) for rank in range(plan.workers)]
        trained.results = [future.result() for future in futures]
    listed = store.list_objects_v2(Bucket=bucket, Prefix=f"{plan.run}/{plan.architecture}/")
    trained.objects = {entry["Key"]: b"" for entry in listed.get("Contents", [])}
    header = {"record": "header", "run": plan.run, "clock": clock_domain()}
    named = {"record": "event", "function": "", "environment": ""}
    events = tabulate([header, *({**named, **event} for event in trained.events)])
    assert_holds(Recorded(plan=plan, events=events, complete=True))
    return trained


def store_minibatches(plan: Plan, store: Any, bucket: str) -> None:
    """What the driver uploads."""
    samples = Samples(plan)
    for epoch in range(plan.epochs):
        indices = samples.indices(epoch)
        for rank in range(plan.workers):
            for step in range(plan.batches):
                chosen = indices[rank, step]
                body, metadata = datasets.encode_minibatch(
                    samples.images[chosen], samples.labels[chosen], samples.dataset.policy
                )
                key = minibatch_key(plan, epoch=epoch, step=step, rank=rank)
                store.put_object(Bucket=bucket, Key=key, Body=body, Metadata=metadata)


@pytest.fixture
def reference() -> Callable[[Plan], tuple[list[str], torch.Tensor]]:
    """All workers in one process, as `slslab accuracy` has them: the fingerprint of rank 0's parameters after every
    step (in SPIRT, every epoch), and the parameters in the end."""

    def compute(plan: Plan) -> tuple[list[str], torch.Tensor]:
        replicas, fingerprints = one_process(plan), []
        while replicas.position < plan.epochs * plan.batches and replicas.ended is None:
            replicas.advance()
            fingerprints.append(gradients.sha256(replicas.parameters()))
        return fingerprints, replicas.parameters()

    return compute


@pytest.fixture
def curve() -> Callable[[Plan], tuple[tuple[float, ...], tuple[float, ...], str]]:
    """Loss and test accuracy after every epoch, of all workers in one process, and the parameters' fingerprint."""

    def learn(plan: Plan) -> tuple[tuple[float, ...], tuple[float, ...], str]:
        replicas = one_process(plan)
        epochs = [(replicas.train_epoch().loss, replicas.judge().accuracy) for _ in range(plan.epochs)]
        losses, accuracies = zip(*epochs, strict=True)
        return losses, accuracies, gradients.sha256(replicas.parameters())

    return learn


def one_process(plan: Plan) -> Replicas:
    """All of a plan's workers before their first step."""
    kind = architectures()[plan.architecture].replicas()
    assert kind is not None
    replicas: Replicas = kind(plan, Samples(plan))
    return replicas


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> InMemory:
    """Run a plan of functions in memory, given as an architecture, its options and other values, and check it."""

    def run(name: str, options: Mapping[str, Any] | None = None, **values: Any) -> Ran:
        plan = planning.make_plan(architectures()[name], {"dataset": "digits", **values}, options or {})
        with running.read_once():
            ran = running.run(plan, 1, tmp_path_factory.mktemp(name), LIMIT_S)
        assert_holds(ran.recorded)
        assert ran.left == ()
        return ran

    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def run(runs: Path, request: pytest.FixtureRequest) -> Run:
    """`slslab run … --json` of the module's ARCHITECTURE; equal runs are run once."""

    @cache
    def once(*options: str) -> dict[str, Any]:
        with forked_environments():
            variables = {"SLSLAB_RUNS": str(runs), "CUDA_VISIBLE_DEVICES": ""}
            done = slslab("run", request.module.ARCHITECTURE, *options, "--json", variables=variables)
        document: dict[str, Any] = done.document
        return document

    return once
