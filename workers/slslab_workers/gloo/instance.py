"""The program of an instance: `python -m slslab_workers.gloo.instance` (see `training/instance.py` for its input)."""

from contextlib import nullcontext
from typing import Any

import torch

from slslab_workers.channels.objects import Objects
from slslab_workers.gloo import ring
from slslab_workers.gloo.peers import Peers
from slslab_workers.trace.operations import ALL_REDUCE
from slslab_workers.training.instance import InstanceWorker, main
from slslab_workers.training.state import WorkerState


class GlooWorker(InstanceWorker):
    """One peer: adds up all peers' gradients and divides the sum."""

    objects: Objects
    peers: Peers | None

    def run(self) -> dict[str, Any]:
        """Connect to the other peers, if any, and train."""
        with (
            Peers(self.plan, self.rank, self.objects, self.device) if self.plan.workers > 1 else nullcontext() as peers
        ):
            self.peers = peers
            return super().run()

    def to_exchange(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient where it is: NCCL adds up on the GPU."""
        return gradient

    def synchronise(self, state: WorkerState, gradient: torch.Tensor) -> torch.Tensor:
        """Return the aggregate (P,) of all workers' gradients, on the device."""
        workers, (epoch, step) = self.plan.workers, self.place(state)
        if self.peers is not None:
            resource = f"{self.plan.run}/gloo/e{epoch}_s{step}"
            sent = ring.sent_bytes(gradient.numel(), workers, self.rank)
            with self.tracer.span(
                ALL_REDUCE, "synchronise", resource, overhead=False, bytes=sent, requests=ring.messages(workers)
            ):
                self.peers.all_reduce(gradient, f"the all-reduce of epoch {epoch + 1}, step {step + 1}")
        with self.tracer.span("reduce", "synchronise", "mean", bytes=gradient.nbytes):
            return self.combine(gradient, workers, workers)


if __name__ == "__main__":
    main(GlooWorker)
