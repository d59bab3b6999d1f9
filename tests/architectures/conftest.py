"""Runs a room's real handlers in threads against a real object store, with a trace of every event."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from slslab.emulator import CREDENTIALS
from slslab.stack.embedded import EmbeddedObjectStore
from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab_workers import datasets, gradients, training
from slslab_workers.allreduce.handlers import AllReduceWorker
from slslab_workers.events import Tracer
from slslab_workers.gpu.instance import GpuWorker
from slslab_workers.keys import minibatch_key
from slslab_workers.models import spec
from slslab_workers.objects import Objects, s3_client
from slslab_workers.plan import Assignment, Plan, thread_count
from slslab_workers.scatterreduce.handlers import ScatterReduceWorker

NUMBERS = count()
WORKERS: dict[str, type[training.Trainer]] = {
    "allreduce": AllReduceWorker,
    "gpu": GpuWorker,
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
    """What a run left: results by rank, fingerprints after every step by rank, events, keys left in the bucket."""

    results: list[dict[str, Any]]
    fingerprints: dict[int, list[str]] = field(default_factory=dict)
    parameters: dict[int, torch.Tensor] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    def protocol(self) -> tuple[dict[str, int], int, int]:
        """Requests by operation, bytes in and bytes out of the training protocol."""
        requests: dict[str, int] = {}
        moved = {"object.put": 0, "object.get": 0, "object.delete": 0}
        for event in self.events:
            if not event["overhead"]:
                requests[event["op"]] = requests.get(event["op"], 0) + event["requests"]
                moved[event["op"]] += event["bytes"]
        return requests, moved["object.put"], moved["object.get"]


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An S3 client of an embedded object store."""
    with EmbeddedObjectStore(Path(tmp_path_factory.mktemp("s3")) / "data", CREDENTIALS, {}) as server:
        patch = pytest.MonkeyPatch()
        for name, value in {**CREDENTIALS, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": server.endpoint}.items():
            patch.setenv(name, value)
        client = s3_client(max_pool_connections=64)
        yield client
        client.close()
        patch.undo()


@pytest.fixture(scope="module")
def databases() -> Iterator[list[str]]:
    """Addresses of tensor databases in one process; a test takes away those that it needs, so that no two share one."""
    with EmbeddedTensorDatabases(128, password="p@ss:word/1") as server:
        yield list(server.endpoints)


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
        return Plan(**values | changes)

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
def train(store: Any, upload: Callable[[Plan], str]) -> Callable[..., Trained]:
    """Store the minibatches of a plan and run all its workers at once, in threads, through their handlers' code."""

    def run(plan: Plan, delay: Callable[[int, int], None] | None = None) -> Trained:
        bucket = upload(plan)
        trained = Trained([])
        lock = threading.Lock()

        def emit(event: dict[str, Any]) -> None:
            with lock:
                trained.events.append(event)

        room: Any = WORKERS[plan.architecture]

        class Watched(room):  # type: ignore[misc]
            def synchronise(self, state: training.WorkerState, step: training.Step) -> bool:
                if delay is not None:
                    delay(self.rank, state.position)
                leaving = bool(super().synchronise(state, step))
                flat = gradients.flatten(state.model.parameters())
                trained.fingerprints.setdefault(self.rank, []).append(gradients.sha256(flat))
                trained.parameters[self.rank] = flat
                return leaving

        def work(rank: int) -> dict[str, Any]:
            objects = Objects(store, bucket, Tracer(emit, plan.run, rank, f"invocation-{rank}"))
            if room is GpuWorker:
                return dict(Watched(plan, rank, objects).run())
            steps = plan.epochs * plan.batches
            if plan.mode == "long-running":
                assignment = Assignment(plan, bucket, rank, 0, steps, False, False, 0)
                return dict(Watched(assignment, Context(), objects).run())
            result: dict[str, Any] = {}
            for step in range(steps):
                assignment = Assignment(plan, bucket, rank, step, step + 1, step > 0, True, 0)
                result = Watched(assignment, Context(), objects).run()
            return result

        with ThreadPoolExecutor(plan.workers) as pool:
            trained.results = list(pool.map(work, range(plan.workers)))
        listed = store.list_objects_v2(Bucket=bucket, Prefix=f"{plan.run}/{plan.architecture}/")
        trained.keys = [entry["Key"] for entry in listed.get("Contents", [])]
        return trained

    return run


def store_minibatches(plan: Plan, store: Any, bucket: str) -> None:
    """What the driver uploads."""
    dataset = datasets.load(plan.dataset, plan.workers * plan.batches * plan.batch_size, plan.seed)
    dataset = dataset.with_channels(spec(plan.model).channels)
    for epoch in range(plan.epochs):
        indices = datasets.partition(
            len(dataset.train_labels), plan.workers, plan.batches, plan.batch_size, plan.seed, epoch
        )
        for rank in range(plan.workers):
            for step in range(plan.batches):
                chosen = indices[rank, step]
                body, metadata = datasets.encode_minibatch(
                    dataset.train_images[chosen], dataset.train_labels[chosen], dataset.policy
                )
                key = minibatch_key(plan, epoch, step, rank)
                store.put_object(Bucket=bucket, Key=key, Body=body, Metadata=metadata)


@pytest.fixture
def reference() -> Callable[[Plan], tuple[list[str], torch.Tensor]]:
    """One process that computes the n minibatch gradients separately and averages them in rank order.

    Returns the fingerprint after every step and the final parameters.
    """

    def compute(plan: Plan) -> tuple[list[str], torch.Tensor]:
        torch.set_num_threads(thread_count(plan.memory_mb))
        dataset = datasets.load(plan.dataset, plan.workers * plan.batches * plan.batch_size, plan.seed)
        dataset = dataset.with_channels(spec(plan.model).channels)
        state = training.WorkerState.fresh(plan, 0)
        fingerprints = []
        for epoch in range(plan.epochs):
            indices = datasets.partition(
                len(dataset.train_labels), plan.workers, plan.batches, plan.batch_size, plan.seed, epoch
            )
            for step in range(plan.batches):
                parts = []
                for rank in range(plan.workers):
                    chosen = indices[rank, step]
                    inputs, targets = datasets.prepare(
                        dataset.train_images[chosen],
                        dataset.train_labels[chosen],
                        dataset.policy,
                        plan.seed,
                        epoch,
                        rank,
                        step,
                    )
                    state.model.zero_grad()
                    loss = torch.nn.functional.cross_entropy(state.model(inputs), targets)
                    loss.backward()  # type: ignore[no-untyped-call]
                    parts.append(
                        torch.cat([p.grad.reshape(-1) for p in state.model.parameters() if p.grad is not None])
                    )
                total = parts[0].clone()
                for part in parts[1:]:
                    total += part
                offset = 0
                for parameter in state.model.parameters():
                    size = parameter.numel()
                    parameter.grad = (total[offset : offset + size] / plan.workers).view_as(parameter)
                    offset += size
                state.optimiser.step()
                flat = gradients.flatten(state.model.parameters())
                fingerprints.append(gradients.sha256(flat))
        return fingerprints, gradients.flatten(state.model.parameters())

    return compute
