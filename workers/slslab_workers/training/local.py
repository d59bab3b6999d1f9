"""The arithmetic of LambdaML's algorithms: how a worker trains between two exchanges, and how it uses the aggregate.

docs/protocols.md, "Algorithms", describes them.
"""

from types import MappingProxyType

import torch

from slslab_workers.models import spec_of
from slslab_workers.plan import Plan
from slslab_workers.training import algorithms, gradients, models
from slslab_workers.training.state import WorkerState
from slslab_workers.training.step import compute_gradient


class ModelAveraging:
    """MA-SGD: train locally, then continue from the mean of all workers' parameters. Each worker keeps its buffers."""

    # Whether rank 0's first minibatch gives the first model.
    starts_from_data = False
    # Why training ends, if the algorithm ends it.
    ended: str | None = None

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._every = algorithms.exchange_every(plan.options, plan.batches)

    def first(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the first parameters (P,) of all workers, from rank 0's first minibatch (B, D)."""
        raise NotImplementedError

    def compute(
        self, model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor
    ) -> tuple[float, torch.Tensor]:
        """Return the mean loss of a minibatch, and its gradient (P,)."""
        return compute_gradient(model, inputs, targets)

    def exchanges_after(self, position: int) -> bool:
        """Return whether the workers exchange after the step at this position."""
        return (position + 1) % self._every == 0

    def correct(self, state: WorkerState, gradient: torch.Tensor) -> torch.Tensor | None:  # noqa: ARG002
        """Return the gradient (P,) of the local objective, given the gradient of the loss, which it may overwrite.

        Return None if the model doesn't change between two exchanges.
        """
        return gradient

    def message(self, state: WorkerState) -> torch.Tensor:
        """Return the vector to exchange, with `message_length` numbers."""
        return gradients.flatten(state.model.parameters()).cpu()

    def receive(self, state: WorkerState, aggregate: torch.Tensor) -> None:
        """Continue from the mean of all workers' messages."""
        gradients.write_parameters(state.model, aggregate)


class ADMM(ModelAveraging):
    """Consensus ADMM of a linear model.

    Each worker has weights w, intercepts c and scaled dual variables u; z is the consensus, with an L1 norm. z and u
    start at zero. A message is u, w and c, one after the other. Only the weights are pulled towards the consensus.
    """

    def correct(self, state: WorkerState, gradient: torch.Tensor) -> torch.Tensor:
        """Add the gradient of the penalty."""
        z, u = self._consensus(state)
        distance = gradients.flatten(state.model.parameters())[: len(z)].add_(u).sub_(z)
        rho = float(algorithms.RHO.of(self.plan.options))
        if algorithms.ADMM_PENALTY.of(self.plan.options) == "norm":
            # At the consensus itself the norm has no gradient.
            distance.div_(2 * max(float(distance.norm()), 1e-30))
        gradient[: len(z)].add_(distance, alpha=rho)
        return gradient

    def message(self, state: WorkerState) -> torch.Tensor:
        """Return u, w and c."""
        return torch.cat([self._consensus(state)[1], super().message(state)])

    def receive(self, state: WorkerState, aggregate: torch.Tensor) -> None:
        """Set w and c to their means, compute z from the means of w and u, and add the mean w minus z to u."""
        z, u = self._consensus(state)
        mean_u, mean_w = aggregate[: len(z)], aggregate[len(z) : 2 * len(z)]
        super().receive(state, aggregate[len(z) :])
        rho, weight = (float(option.of(self.plan.options)) for option in (algorithms.RHO, algorithms.LAMBDA))
        threshold = weight / (self.plan.workers * rho) if weight else 0.0
        z[:] = torch.nn.functional.softshrink(mean_w + mean_u, threshold)
        u.add_(mean_w).sub_(z)

    def _consensus(self, state: WorkerState) -> tuple[torch.Tensor, torch.Tensor]:
        weights = spec_of(self.plan).features * algorithms.LINEAR_CLASSES
        for name in ("z", "u"):
            state.memory.setdefault(name, torch.zeros(weights))
        return state.memory["z"], state.memory["u"]


class EM(ModelAveraging):
    """k-means by expectation and maximisation: assign all rows to the nearest centroid, then move the centroids.

    A minibatch gives the sum of each cluster's rows (clusters·D) and their number (clusters). With weighted centroids,
    a message is the sums and numbers over all rows of a worker. With equal ones, it is the worker's new centroids,
    zeros for an empty cluster, and how far they moved on average.
    """

    starts_from_data = True

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        known = spec_of(plan)
        self._shape = known.clusters, known.features
        self._weighted = algorithms.CENTROIDS.of(plan.options) == "weighted"

    def first(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the first rows as centroids."""
        return inputs.to_dense()[: self._shape[0]].flatten()

    def compute(
        self, model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor
    ) -> tuple[float, torch.Tensor]:
        """Return the mean squared distance to the nearest centroid, and the sum and number of each cluster's rows."""
        with torch.no_grad():
            scores = model(inputs)
            loss = models.loss(model, scores, targets)
            nearest = scores.argmax(1)
            sums = torch.zeros(self._shape).index_add_(0, nearest, inputs.to_dense())
            return float(loss), torch.cat([sums.flatten(), torch.bincount(nearest, minlength=len(sums)).float()])

    def correct(self, state: WorkerState, gradient: torch.Tensor) -> None:
        """Add up the sums and numbers of the epoch's minibatches."""
        if "found" in state.memory:
            state.memory["found"].add_(gradient)
        else:
            state.memory["found"] = gradient

    def message(self, state: WorkerState) -> torch.Tensor:
        """Return sums and numbers, or centroids and how far they moved."""
        found = state.memory.pop("found")
        if self._weighted:
            return found
        sums, numbers = self._split(found)
        means = sums / numbers.clamp(min=1)[:, None]
        return torch.cat([means.flatten(), self._moved(state, means)[None]])

    def receive(self, state: WorkerState, aggregate: torch.Tensor) -> None:
        """Move the centroids. With weighted centroids, an empty cluster's centroid doesn't move."""
        if self._weighted:
            sums, numbers = self._split(aggregate)
            means = torch.where(numbers[:, None] > 0, sums / numbers[:, None], self._centroids(state))
            moved = self._moved(state, means)
        else:
            means, moved = aggregate[:-1].view(self._shape), aggregate[-1]
        super().receive(state, means.flatten())
        state.updates += 1
        if float(moved) < float(algorithms.THRESHOLD.of(self.plan.options)):
            self.ended = "converged"

    def _split(self, found: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        clusters, width = self._shape
        return found[: clusters * width].view(self._shape), found[clusters * width :]

    def _centroids(self, state: WorkerState) -> torch.Tensor:
        return next(state.model.parameters()).detach()

    def _moved(self, state: WorkerState, centroids: torch.Tensor) -> torch.Tensor:
        distances: torch.Tensor = (centroids - self._centroids(state)).norm(dim=1)
        return distances.mean()


LOCAL = MappingProxyType({"ga": ModelAveraging, "ma": ModelAveraging, "admm": ADMM, "em": EM})


def local_training(plan: Plan) -> ModelAveraging | None:
    """Return the algorithm by which workers train between two exchanges; None if they exchange every gradient."""
    return LOCAL[str(algorithms.ALGORITHM.of(plan.options))](plan) if algorithms.trains_locally(plan.options) else None
