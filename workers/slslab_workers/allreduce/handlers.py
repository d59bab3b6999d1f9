"""AllReduce's Lambda handler, and how its gradients become an aggregate."""

from collections.abc import Mapping
from typing import Any

import torch

from slslab_workers import gradients
from slslab_workers.logs import Log
from slslab_workers.objects import Objects
from slslab_workers.plan import Plan
from slslab_workers.polling import PollPolicy, poll_policy
from slslab_workers.training import Aggregate, ExchangeWorker, Step, WorkerState, handle, is_leaving, wire_metadata


class AllReduceExchange:
    """Every worker puts its gradient; rank 0 merges all and puts the result; the others wait for it."""

    def __init__(self, plan: Plan, rank: int, objects: Objects) -> None:
        self._objects = objects
        self._prefix = f"{plan.run}/allreduce"
        self._workers = plan.workers
        self._rank = rank
        self._plan = plan
        self._poll: PollPolicy = poll_policy(plan)
        self.log = Log(plan, rank, objects)

    def synchronise(self, gradient: torch.Tensor, epoch: int, step: int, leaving: bool) -> Aggregate:
        """Gradient (P,) float32 in, mean (as released: sum) over all workers out; returns when it is complete."""
        body = gradients.as_bytes(gradient)
        key = self._local(epoch, step) + str(self._rank)
        self._objects.put(key, body, "synchronise", overhead=False, metadata=wire_metadata(leaving))
        self.log.append("gradient put")
        if self._rank == 0:
            return self._merge(epoch, step)
        self.log.append("waiting for the merged gradient")
        merged = self._objects.wait_for(self._merged(epoch, step), self._poll.gets, "synchronise", overhead=False)
        self.log.append("merged gradient gotten")
        return Aggregate(gradients.from_bytes(merged.body), is_leaving(merged.metadata))

    def _merge(self, epoch: int, step: int) -> Aggregate:
        """Rank 0: read what has arrived until all have, add in rank order, publish, and delete what expired."""
        prefix = self._local(epoch, step)
        parts: dict[int, torch.Tensor] = {}
        total: torch.Tensor | None = None
        added, leaving = 0, False
        delays = self._poll.lists.delays()
        while added < self._workers:
            arrived = sorted(int(key.rpartition("/")[2]) for key in self._objects.list(prefix, "synchronise"))
            for rank in arrived:
                stored = self._objects.get(prefix + str(rank), "synchronise", overhead=False)
                parts[rank] = gradients.from_bytes(stored.body)
                leaving = leaving or is_leaving(stored.metadata)
                self._objects.delete(prefix + str(rank), "synchronise", overhead=False)
                with self._objects.tracer.span("reduce", "synchronise"):
                    # Whoever is next in rank order is added and let go, so that little is held.
                    while added in parts:
                        part = parts.pop(added)
                        total = part if total is None else total.add_(part)
                        added += 1
            if not arrived:
                self._objects.pause(next(delays))
        assert total is not None
        conclude(self._plan, total)
        self.log.append(f"{added} gradients merged")
        merged = self._merged(epoch, step)
        body = gradients.as_bytes(total)
        self._objects.put(merged, body, "synchronise", overhead=False, metadata=wire_metadata(leaving))
        for key in self._objects.list(merged.rpartition("/")[0] + "/", "synchronise"):
            if key != merged:
                self._objects.delete(key, "synchronise", overhead=False)
        self.log.append("merged gradient put, expired ones deleted")
        return Aggregate(total, leaving)

    def _local(self, epoch: int, step: int) -> str:
        return f"{self._prefix}/gradients/e{epoch}/s{step}/"

    def _merged(self, epoch: int, step: int) -> str:
        return f"{self._prefix}/merged/e{epoch}_s{step}"


def conclude(plan: Plan, total: torch.Tensor) -> torch.Tensor:
    """The aggregate (P,) out of the sum of all workers' gradients, in place: their mean, as released the sum itself."""
    return total.div_(plan.workers) if plan.options.get("combine", "mean") == "mean" else total


class AllReduceWorker(ExchangeWorker):
    """One worker of AllReduce."""

    exchange = AllReduceExchange

    def synchronise(self, state: WorkerState, step: Step) -> bool:
        """Exchange and update, in five lines of rank 0's log and six of any other's."""
        self.log.append(f"minibatch computed, loss {step.loss:.4f}")
        leaving = super().synchronise(state, step)
        self.log.append("model updated")
        if self.rank != 0:
            self.log.append("step ended")
        return leaving


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """AWS Lambda's entry point."""
    return handle(event, context, AllReduceWorker)
