"""ScatterReduce's Lambda handler, and how its gradients become an aggregate."""

import statistics
from collections.abc import Mapping
from typing import Any

import torch

from slslab_workers import gradients
from slslab_workers.logs import Log
from slslab_workers.objects import Objects
from slslab_workers.plan import Plan
from slslab_workers.polling import PollPolicy, poll_policy
from slslab_workers.scatterreduce.pattern import SUMMARY_STEPS
from slslab_workers.training import Aggregate, ExchangeWorker, Step, WorkerState, handle, is_leaving, wire_metadata


class ScatterReduceExchange:
    """Worker i owns chunk i: everybody sends it theirs, it adds them up, and everybody reads the result."""

    def __init__(self, plan: Plan, rank: int, objects: Objects) -> None:
        self._objects = objects
        self._prefix = f"{plan.run}/scatterreduce"
        self._workers = plan.workers
        self._rank = rank
        self._poll: PollPolicy = poll_policy(plan)
        self.log = Log(plan, rank, objects)

    def synchronise(self, gradient: torch.Tensor, epoch: int, step: int, leaving: bool) -> Aggregate:
        """Gradient (P,) float32 in, mean over all workers out; returns when all chunks have been read."""
        parameters = gradient.numel()
        chunks = [gradients.chunk(parameters, self._workers, index) for index in range(self._workers)]
        for index, chunk in enumerate(chunks):
            if index != self._rank:
                key = self._partial(epoch, step, index) + str(self._rank)
                self._put(key, gradient[chunk], leaving)
        self.log.append(f"{self._workers - 1} chunks put")
        own, leaving = self._merge(gradient[chunks[self._rank]], epoch, step, leaving)
        self.log.append("own chunk merged")
        self._put(self._merged(epoch, step) + str(self._rank), own, leaving)
        self.log.append("merged chunk put")
        aggregate = torch.empty(parameters)
        aggregate[chunks[self._rank]] = own
        self._gather(aggregate, chunks, epoch, step)
        with self._objects.tracer.span("reduce", "synchronise"):
            aggregate.div_(self._workers)
        self.log.append(f"{self._workers - 1} merged chunks gotten")
        if self._rank == 0:
            self._expire(epoch, step)
        return Aggregate(aggregate, leaving)

    def _merge(self, own: torch.Tensor, epoch: int, step: int, leaving: bool) -> tuple[torch.Tensor, bool]:
        """Collect this worker's chunk from everybody, delete what was read, and add up in rank order."""
        prefix = self._partial(epoch, step, self._rank)
        parts = {self._rank: own}
        delays = self._poll.lists.delays()
        while len(parts) < self._workers:
            arrived = [int(key.rpartition("/")[2]) for key in self._objects.list(prefix, "synchronise")]
            for rank in arrived:
                stored = self._objects.get(prefix + str(rank), "synchronise", overhead=False)
                parts[rank] = gradients.from_bytes(stored.body)
                leaving = leaving or is_leaving(stored.metadata)
                self._objects.delete(prefix + str(rank), "synchronise", overhead=False)
            if not arrived:
                self._objects.pause(next(delays))
        with self._objects.tracer.span("reduce", "synchronise"):
            return gradients.sum_in_rank_order([parts[rank] for rank in range(self._workers)]), leaving

    def _gather(self, aggregate: torch.Tensor, chunks: list[slice], epoch: int, step: int) -> None:
        """Read every other worker's merged chunk into its place."""
        prefix = self._merged(epoch, step)
        missing = set(range(self._workers)) - {self._rank}
        delays = self._poll.lists.delays()
        while missing:
            arrived = {int(key.rpartition("/")[2]) for key in self._objects.list(prefix, "synchronise")} & missing
            for index in sorted(arrived):
                stored = self._objects.get(prefix + str(index), "synchronise", overhead=False)
                aggregate[chunks[index]] = gradients.from_bytes(stored.body)
            missing -= arrived
            if missing and not arrived:
                self._objects.pause(next(delays))

    def _expire(self, epoch: int, step: int) -> None:
        """Rank 0: delete the merged chunks of earlier steps; nobody can still read them (reference 4.3)."""
        current = self._merged(epoch, step)
        for key in self._objects.list(f"{self._prefix}/merged/", "synchronise"):
            if not key.startswith(current):
                self._objects.delete(key, "synchronise", overhead=False)

    def _put(self, key: str, chunk: torch.Tensor, leaving: bool) -> None:
        body = gradients.as_bytes(chunk)
        self._objects.put(key, body, "synchronise", overhead=False, metadata=wire_metadata(leaving))

    def _partial(self, epoch: int, step: int, chunk: int) -> str:
        return f"{self._prefix}/partial/e{epoch}/s{step}/{chunk}/"

    def _merged(self, epoch: int, step: int) -> str:
        return f"{self._prefix}/merged/e{epoch}_s{step}/"


class ScatterReduceWorker(ExchangeWorker):
    """One worker of ScatterReduce."""

    exchange = ScatterReduceExchange

    def synchronise(self, state: WorkerState, step: Step) -> bool:
        """Exchange and update, in six lines of the log, and one more every tenth step of an epoch."""
        self.log.append(f"minibatch computed, loss {step.loss:.4f}")
        leaving = super().synchronise(state, step)
        self.log.append("model updated")
        if step.step % SUMMARY_STEPS == 0:
            self.log.append(f"mean loss so far {statistics.fmean(state.losses):.4f}")
        return leaving


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """AWS Lambda's entry point."""
    return handle(event, context, ScatterReduceWorker)
