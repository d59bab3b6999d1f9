"""Attacks: the vectors that Byzantine workers send instead of their gradients.

Sign flip, Gaussian and label flip come from Barrak et al.'s released code. ALIE and IPM are computed from all honest
workers' gradients: the attacker is omniscient, as in the papers. Importing this module does not import torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

import numpy as np

from slslab_workers.channels.tensors import Vector
from slslab_workers.models import spec_of
from slslab_workers.option import Option, choose
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training.algorithms import trains_locally

if TYPE_CHECKING:
    import torch

ATTACK = Option(
    "attack",
    str,
    "none",
    "What Byzantine workers send, and their ranks, as NAME:RANK[,RANK...]: sign-flip, gaussian, label-flip, scaled, "
    "zero, nan, inf, alie or ipm; sign-flip:4 has rank 4 send -10 times its gradient.",
)
FLIPPED, DEVIATION, SCALE = -10.0, 100.0, 100.0
# Baruch et al. 2019 take z = 1.5 for MNIST, Xie et al. 2020 an ε below 1 against median and Krum.
Z, EPSILON = 1.5, 0.5
LABELS, ALIE, IPM = "label-flip", "alie", "ipm"
# Keeps the noise apart from the randomness of models, samples and augmentation.
SEED = 7


def gaussian(gradient: Vector, seed: Sequence[int]) -> Vector:
    """Return noise of mean 0 and standard deviation 100."""
    noise = np.random.default_rng(list(seed)).standard_normal(gradient.size, np.float32)
    noise *= np.float32(DEVIATION)
    return noise


def alie(honest: "Sequence[torch.Tensor]") -> "torch.Tensor":
    """Return mean + z · standard deviation of the honest gradients (P,), coordinate by coordinate (Baruch et al. 2019,
    "A Little Is Enough", arXiv:1902.06156)."""
    import torch

    stack = torch.stack(list(honest))
    return stack.mean(0).add_(stack.std(0), alpha=Z)


def ipm(honest: "Sequence[torch.Tensor]") -> "torch.Tensor":
    """Return -ε · mean of the honest gradients (P,) (Xie et al. 2020, inner-product manipulation, arXiv:1903.03936)."""
    import torch

    return torch.stack(list(honest)).mean(0).mul_(-EPSILON)


# Attacks that change a worker's own gradient, by name; they take a seed.
OWN: Mapping[str, Callable[[Vector, Sequence[int]], Vector]] = MappingProxyType(
    {
        "sign-flip": lambda gradient, _seed: gradient * gradient.dtype.type(FLIPPED),
        "gaussian": gaussian,
        "scaled": lambda gradient, _seed: gradient * gradient.dtype.type(SCALE),
        "zero": lambda gradient, _seed: np.zeros_like(gradient),
        "nan": lambda gradient, _seed: np.full_like(gradient, np.nan),
        "inf": lambda gradient, _seed: np.full_like(gradient, np.inf),
    }
)
OMNISCIENT: "Mapping[str, Callable[[Sequence[torch.Tensor]], torch.Tensor]]" = MappingProxyType({ALIE: alie, IPM: ipm})
NAMES = (*OWN, LABELS, *OMNISCIENT)


@dataclass(frozen=True)
class Attack:
    """An attack by the workers with these ranks, in ascending order; `classes` is the number of labels."""

    name: str
    ranks: tuple[int, ...]
    seed: int
    classes: int

    @classmethod
    def of(cls, plan: Plan) -> Self | None:
        """Return the plan's attack, or None; raise PlanError if it can't be read or leaves too few honest workers."""
        text = str(ATTACK.of(plan.options))
        if text == ATTACK.default:
            return None
        name, _, listed = text.partition(":")
        choose("attack", name, dict.fromkeys(NAMES))
        words = listed.split(",")
        if not all(word.isascii() and word.isdecimal() and len(word) < 10 for word in words):
            raise PlanError(
                f"{text!r} does not say which ranks attack.", f"with --attack {name}:3,4 ranks 3 and 4 attack."
            )
        ranks = tuple(sorted(set(map(int, words))))
        if ranks[-1] >= plan.workers:
            raise PlanError(
                f"There is no worker {ranks[-1]}, so it cannot attack.",
                f"with --workers {plan.workers} ranks are 0 to {plan.workers - 1}.",
            )
        least = 2 if name == ALIE else 1
        if plan.workers - len(ranks) < least:
            raise PlanError(
                f"With {len(ranks)} of {plan.workers} workers attacking there are fewer than {least} honest ones.",
                "name fewer ranks in --attack.",
            )
        return cls(name, ranks, plan.seed, spec_of(plan).outputs)

    @property
    def omniscient(self) -> bool:
        """Return whether the attack needs the honest workers' gradients."""
        return self.name in OMNISCIENT

    def targets(self, rank: int, targets: "torch.Tensor") -> "torch.Tensor":
        """Return the labels (B,) that this worker uses for a minibatch."""
        return self.classes - 1 - targets if self.name == LABELS and rank in self.ranks else targets

    def replaces(self, rank: int) -> bool:
        """Return whether this worker replaces its gradient, and needs no other worker's gradient to do so."""
        return rank in self.ranks and not self.omniscient and self.name != LABELS

    def vector(self, rank: int, gradient: Vector, position: int) -> Vector:
        """Return the vector that this worker sends at a position instead of its gradient (P,) or average."""
        return OWN[self.name](gradient, (self.seed, SEED, rank, position))

    def gradient(self, rank: int, gradient: "torch.Tensor", position: int) -> "torch.Tensor":
        """Return the vector (P,) that this worker sends at a position: its gradient, or an attacker's replacement."""
        if not self.replaces(rank):
            return gradient
        import torch

        return torch.from_numpy(self.vector(rank, gradient.numpy(), position))

    def of_honest(self, honest: "Sequence[torch.Tensor]") -> "torch.Tensor":
        """Return the vector (P,) that every attacker sends, given the honest workers' gradients in rank order."""
        return OMNISCIENT[self.name](honest)


def check(plan: Plan, why: str = "", hint: str = "") -> None:
    """Raise PlanError if the attack doesn't fit the plan's workers, algorithm or recording.

    `why` is the reason if attackers can't read all honest workers' gradients, and `hint` what to do about it.
    """
    attack = Attack.of(plan)
    if attack is None:
        return
    if trains_locally(plan.options):
        raise PlanError(
            "Attacks are on gradients, and workers of this algorithm exchange models.",
            "choose --algorithm ga and --synchronisation bsp, or leave out --attack.",
        )
    if plan.record == "alone":
        raise PlanError("A worker that is measured alone can't attack.", "leave out --record, or --attack.")
    if why and attack.omniscient:
        raise PlanError(f"The attack {attack.name} needs the honest workers' gradients, and {why}.", hint)
