"""The worker: an ordinary Lambda handler. Only it imports torch."""

from collections.abc import Mapping
from typing import Any

from parameter_averaging import EVERY
from slslab_workers import gradients
from slslab_workers.polling import poll_policy
from slslab_workers.training import Step, Worker, WorkerState, handle, is_leaving, wire_metadata


class AveragingWorker(Worker):
    """A worker that updates with its own gradient and takes over the mean of all models every few steps."""

    def synchronise(self, state: WorkerState, step: Step) -> bool:
        """Update; then, if it is time, average. Workers hear each other's votes to leave only when they average."""
        self.update(state, step.gradient)
        if (state.position + 1) % int(self.plan.options.get(EVERY.name, EVERY.default)):
            return False
        own = gradients.flatten(state.model.parameters())
        prefix = f"{self.plan.run}/parameter-averaging/s{state.position}/"
        metadata = wire_metadata(step.leaving)
        self.objects.put(
            f"{prefix}{self.rank}", gradients.as_bytes(own), "synchronise", overhead=False, metadata=metadata
        )
        models, leaving = {self.rank: own}, step.leaving
        for rank in set(range(self.plan.workers)) - {self.rank}:
            stored = self.objects.wait_for(
                f"{prefix}{rank}", poll_policy(self.plan).gets, "synchronise", overhead=False
            )
            models[rank] = gradients.from_bytes(stored.body)
            leaving = leaving or is_leaving(stored.metadata)
        mean = gradients.sum_in_rank_order([models[rank] for rank in sorted(models)]).div_(self.plan.workers)
        gradients.write_parameters(state.model, mean)
        return leaving


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """AWS Lambda's entry point."""
    return handle(event, context, AveragingWorker)
