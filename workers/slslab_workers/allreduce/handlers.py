"""AllReduce's Lambda handler: rank 0 merges the gradients of all workers."""

from functools import partial

import torch

from slslab_workers.channels.choice import adds_up
from slslab_workers.training.exchange import ObjectWorker
from slslab_workers.training.state import WorkerState
from slslab_workers.training.worker import handle


class AllReduceWorker(ObjectWorker):
    """Every worker puts its gradient; rank 0 merges all and puts the result; the others wait for it."""

    logged_as = "all_reduce"
    logged = ("compute", "put_gradient", "merge", "publish_merged", "get_merged", "update")

    def lines_after(self, method: str) -> int:
        """Return 1, and for all ranks except 0 sometimes 2: they write six lines a step, and rank 0 five."""
        return 2 if self.rank and method in ("put_gradient", "update") else 1

    def exchange(self, state: WorkerState, vector: torch.Tensor) -> torch.Tensor:
        """Return the aggregate of all workers' vectors, after rank 0, or a parameter server, has merged them."""
        if adds_up(self.plan.options):
            return self.sum_at_server(self._merged(self.place(state)), vector)
        self.put_gradient(state, vector)
        if self.rank != 0:
            return self.get_merged(state)
        aggregate = self.merge(state)
        self.publish_merged(state, aggregate)
        return aggregate

    def put_gradient(self, state: WorkerState, gradient: torch.Tensor) -> None:
        """Put this worker's gradient for rank 0."""
        self.put_vector(self._local(state) + str(self.rank), gradient)

    def merge(self, state: WorkerState) -> torch.Tensor:
        """Rank 0: get and delete all gradients as they arrive, and add them up in rank order."""
        workers, added = self.plan.workers, 0
        arriving = self.collect(self._local(state), range(workers), delete=True)
        if self.robust is not None:
            return self.withstand(state, [gradient for _, gradient in sorted(arriving)])
        parts: dict[int, torch.Tensor] = {}
        total: torch.Tensor | None = None
        for rank, gradient in arriving:
            parts[rank] = gradient
            with self.tracer.span("reduce", "synchronise", "add") as span:
                # Add and release consecutive ranks, so that few gradients are held.
                while added in parts:
                    part = parts.pop(added)
                    span.bytes += 0 if total is None else part.nbytes
                    total = part if total is None else total.add_(part)
                    added += 1
        assert total is not None
        return self.combine(total, workers, workers)

    def publish_merged(self, state: WorkerState, aggregate: torch.Tensor) -> None:
        """Rank 0: put the aggregate, and delete the previous step's, which all workers have read."""
        self.put_vector(self._merged(self.place(state)), aggregate)
        self.delete_before(state, f"{self.plan.run}/allreduce/merged/", lambda before: [self._merged(before)])

    def get_merged(self, state: WorkerState) -> torch.Tensor:
        """Wait for rank 0's aggregate and return it."""
        return self.wait_for_vector(self._merged(self.place(state)))

    def _local(self, state: WorkerState) -> str:
        epoch, step = self.place(state)
        return f"{self.plan.run}/allreduce/gradients/e{epoch}/s{step}/"

    def _merged(self, place: tuple[int, int]) -> str:
        epoch, step = place
        return f"{self.plan.run}/allreduce/merged/e{epoch}_s{step}"


# AWS Lambda's entry point.
handler = partial(handle, worker=AllReduceWorker)
