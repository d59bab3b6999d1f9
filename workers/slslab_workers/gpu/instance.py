"""What an instance runs: `python -m slslab_workers.gpu.instance`, with its event as JSON on standard input.

The event names the plan, the bucket and the worker's rank; the environment, where S3 is (AWS's own variables).
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

import torch

from slslab_workers import gradients
from slslab_workers.events import Tracer
from slslab_workers.gpu.driver import GO_ON
from slslab_workers.keys import verdict_key
from slslab_workers.objects import Objects, s3_client
from slslab_workers.plan import Plan
from slslab_workers.polling import poll_policy
from slslab_workers.training import Step, Trainer, WorkerState


class GpuWorker(Trainer):
    """One worker: puts its gradient, gets all others, and averages by itself."""

    def __init__(self, plan: Plan, rank: int, objects: Objects, device: str = "cpu") -> None:
        super().__init__(plan, rank, objects, device)
        self._poll = poll_policy(plan).gets

    def run(self) -> dict[str, Any]:
        """Train to the plan's end, or until the driver says stop; returns the worker's result."""
        plan = self.plan
        state, last = self._fresh(), plan.epochs * plan.batches
        going = True
        while going:
            self.train_step(state)
            going = state.position < last
            if going and plan.gradual and state.position % plan.batches == 0:
                going = self._goes_on(state.position // plan.batches - 1)
        return self.publish(state)

    def synchronise(self, state: WorkerState, step: Step) -> bool:
        """Exchange gradients, and update with their mean; nobody ever leaves."""
        number = step.epoch * self.plan.batches + step.step
        body = gradients.as_bytes(step.gradient)
        self.objects.put(
            self._key(number, self.rank), body, "synchronise", overhead=False, metadata={"dtype": "float32"}
        )
        if self.rank == 0 and number >= 2:
            # Rank 0 has everybody's gradient of the step before, and nobody puts that before having read this one's.
            for rank in range(self.plan.workers):
                self.objects.delete(self._key(number - 2, rank), "synchronise", overhead=False)
        self.update(state, self._mean(step.gradient, number))
        return False

    def _mean(self, own: torch.Tensor, number: int) -> torch.Tensor:
        """The mean (P,) over all workers, added in rank order as the gradients come; this worker's own is at hand."""
        total: torch.Tensor | None = None
        for rank in range(self.plan.workers):
            part = own if rank == self.rank else self._get(number, rank)
            with self.tracer.span("reduce", "synchronise"):
                if total is None:
                    total = part.clone() if part is own else part
                else:
                    total.add_(part)
        assert total is not None
        with self.tracer.span("reduce", "synchronise"):
            return total.div_(self.plan.workers)

    def _get(self, number: int, rank: int) -> torch.Tensor:
        stored = self.objects.wait_for(self._key(number, rank), self._poll, "synchronise", overhead=False)
        return gradients.from_bytes(stored.body)

    def _goes_on(self, epoch: int) -> bool:
        """Wait, on billed time, for what the driver says after this epoch."""
        return self.objects.wait_for(verdict_key(self.plan, epoch), self._poll, "other").body == GO_ON

    def _key(self, number: int, rank: int) -> str:
        epoch, step = divmod(number, self.plan.batches)
        return f"{self.plan.run}/gpu/gradients/e{epoch}_s{step}/{rank}"


def choose_device(wanted: str) -> str:
    """`cuda` or `cpu` for `auto`, `cuda` or `cpu`; RuntimeError if CUDA is wanted and torch sees none."""
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
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
    GpuWorker(plan, rank, objects, choose_device(str(plan.options.get("device", "auto")))).run()


if __name__ == "__main__":
    main(json.load(sys.stdin))
