"""The program of an instance: `python -m slslab_workers.gpu.instance`, with its event as JSON on standard input.

The event gives the plan, the bucket and the worker's rank; the environment gives S3's address (AWS's own variables).
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

import torch

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Objects, s3_client
from slslab_workers.channels.polling import poll_policy
from slslab_workers.gpu.driver import GO_ON
from slslab_workers.plan import Plan
from slslab_workers.training import gradients
from slslab_workers.training.keys import verdict_key
from slslab_workers.training.loop import Trainer
from slslab_workers.training.state import WorkerState


class GpuWorker(Trainer):
    """One worker: puts its gradient, gets all others, and combines them by itself."""

    def run(self) -> dict[str, Any]:
        """Train to the plan's end, or until the driver says stop; return the worker's result."""
        plan = self.plan
        state, last = self._fresh(), plan.epochs * plan.batches
        going = True
        while going:
            self.train_step(state)
            going = state.position < last
            if going and plan.gradual and state.position % plan.batches == 0:
                going = self._goes_on(state.position // plan.batches - 1)
        return self.publish(state)

    def synchronise(self, state: WorkerState, gradient: torch.Tensor) -> torch.Tensor:
        """Return the aggregate (P,) of all workers' gradients."""
        position = state.position
        body, metadata = gradients.as_bytes(gradient), {"dtype": "float32"}
        self.objects.put(self._key(position, self.rank), body, "synchronise", overhead=False, metadata=metadata)
        if self.rank == 0 and position >= 2:
            # Rank 0 has all gradients of the step before, and no worker puts that before having read this one's.
            for rank in range(self.plan.workers):
                self.objects.delete(self._key(position - 2, rank), "synchronise", overhead=False)
        return self._merge(gradient, position)

    def _merge(self, own: torch.Tensor, position: int) -> torch.Tensor:
        """Get the others' gradients (P,), add them up in rank order as they come, and combine them."""
        total: torch.Tensor | None = None
        for rank in range(self.plan.workers):
            part = own if rank == self.rank else self._get(position, rank)
            with self.tracer.span("reduce", "synchronise", "copy" if total is None else "add") as span:
                if total is None:
                    total = part.clone() if part is own else part
                else:
                    total.add_(part)
                span.bytes = 0 if total is part else part.nbytes
        assert total is not None
        with self.tracer.span("reduce", "synchronise", "mean") as span:
            span.bytes = total.nbytes
            return self.combine(total, self.plan.workers, self.plan.workers)

    def _get(self, position: int, rank: int) -> torch.Tensor:
        key, polls = self._key(position, rank), poll_policy(self.plan).gets
        return gradients.from_bytes(self.objects.wait_for(key, polls, "synchronise", overhead=False).body)

    def _goes_on(self, epoch: int) -> bool:
        """Wait, on billed time, for the driver's verdict after this epoch; return whether there is another."""
        verdict = self.objects.wait_for(verdict_key(self.plan, epoch), poll_policy(self.plan).gets, "other")
        return bool(verdict.body == GO_ON)

    def _key(self, position: int, rank: int) -> str:
        epoch, step = divmod(position, self.plan.batches)
        return f"{self.plan.run}/gpu/gradients/e{epoch}_s{step}/{rank}"


def choose_device(option: str) -> str:
    """Return `cuda` or `cpu` for `auto`, `cuda` or `cpu`; raise RuntimeError for `cuda` if torch sees none."""
    if option == "cpu" or (option == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no CUDA device")
    # float32 as on a T4: later GPUs would round the factors of convolutions to 10 bits (TF32).
    torch.backends.cudnn.allow_tf32 = False
    return "cuda"


def main(event: Mapping[str, Any]) -> None:
    """Train as the event says."""
    plan, rank = Plan.from_document(event["plan"]), int(event["rank"])
    tracer = Tracer(run=plan.run, worker=rank)
    with tracer.span("connect", "other"):
        objects = Objects(s3_client(), event["bucket"], tracer)
    GpuWorker(plan, rank, objects, choose_device(str(plan.options["device"]))).run()


if __name__ == "__main__":
    main(json.load(sys.stdin))
