"""SPIRT's peers in one process."""

from collections.abc import Iterator

import numpy as np
import torch

from slslab_workers.channels import scripts
from slslab_workers.spirt.model_buffers import has_buffers, read_buffers, write_buffers
from slslab_workers.spirt.roster import Roster
from slslab_workers.spirt.rounds import has_momentum, step_outside, update_script
from slslab_workers.training import aggregation, gradients, robust
from slslab_workers.training.replicas import Replicas

BUFFERS, VELOCITY = "buffers", "velocity"


class SpirtReplicas(Replicas):
    """Train like SPIRT's peers. A peer computes all minibatches of an epoch with the same parameters and averages their
    gradients; the peers' averages are averaged, and each peer updates once. Every minibatch begins with the buffers of
    the epoch before, and the buffers after a peer's minibatches are averaged, too."""

    def begin(self) -> None:
        """Give each peer its buffers, and the model a velocity."""
        self._roster = Roster.of(self.plan.workers, self.plan.options)
        model = self.states[0].model
        if has_buffers(model):
            for state in self.states:
                state.memory[BUFFERS] = read_buffers(model).cpu()
        if has_momentum(self.plan):
            self.states[0].memory[VELOCITY] = torch.zeros_like(self.parameters())

    def advance(self) -> None:
        """Train one epoch with the peers that take part in it."""
        epoch = self.position // self.plan.batches
        active = self._roster.active(epoch)
        self._hand_over(epoch)
        averages = (self.attack.gradient(rank, self._average(rank, epoch), self.position) for rank in active)
        if self.robust is None:
            self._step(aggregation.sum_in_rank_order(averages).div_(len(active)))
        else:
            self._step(robust.applied(self.plan, list(averages), self.states[0].model, None))
        for state in self.states:
            state.position += self.plan.batches
            state.updates += 1

    def judging_rank(self) -> int:
        """Return the lowest rank that took part in the last epoch."""
        return self._roster.active(self.position // self.plan.batches - 1)[0]

    def turn_to(self, rank: int) -> torch.nn.Module:
        """Give the peers' model this peer's buffers from the beginning of the epoch."""
        state = self.states[rank]
        if BUFFERS in state.memory:
            write_buffers(state.model, state.memory[BUFFERS])
        return state.model

    def _average(self, rank: int, epoch: int) -> torch.Tensor:
        """Return the mean (P,) of a peer's gradients, and give the peer the mean of the buffers."""
        buffers: list[torch.Tensor] = []
        state = self.states[rank]

        def computed() -> Iterator[torch.Tensor]:
            for batch in range(self.plan.batches):
                yield self.gradient(rank, epoch, batch)
                if BUFFERS in state.memory:
                    buffers.append(read_buffers(state.model).cpu())

        if self.plan.options["gradients"] == "json":
            texts = scripts.average_texts(gradient.numpy() for gradient in computed())
            mean = torch.from_numpy(np.array([float(text) for text in texts], np.float32))
        else:
            mean = aggregation.sum_in_rank_order(computed()).div_(self.plan.batches)
        if buffers:
            state.memory[BUFFERS] = scripts.eager_functions()["average"](buffers, [], [])
        return mean

    def _step(self, aggregate: torch.Tensor) -> None:
        memory = self.states[0].memory
        vectors = [self.parameters(), aggregate, *([memory[VELOCITY]] if VELOCITY in memory else [])]
        if self.plan.options["update"] == "naive":
            step_outside(self.plan, *(vector.numpy() for vector in vectors))
        else:
            function, rates = update_script(self.plan)
            made = scripts.eager_functions()[function](vectors, [], list(map(repr, rates)))
            vectors = made if VELOCITY in memory else [made]
        gradients.write_parameters(self.states[0].model, vectors[0])
        if VELOCITY in memory:
            memory[VELOCITY] = vectors[1]

    def _hand_over(self, epoch: int) -> None:
        for rank, first in self._roster.joins.items():
            if first == epoch and BUFFERS in self.states[rank].memory:
                before = self.states[self._roster.active(epoch - 1)[0]]
                self.states[rank].memory[BUFFERS] = before.memory[BUFFERS].clone()
