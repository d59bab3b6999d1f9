"""A channel of this test's own, objects in memory: AllReduce runs over it and learns what one process learns."""

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np

from slslab_workers.allreduce import architecture
from slslab_workers.allreduce.handlers import AllReduceWorker
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Absent, Object, ObjectChannel
from slslab_workers.plan import Assignment, Plan
from slslab_workers.trace.operations import Server
from slslab_workers.training import datasets, gradients
from slslab_workers.training.keys import minibatch_key
from slslab_workers.training.samples import Samples

PLAN = Plan("run", "allreduce", "lenet", "digits", batch_size=16, batches=3, memory_mb=1769, workers=3, epochs=2)


class InMemory(ObjectChannel):
    """Objects in a dictionary that all workers of this process share."""

    name, server = "object", Server("this process")

    def __init__(self, shared: dict[str, Object], tracer: Tracer) -> None:
        super().__init__(tracer)
        self._shared = shared

    def write(self, key: str, metadata: Mapping[str, str], body: memoryview) -> str:
        self._shared[key] = Object(bytearray(body), "etag", metadata)
        return "etag"

    def read(self, key: str, known_etag: str | None) -> Object:  # noqa: ARG002
        if key not in self._shared:
            raise Absent(key)
        return self._shared[key]

    def remove(self, key: str) -> int:
        del self._shared[key]
        return 0


def test_allreduce_over_it_gives_the_parameters_of_one_process() -> None:
    samples, shared, events = Samples(PLAN), dict[str, Object](), list[dict[str, Any]]()
    for epoch in range(PLAN.epochs):
        for rank, step in np.ndindex(PLAN.workers, PLAN.batches):
            chosen = samples.indices(epoch)[rank, step]
            images, labels = samples.images[chosen], samples.labels[chosen]
            body, metadata = datasets.encode_minibatch(images, labels, samples.dataset.policy)
            shared[minibatch_key(PLAN, epoch=epoch, step=step, rank=rank)] = Object(bytearray(body), "etag", metadata)

    def work(rank: int) -> dict[str, Any]:
        objects = InMemory(shared, Tracer(events.append, PLAN.run, rank))
        context = SimpleNamespace(get_remaining_time_in_millis=lambda: 900_000)
        return AllReduceWorker(Assignment(PLAN, "", rank, 0, 6, False), context, objects).run()

    with ThreadPoolExecutor(PLAN.workers) as pool:
        results = list(pool.map(work, range(PLAN.workers)))
    alone: Any = architecture.replicas()(PLAN, samples)
    for _ in range(PLAN.epochs):
        alone.train_epoch()
    assert {result["parameters_sha256"] for result in results} == {gradients.sha256(alone.parameters())}
    protocol = Counter(event["op"] for event in events if not event["overhead"])
    assert protocol == architecture.counts(3, 3, 2, results[0]["parameters"]).operations
