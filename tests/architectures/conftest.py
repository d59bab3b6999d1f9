"""Runs an architecture's real handlers in threads against a real object store, with a trace of every event."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.architectures.peers import Peers
from tests.commands import assert_holds, forked_environments, slslab

from slslab.aws.keys import Keyring
from slslab.checks.recorded import Recorded
from slslab.runs.planning import architectures
from slslab.stack.object_store import EmbeddedObjectStore
from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab.trace.events import clock_domain
from slslab.trace.table import tabulate
from slslab_workers.allreduce.handlers import AllReduceWorker
from slslab_workers.channels import endpoints
from slslab_workers.channels.events import Sink, Tracer
from slslab_workers.channels.objects import Objects, s3_client
from slslab_workers.channels.queues import Queues, open_queues
from slslab_workers.gloo.instance import GlooWorker
from slslab_workers.gpu.instance import GpuWorker
from slslab_workers.mlless.driver import create_queues, delete_queues, receive_statistics
from slslab_workers.mlless.handlers import MLLessWorker
from slslab_workers.mlless.supervisor import Supervision, Supervisor
from slslab_workers.plan import Assignment, Plan
from slslab_workers.replicas import Replicas
from slslab_workers.scatterreduce.handlers import ScatterReduceWorker
from slslab_workers.trace.operations import moves
from slslab_workers.training import datasets, gradients, loop
from slslab_workers.training.instance import InstanceWorker
from slslab_workers.training.keys import minibatch_key
from slslab_workers.training.samples import Samples
from slslab_workers.training.state import WorkerState

NUMBERS = count()
# Of the options of a run: its document.
Run = Callable[..., dict[str, Any]]
WORKERS: dict[str, type[loop.Trainer]] = {
    "allreduce": AllReduceWorker,
    "gloo": GlooWorker,
    "gpu": GpuWorker,
    "mlless": MLLessWorker,
    "scatterreduce": ScatterReduceWorker,
}


@dataclass
class Context:
    """A Lambda context whose remaining time is what the test says."""

    remaining_ms: int = 900_000
    aws_request_id: str = "request"
    function_name: str = "function"

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_ms


@dataclass
class Trained:
    """What a run left: results by rank, fingerprints after every step by rank, events, keys left in the bucket; and of
    MLLess what its supervisor told the client of every step."""

    results: list[dict[str, Any]]
    fingerprints: dict[int, list[str]] = field(default_factory=dict)
    parameters: dict[int, torch.Tensor] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    statistics: list[dict[str, Any]] = field(default_factory=list)

    def protocol(self) -> tuple[dict[str, int], int, int]:
        """Requests by operation, bytes sent and received, of the training protocol."""
        requests: dict[str, int] = {}
        sent = received = 0
        for event in self.events:
            if not event["overhead"]:
                requests[event["op"]] = requests.get(event["op"], 0) + event["requests"]
                sent += event["bytes"] * moves(event["op"], "in")
                received += event["bytes"] * moves(event["op"], "out")
        return requests, sent, received


@pytest.fixture(scope="session")
def keys() -> Keyring:
    """The keys of the object store, and of emulators whose functions use it."""
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
def databases() -> Iterator[list[str]]:
    """Addresses of tensor databases in one process; a test takes away those that it needs, so that no two share one."""
    with EmbeddedTensorDatabases(200, password="p@ss:word/1") as server:
        yield list(server.endpoints)


@pytest.fixture
def peers(store: Any, databases: list[str], monkeypatch: pytest.MonkeyPatch) -> Peers:
    """Runs SPIRT's plans in threads."""
    return Peers(monkeypatch, store, databases)


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
def train(store: Any, upload: Callable[[Plan], str], request: pytest.FixtureRequest) -> Callable[..., Trained]:
    """Store the minibatches of a plan and run all its workers at once, in threads, through their handlers' code.

    The first exception of any ends the run.
    """

    def run(plan: Plan, delay: Callable[[int, int], None] | None = None) -> Trained:
        bucket = upload(plan)
        trained = Trained([])
        lock = threading.Lock()

        def emit(event: dict[str, Any]) -> None:
            with lock:
                trained.events.append(event)

        kind: Any = WORKERS[plan.architecture]

        class Watched(kind):  # type: ignore[misc]
            def synchronise(self, state: WorkerState, gradient: torch.Tensor) -> torch.Tensor | None:
                if delay is not None:
                    delay(self.rank, state.position)
                aggregate: torch.Tensor | None = super().synchronise(state, gradient)
                return aggregate

            def after_update(self, state: WorkerState) -> None:
                super().after_update(state)
                flat = gradients.flatten(state.model.parameters())
                trained.fingerprints.setdefault(self.rank, []).append(gradients.sha256(flat))
                trained.parameters[self.rank] = flat

        def work(rank: int) -> dict[str, Any]:
            objects = Objects(store, bucket, Tracer(emit, plan.run, rank, f"invocation-{rank}"))
            if issubclass(kind, InstanceWorker):
                return dict(Watched(plan, rank, objects).run())
            steps = plan.epochs * plan.batches
            if plan.mode == "long-running":
                assignment = Assignment(plan, bucket, rank, 0, steps, False, False, 0)
                return dict(Watched(assignment, Context(), objects).run())
            result: dict[str, Any] = {}
            for step in count():
                assignment = Assignment(plan, bucket, rank, step, step + 1, step > 0, True, 0)
                result = Watched(assignment, Context(), objects).run()
                # How many steps MLLess takes, only its supervisor knows.
                if result["ended"] is not None if plan.architecture == "mlless" else step + 1 == steps:
                    break
            return result

        companions: Any = nullcontext([])
        if plan.architecture == "mlless":
            request.getfixturevalue("tensors_and_queue")
            companions = supervised(plan, emit)
        with ThreadPoolExecutor(plan.workers) as pool, companions as others:
            futures = [pool.submit(work, rank) for rank in range(plan.workers)]
            done, _ = wait(futures + others, return_when=FIRST_EXCEPTION)
            for future in sorted(done, key=lambda future: future.exception() is None):
                future.result()
            trained.results = [future.result() for future in futures]
            trained.statistics = [told for other in others for told in other.result()]
        listed = store.list_objects_v2(Bucket=bucket, Prefix=f"{plan.run}/{plan.architecture}/")
        trained.keys = [entry["Key"] for entry in listed.get("Contents", [])]
        check_trained(plan, trained.events)
        return trained

    return run


def check_trained(plan: Plan, events: list[dict[str, Any]]) -> None:
    """Check what workers in threads did, as a run of them is checked, which has no documents."""
    header = {"record": "header", "run": plan.run, "clock": clock_domain()}
    rows = tabulate([header, *({"record": "event", "function": "", "environment": "", **event} for event in events)])
    assert_holds(Recorded(plan, rows))


@contextmanager
def supervised(plan: Plan, emit: Sink) -> Iterator[list["Future[Any]"]]:
    """MLLess's queues, its supervisor in a thread, and the client in another, who hears of every step.

    Whoever still waits at a queue in the end, gets an exception.
    """
    steps = plan.epochs * plan.batches

    def connect(worker: int) -> Queues:
        return open_queues(endpoints.queue_url(), Tracer(emit, plan.run, worker, f"invocation-{worker}"))

    def supervise() -> list[dict[str, Any]]:
        with connect(plan.workers) as queues:
            assert Supervisor(Supervision(plan, 0, steps), Context(), queues).run() is None
        return []

    def hear() -> list[dict[str, Any]]:
        heard: list[dict[str, Any]] = []
        with connect(-1) as queues:
            while not heard or heard[-1]["end"] is None:
                statistics = receive_statistics(queues, plan, len(heard))
                heard += [] if statistics is None else [statistics]
        return heard

    with connect(-1) as queues:
        create_queues(queues, plan)
        with ThreadPoolExecutor(2) as pool:
            try:
                yield [pool.submit(supervise), pool.submit(hear)]
            finally:
                delete_queues(queues, plan)


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
                key = minibatch_key(plan, epoch, step, rank)
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
