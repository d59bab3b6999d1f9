"""The program of an instance: `python -m slslab_workers.gpu.instance` (see `training/instance.py` for its input)."""

from collections.abc import Iterator

import torch

from slslab_workers.channels.polling import poll_policy
from slslab_workers.training import gradients
from slslab_workers.training.instance import InstanceWorker, main
from slslab_workers.training.state import WorkerState


class GpuWorker(InstanceWorker):
    """One worker: puts its gradient, gets all others, and combines them itself."""

    def synchronise(self, state: WorkerState, gradient: torch.Tensor) -> torch.Tensor:
        position = state.position
        read: dict[int, torch.Tensor] = {}
        if self.attack.omniscient and self.rank in self.attack.ranks:
            # An attacker reads the honest gradients, which it needs later anyway, before it puts its own.
            honest = [rank for rank in range(self.plan.workers) if rank not in self.attack.ranks]
            read = {rank: self._get(position, rank) for rank in honest}
            gradient = self.attack.of_honest(list(read.values()))
        self.objects.put(self._key(position, self.rank), gradients.as_bytes(gradient), "synchronise", overhead=False)
        if self.rank == 0 and position >= 2:
            # Rank 0 has read all gradients of the step before. Workers put those after reading these.
            for rank in range(self.plan.workers):
                self.objects.delete(self._key(position - 2, rank), "synchronise", overhead=False)
        read[self.rank] = gradient
        parts = (read[rank] if rank in read else self._get(position, rank) for rank in range(self.plan.workers))
        return self._merge(gradient, parts) if self.robust is None else self.withstand(state, list(parts))

    def _merge(self, own: torch.Tensor, parts: Iterator[torch.Tensor]) -> torch.Tensor:
        """Add gradients (P,) in rank order as they arrive, without changing `own`, and combine them."""
        total: torch.Tensor | None = None
        for part in parts:
            with self.tracer.span("reduce", "synchronise", "copy" if total is None else "add") as span:
                if total is None:
                    total = part.clone() if part is own else part
                else:
                    total.add_(part)
                span.bytes = 0 if total is part else part.nbytes
        assert total is not None
        with self.tracer.span("reduce", "synchronise", "mean", bytes=total.nbytes):
            return self.combine(total, self.plan.workers, self.plan.workers)

    def _get(self, position: int, rank: int) -> torch.Tensor:
        key, polls = self._key(position, rank), poll_policy(self.plan).gets
        return gradients.from_bytes(self.objects.wait_for(key, polls, "synchronise", overhead=False).body)

    def _key(self, position: int, rank: int) -> str:
        epoch, step = divmod(position, self.plan.batches)
        return f"{self.plan.run}/gpu/gradients/e{epoch}_s{step}/{rank}"


if __name__ == "__main__":
    main(GpuWorker)
