"""Measure a training step on this host, on one and on several threads."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slslab.host.procfs import Sample, take_sample
from slslab.lambda_.clock import host_delay_ns

MODEL, BATCH = "mobilenet", 32
THREADS = (1, 2)
STEPS = 8
# A delay by the host counts above this share of a step.
BUSY = 0.05
# Called with a stage's name, the number of steps done, and their total.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class StepTime:
    """The quickest of a training step's repetitions by its number of threads: wall, CPU and held-up seconds.

    While it was held up, its threads were ready to run but the host gave them no processor.
    """

    quickest: Mapping[int, tuple[float, float, float]]

    @property
    def busy(self) -> bool:
        """Whether the host was so busy that even the quickest steps were delayed."""
        return any(held_s > BUSY * wall_s for wall_s, _, held_s in self.quickest.values())

    @property
    def parallel(self) -> float | None:
        """The share of the step that threads do in parallel; None if only one thread was measured or the host was busy.

        A step of C CPU seconds takes C × ((1 − f) + f ÷ T) on T threads. This is f, from the largest T measured.
        """
        threads = max(self.quickest)
        if threads == 1 or self.busy:
            return None
        wall_s, cpu_s, _ = self.quickest[threads]
        serial = wall_s / cpu_s
        return min(1.0, max(0.0, (1 - serial) * threads / (threads - 1)))


def measure_step(progress: Progress, steps: int = STEPS) -> StepTime:
    """Measure a MobileNet step with a small minibatch on one thread, and on two if this host has them.

    The fastest repetition counts, since other work on the host only makes steps slower. Thread counts alternate.
    """
    import torch

    from slslab_workers.training import models
    from slslab_workers.training.step import compute_gradient

    model = models.build(MODEL, 0)
    model.train()
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand((BATCH, 3, 32, 32), generator=generator)
    targets = torch.randint(0, 10, (BATCH,), generator=generator)
    threads = [count for count in THREADS if count <= len(os.sched_getaffinity(0))]
    times: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    threads_before = torch.get_num_threads()
    try:
        for number in range(steps):
            for count in threads:
                torch.set_num_threads(count)
                before, cpu, wall = _sample(), time.process_time(), time.monotonic()
                compute_gradient(model, inputs, targets)
                took = time.monotonic() - wall, time.process_time() - cpu
                times[count].append((*took, host_delay_ns(before, _sample()) / 1e9))
            progress("measuring training steps", number + 1, steps)
    finally:
        torch.set_num_threads(threads_before)
    return StepTime({count: min(of_count) for count, of_count in times.items()})


def _sample() -> Sample:
    return take_sample(time.monotonic_ns(), [os.getpid()], None)
