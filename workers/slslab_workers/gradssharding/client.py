"""A client: its Lambda handler updates with the mean of the step before, and stores the gradient of its next minibatch.

In between it has ended, so that no client is billed for the time that aggregators take.
"""

from functools import partial
from typing import Any

import torch

from slslab_workers.gradssharding.settings import gradient_key, mean_keys, shards_of
from slslab_workers.gradssharding.topology import slices
from slslab_workers.training import gradients
from slslab_workers.training.state import WorkerState
from slslab_workers.training.worker import Worker, handle

PHASE = "synchronise"


class Client(Worker):
    """A worker whose invocation ends one step and begins another.

    Its assignment's `first` is the step to begin, and `until` the one after that; both are equal at the end of an
    epoch, when no step begins. A state that is a step behind `first` has a gradient whose mean is there now.
    """

    def run(self) -> dict[str, Any]:
        """Do both parts; return the worker's result at the end of an epoch."""
        assignment = self.assignment
        state = self._resume() if assignment.resume else self._fresh()
        if state.position < assignment.first:
            self.enter_step(state)
            self.end_step(state, self.get_mean(state))
        if state.position < assignment.until:
            self.put_gradient(state, self.begin_step(state))
        self.tracer.epoch = self.tracer.step = -1
        if assignment.keep:
            self._save(state)
        return self._result(state) if assignment.first == assignment.until else {}

    def put_gradient(self, state: WorkerState, gradient: torch.Tensor) -> None:
        """Put the slices of this client's gradient, or all of it as one."""
        for shard, part in enumerate(slices(len(gradient), shards_of(self.plan))):
            key = gradient_key(self.plan, state.position, self.rank, shard)
            self.objects.put(key, gradients.as_bytes(gradient[part]), PHASE, overhead=False)

    def get_mean(self, state: WorkerState) -> torch.Tensor:
        """Get the mean (P,) of all clients' gradients, slice by slice."""
        keys = mean_keys(self.plan, state.position)
        parts = [gradients.from_bytes(self.objects.get(key, PHASE, overhead=False).body) for key in keys]
        return torch.cat(parts)


# AWS Lambda's entry point.
handler = partial(handle, worker=Client)
