"""Exchange vectors as objects when the algorithm asks for it: put one, wait for one, collect many workers' vectors."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from slslab_workers.channels.choice import open_channel
from slslab_workers.channels.objects import Absent, Object, ObjectChannel
from slslab_workers.channels.parameter_server import ParameterServer
from slslab_workers.channels.polling import poll_policy
from slslab_workers.training import algorithms, buffers, gradients
from slslab_workers.training.keys import global_key
from slslab_workers.training.state import WorkerState
from slslab_workers.training.step import fetch_minibatch
from slslab_workers.training.worker import Worker


class ObjectWorker(Worker):
    """A worker that exchanges float32 vectors as objects.

    The objects' metadata carry each worker's vote to leave; `leaving` collects the votes. `exchanged` is the channel of
    these objects; minibatches, models and results are in the object store. If the algorithm trains locally, a worker
    may leave between two exchanges without the others, which then wait for it.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.exchanged: ObjectChannel = open_channel(self.plan, self.assignment.bucket, self.objects)
        self.local_steps = algorithms.exchange_every(self.plan.options, self.plan.batches)

    def run(self) -> dict[str, Any]:
        """Train as `Worker.run` does, and close the channel."""
        with self.exchanged:
            return super().run()

    def _fresh(self) -> WorkerState:
        state = super()._fresh()
        if self.local is not None and self.local.starts_from_data:
            key = f"{self.plan.run}/{self.plan.architecture}/first"
            if self.rank == 0:
                first = self.local.first(fetch_minibatch(self.objects, self.plan, 0, 0, 0)[0])
                self.put_vector(key, first)
            else:
                first = self.wait_for_vector(key)
            gradients.write_parameters(state.model, first)
        return state

    def synchronise(self, state: WorkerState, gradient: torch.Tensor) -> torch.Tensor | None:
        """Return the aggregate (P,) of all workers' gradients or, with local training, this worker's."""
        self.leaving = self.is_short_of_time()
        if self.local is None:
            return self.exchange(state, gradient)
        return self.local.correct(state, gradient)

    def after_update(self, state: WorkerState) -> None:
        """Exchange the results of local training if an exchange is due."""
        if self.local is None or not self.local.exchanges_after(state.position):
            return
        with self.tracer.span("serialise", "synchronise") as span:
            message = self.with_buffers(state, self.local.message(state))
            span.bytes = message.nbytes
        aggregate = (self.swap if algorithms.is_asynchronous(self.plan.options) else self.exchange)(state, message)
        with self.tracer.span("update", "synchronise"):
            self.local.receive(state, buffers.take(self.plan, state.model.buffers(), aggregate))
        self.ended = self.local.ended

    def swap(self, state: WorkerState, vector: torch.Tensor) -> torch.Tensor:
        """Replace the global vector and return the previous one (S-ASP); rank 0's first vector is the first global one.

        Workers don't wait for each other, so they ignore each other's votes to leave.
        """
        leaving, key = self.leaving, global_key(self.plan, architecture=self.plan.architecture)
        seeds = self.rank == 0 and state.updates == self.local_steps
        if seeds:
            self.put_vector(key, vector)
        found = self.wait_for_vector(key)
        if not seeds:
            self.put_vector(key, vector)
        self.leaving = leaving
        return found

    def exchange(self, state: WorkerState, vector: torch.Tensor) -> torch.Tensor:
        """Return the aggregate of all workers' vectors, once it is complete."""
        raise NotImplementedError

    def sum_at_server(self, key: str, vector: torch.Tensor) -> torch.Tensor:
        """Return the aggregate of all workers' vectors, which a parameter server sums under a key."""
        server, workers = self.exchanged, self.plan.workers
        assert isinstance(server, ParameterServer)
        server.push(key, self.rank, workers, vector.numpy(), "synchronise", leaving=self.leaving)
        total, leaving = server.pull(key, workers, "synchronise")
        self.leaving |= leaving
        with self.tracer.span("reduce", "synchronise", "mean", bytes=vector.nbytes):
            return self.combine(torch.from_numpy(total), workers, workers)

    def put_vector(self, key: str, vector: torch.Tensor) -> None:
        """Put a vector, with the votes to leave so far."""
        metadata = {"leaving": str(int(self.leaving))}
        self.exchanged.put(key, gradients.as_bytes(vector), "synchronise", overhead=False, metadata=metadata)

    def wait_for_vector(self, key: str) -> torch.Tensor:
        """Wait for a vector and return it."""
        return self._take(self.exchanged.wait_for(key, poll_policy(self.plan).gets, "synchronise", overhead=False))

    def collect(self, prefix: str, ranks: Iterable[int], *, delete: bool) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield each rank with its vector, in order of arrival; the key is `prefix` followed by the rank.

        With `delete`, delete each vector after reading it.
        """
        missing = {f"{prefix}{rank}": rank for rank in ranks}
        delays = poll_policy(self.plan).lists.delays()
        while missing:
            arrived = 0
            for key in sorted(self.exchanged.find(prefix, missing, "synchronise"), key=lambda key: missing[key]):
                try:
                    stored = self.exchanged.get(key, "synchronise", overhead=False)
                except Absent:
                    continue
                vector = self._take(stored)
                if delete:
                    self.exchanged.delete(key, "synchronise", overhead=False)
                arrived += 1
                yield missing.pop(key), vector
            if not arrived:
                self.exchanged.pause(next(delays))

    def delete_before(self, state: WorkerState, prefix: str, keys: Callable[[tuple[int, int]], list[str]]) -> None:
        """Delete the objects of the exchange before the state's. `keys` takes its epoch and step; all its keys start
        with the prefix."""
        before = state.position - self.local_steps
        expired = [] if before < 0 else keys(divmod(before, self.plan.batches))
        for key in self.exchanged.find(prefix, expired, "synchronise"):
            self.exchanged.delete(key, "synchronise", overhead=False)

    def _take(self, stored: Object) -> torch.Tensor:
        self.leaving |= stored.metadata["leaving"] == "1"
        return gradients.from_bytes(stored.body)
