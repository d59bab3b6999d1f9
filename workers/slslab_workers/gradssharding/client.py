"""A client. Its Lambda handler updates with the mean of the step before, and stores its next minibatch's gradient.

In between it ends, so that clients aren't billed while aggregators run.
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
    """A worker. Its invocation ends one step and begins another.

    Its assignment's `first` is the step to begin, and `until` the next one; both are equal at the end of an epoch, when
    no step begins. If the state is a step behind `first`, the mean of its gradient is now available.
    """

    def run(self) -> dict[str, Any]:
        """Do both parts. At the end of an epoch, return the worker's result."""
        assignment = self.assignment
        state = self._resume() if assignment.first else self._fresh()
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
        """Put this client's gradient, in slices or as a whole."""
        for shard, part in enumerate(slices(len(gradient), shards_of(self.plan))):
            key = gradient_key(self.plan, state.position, self.rank, shard)
            self.objects.put(key, gradients.as_bytes(gradient[part]), PHASE, overhead=False)

    def get_mean(self, state: WorkerState) -> torch.Tensor:
        """Get the mean (P,) of all clients' gradients, slice by slice."""
        keys = mean_keys(self.plan, state.position)
        return torch.cat([gradients.from_bytes(self.objects.get(key, PHASE, overhead=False).body) for key in keys])


# AWS Lambda's entry point.
handler = partial(handle, worker=Client)
