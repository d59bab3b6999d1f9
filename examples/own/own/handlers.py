"""The worker: an ordinary Lambda handler. Only it imports torch."""

from collections.abc import Mapping
from typing import Any

import torch

from slslab_workers.training import gradients
from slslab_workers.training.aggregation import sum_in_rank_order
from slslab_workers.training.exchange import ObjectWorker
from slslab_workers.training.state import WorkerState
from slslab_workers.training.worker import handle


class AveragingWorker(ObjectWorker):
    """A worker that updates with its own gradient and takes over the mean of all models every few steps."""

    def synchronise(self, state: WorkerState, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """Return the worker's own gradient: nothing is exchanged before the update."""
        return gradient

    def after_update(self, state: WorkerState) -> None:
        """Average the models, if it is time. Workers learn of each other's votes to leave only when they average."""
        if (state.position + 1) % int(self.plan.options["every"]):
            return
        self.leaving = self.is_short_of_time()
        epoch, step = self.place(state)
        prefix = f"{self.plan.run}/parameter-averaging/e{epoch}/s{step}/"
        own = gradients.flatten(state.model.parameters())
        self.put_vector(f"{prefix}{self.rank}", own)
        ranks = range(self.plan.workers)
        models = [own if rank == self.rank else self.wait_for_vector(f"{prefix}{rank}") for rank in ranks]
        with self.tracer.span("reduce", "synchronise", "mean"):
            mean = sum_in_rank_order(models).div_(self.plan.workers)
        gradients.write_parameters(state.model, mean)


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """AWS Lambda's entry point."""
    return handle(event, context, AveragingWorker)
