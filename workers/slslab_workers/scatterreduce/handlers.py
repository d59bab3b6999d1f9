"""ScatterReduce's Lambda handler: worker i merges chunk i of all gradients, by a robust rule if the plan has one."""

from functools import partial

import torch

from slslab_workers.scatterreduce.pattern import SUMMARY_STEPS
from slslab_workers.training import aggregation
from slslab_workers.training.exchange import ObjectWorker
from slslab_workers.training.state import WorkerState
from slslab_workers.training.worker import handle


class ScatterReduceWorker(ObjectWorker):
    """Worker i owns chunk i: the others send it their parts, it merges them, and all workers get the result."""

    logged_as = "scatter_reduce"
    logged = ("compute", "put_chunks", "merge_own", "publish_own", "gather", "update")

    def lines_after(self, method: str) -> int:
        """Return 1, or 2 once in every tenth step: the released code adds a summary."""
        return 2 if method == "update" and self.tracer.step % SUMMARY_STEPS == 0 else 1

    def exchange(self, state: WorkerState, vector: torch.Tensor) -> torch.Tensor:
        """Return the aggregate of all workers' vectors after getting all chunks."""
        self.put_chunks(state, vector)
        own = self.merge_own(state, self._chunk(vector, self.rank))
        self.publish_own(state, own)
        aggregate = torch.empty_like(vector)
        self._chunk(aggregate, self.rank)[:] = own
        self.gather(state, aggregate)
        if self.rank == 0:
            # Every worker has read the sums of the step before.
            self.delete_before(
                state,
                f"{self.plan.run}/scatterreduce/merged/",
                lambda before: [self._merged(before) + str(rank) for rank in range(self.plan.workers)],
            )
        return aggregate

    def put_chunks(self, state: WorkerState, gradient: torch.Tensor) -> None:
        """Put the chunks that the other workers own."""
        for owner in self._others():
            self.put_vector(self._partial(state, owner) + str(self.rank), self._chunk(gradient, owner))

    def merge_own(self, state: WorkerState, own: torch.Tensor) -> torch.Tensor:
        """Get and delete the others' parts of this chunk; return their sum in rank order, or the rule's aggregate."""
        parts = dict(self.collect(self._partial(state, self.rank), self._others(), delete=True))
        parts[self.rank] = own
        if self.robust is not None:
            return self.withstand(state, [parts[rank] for rank in sorted(parts)])
        with self.tracer.span("reduce", "synchronise", "sum", bytes=len(parts) * own.nbytes):
            return aggregation.sum_in_rank_order(parts[rank] for rank in sorted(parts))

    def publish_own(self, state: WorkerState, own: torch.Tensor) -> None:
        """Put the merged chunk of this worker."""
        self.put_vector(self._merged(self.place(state)) + str(self.rank), own)

    def gather(self, state: WorkerState, aggregate: torch.Tensor) -> None:
        """Get every other worker's merged chunk into its place, and make the aggregate of the whole, in place."""
        for owner, merged in self.collect(self._merged(self.place(state)), self._others(), delete=False):
            self._chunk(aggregate, owner)[:] = merged
        if self.robust is not None:
            return
        with self.tracer.span("reduce", "synchronise", "mean", bytes=aggregate.nbytes):
            self.combine(aggregate, self.plan.workers, self.plan.workers)

    def _others(self) -> list[int]:
        return [rank for rank in range(self.plan.workers) if rank != self.rank]

    def _chunk(self, vector: torch.Tensor, owner: int) -> torch.Tensor:
        return vector[aggregation.chunk(len(vector), self.plan.workers, owner)]

    def _partial(self, state: WorkerState, owner: int) -> str:
        epoch, step = self.place(state)
        return f"{self.plan.run}/scatterreduce/partial/e{epoch}/s{step}/{owner}/"

    def _merged(self, place: tuple[int, int]) -> str:
        epoch, step = place
        return f"{self.plan.run}/scatterreduce/merged/e{epoch}_s{step}/"


# AWS Lambda's entry point.
handler = partial(handle, worker=ScatterReduceWorker)
