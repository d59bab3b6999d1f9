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

    def put(
        self, key: str, data: Any, phase: str, *, overhead: bool = True, metadata: Mapping[str, str] | None = None
    ) -> str:
        with self.request("object.put", phase, key, overhead=overhead) as event:
            self._shared[key] = Object(bytearray(data), "etag", metadata or {})
            event.bytes = len(self._shared[key].body)
        return "etag"

    def get(self, key: str, phase: str, *, overhead: bool = True, known_etag: str | None = None) -> Object:  # noqa: ARG002
        with self.request("object.get", phase, key, overhead=overhead) as event:
            if key not in self._shared:
                raise Absent(key)
            event.bytes = len(self._shared[key].body)
            return self._shared[key]

    def delete(self, key: str, phase: str, *, overhead: bool = True) -> None:
        with self.request("object.delete", phase, key, overhead=overhead):
            del self._shared[key]


def test_allreduce_over_it_gives_the_parameters_of_one_process() -> None:
    samples, shared, events = Samples(PLAN), dict[str, Object](), list[dict[str, Any]]()
    for epoch in range(PLAN.epochs):
        for rank, step in np.ndindex(PLAN.workers, PLAN.batches):
            chosen = samples.indices(epoch)[rank, step]
            images, labels = samples.images[chosen], samples.labels[chosen]
            body, metadata = datasets.encode_minibatch(images, labels, samples.dataset.policy)
            shared[minibatch_key(PLAN, epoch, step, rank)] = Object(bytearray(body), "etag", metadata)

    def work(rank: int) -> dict[str, Any]:
        objects = InMemory(shared, Tracer(events.append, PLAN.run, rank))
        context = SimpleNamespace(get_remaining_time_in_millis=lambda: 900_000)
        return AllReduceWorker(Assignment(PLAN, "", rank, 0, 6, False, False, 0), context, objects).run()

    with ThreadPoolExecutor(PLAN.workers) as pool:
        results = list(pool.map(work, range(PLAN.workers)))
    alone: Any = architecture.replicas()(PLAN, samples)
    for _ in range(PLAN.epochs):
        alone.train_epoch()
    assert {result["parameters_sha256"] for result in results} == {gradients.sha256(alone.parameters())}
    protocol = Counter(event["op"] for event in events if not event["overhead"])
    assert protocol == architecture.counts(3, 3, 2, results[0]["parameters"]).operations
