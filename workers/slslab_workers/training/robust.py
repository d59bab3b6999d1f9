"""Aggregation rules that withstand Byzantine workers: find a plan's rule, check what it needs, and apply it.

The rules are the tensor databases' (`channels/scripts.py` defines them and names their papers), applied here to vectors
in a worker's memory. Zeno is only here, because it needs the model. Importing this module does not import torch.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from slslab_workers.channels import scripts
from slslab_workers.option import Option
from slslab_workers.plan import Plan, PlanError, Value, thread_count
from slslab_workers.training import attacks
from slslab_workers.training.options import COMBINE

if TYPE_CHECKING:
    import torch

BYZANTINE = Option(
    "byzantine",
    int,
    0,
    "How many workers may be Byzantine, f, for trimmed-mean, krum, multi-krum, meamed, zeno.",
)
# Memory for torch in a function that wouldn't need torch otherwise, MB, and how many copies of all vectors it holds at
# most. meamed holds the most: vectors, distances, sorted distances, their order (8 bytes per number), kept numbers.
BASE_MB, HELD = 512, 6
# Centred clipping's radius τ, chosen for LeNet's gradients from 0.05 to 1; Pillutla's ν; and each rule's passes.
RADIUS, CLIPPINGS = 0.3, 3
SMOOTHING, WEISZFELD = 1e-6, 3
# Zeno's penalty ρ divided by its step γ, the learning rate: Xie et al. 2019 use 0.0005 at a rate of 0.1.
PENALTY = 0.005


@dataclass(frozen=True)
class _Known:
    """A rule: its function's arguments by n and f, the least number of workers for f Byzantine ones, if it needs f.

    A separable rule treats each coordinate by itself, so parts of vectors give the same parts of the aggregate.
    """

    arguments: Callable[[int, int], tuple[float, ...]]
    least: Callable[[int], int] = lambda byzantine: 2 * byzantine + 1
    formula: str = "2f + 1"
    informed: bool = True
    separable: bool = False


KNOWN: Mapping[str, _Known] = MappingProxyType(
    {
        "median": _Known(lambda _n, _f: (), informed=False, separable=True),
        "trimmed-mean": _Known(lambda _n, f: (f,), separable=True),
        "krum": _Known(lambda _n, f: (f,), lambda f: 2 * f + 3, "2f + 3"),
        "multi-krum": _Known(lambda n, f: (f, n - f), lambda f: 2 * f + 3, "2f + 3"),
        "meamed": _Known(lambda _n, f: (f,), separable=True),
        "geometric-median": _Known(lambda _n, _f: (SMOOTHING, WEISZFELD), informed=False),
        "centred-clipping": _Known(lambda _n, _f: (RADIUS, CLIPPINGS), informed=False),
        "zeno": _Known(lambda _n, f: (f,), lambda f: f + 1, "f + 1"),
    }
)
RULES = tuple(KNOWN)
ZENO = "zeno"


def name_of(options: Mapping[str, Value]) -> str | None:
    """Return the name of the plan's robust rule; None for mean or sum."""
    name = str(COMBINE.of(options))
    return name if name in KNOWN else None


def option(help: str) -> Option:
    """Return --combine without sum and Zeno, for an architecture that supports neither."""
    return replace(COMBINE, help=help, choices=tuple(name for name in COMBINE.choices if name not in ("sum", ZENO)))


def memory_mb(workers: int, parameters: int) -> int:
    """Return the memory size, MB, of a function that applies a rule to the vectors (P,) of all workers."""
    return BASE_MB + math.ceil(HELD * workers * 4 * parameters / (1 << 20))


def load(options: Mapping[str, Value]) -> None:
    """If the plan has a robust rule, import torch and set its threads by this Lambda function's memory size."""
    if name_of(options) is not None:
        import torch

        torch.set_num_threads(thread_count(int(os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"])))


def script(name: str, workers: int, byzantine: int) -> tuple[str, tuple[float, ...]]:
    """Return the name and arguments of a rule's function in `channels/scripts.py`."""
    return name.replace("-", "_"), KNOWN[name].arguments(workers, byzantine)


def check(plan: Plan, why: str = "", hint: str = "") -> None:
    """Raise PlanError if the attack (see `attacks.check`) or the robust rule doesn't fit the plan."""
    attacks.check(plan, why, hint)
    name, byzantine = name_of(plan.options), int(BYZANTINE.of(plan.options))
    if name is None or not KNOWN[name].informed:
        if byzantine:
            raise PlanError(
                f"--byzantine does not apply to --combine {COMBINE.of(plan.options)}.",
                f"it is an option of {', '.join(each for each, known in KNOWN.items() if known.informed)}.",
            )
        if name is None:
            return
    elif byzantine < 1:
        raise PlanError(
            f"--combine {name} must be told how many workers may be Byzantine.", "add --byzantine 1, or more."
        )
    known = KNOWN[name]
    if plan.workers < known.least(byzantine):
        raise PlanError(
            f"--combine {name} needs n ≥ {known.formula} workers: {known.least(byzantine)} for --byzantine "
            f"{byzantine}, and --workers is {plan.workers}.",
            "choose more workers, or another rule.",
        )
    if plan.record == "alone":
        raise PlanError(
            f"--combine {name} compares workers, and --record alone measures a single one.", "leave out --record."
        )


def check_count(name: str, workers: int, byzantine: int) -> None:
    """Raise ValueError if too few workers are left for the rule to withstand the Byzantine ones."""
    least = KNOWN[name].least(byzantine)
    if workers < least:
        raise ValueError(f"{name} needs {least} workers to withstand {byzantine}, and {workers} are left.")


def refuse(plan: Plan, why: str, hint: str) -> None:
    """Raise PlanError, with the reason `why`, if the plan has a robust rule."""
    if (name := name_of(plan.options)) is not None:
        raise PlanError(f"--combine {name} needs every worker's gradient, and {why}.", hint)


def refuse_inseparable(plan: Plan, why: str) -> None:
    """Raise PlanError, with the reason `why`, if the plan's robust rule compares whole vectors."""
    if (name := name_of(plan.options)) is not None and not KNOWN[name].separable:
        refuse(
            plan,
            why,
            f"choose {', '.join(each for each, known in KNOWN.items() if known.separable)}, or another architecture.",
        )


def aggregate(
    name: str, vectors: "Sequence[torch.Tensor]", byzantine: int, scores: Sequence[float] = ()
) -> "torch.Tensor":
    """Return the aggregate (P,) of n vectors (P,) in rank order; Zeno needs `scores`, one per vector.

    Zeno's is the mean of the n - f vectors with the highest scores; NaN is the lowest (Xie et al. 2019,
    arXiv:1805.10032).
    """
    function, arguments = script(name, len(vectors), byzantine)
    if name == ZENO:
        worst = [-math.inf if math.isnan(score) else score for score in scores]
        best = sorted(range(len(vectors)), key=lambda rank: -worst[rank])[: len(vectors) - byzantine]
        function, vectors = "average", [vectors[rank] for rank in sorted(best)]
    made: torch.Tensor = scripts.eager_functions()[function](list(vectors), [], list(map(str, arguments)))
    return made


def applied(
    plan: Plan,
    vectors: "Sequence[torch.Tensor]",
    model: "torch.nn.Module",
    trusted: "tuple[torch.Tensor, torch.Tensor] | None",
) -> "torch.Tensor":
    """Apply the plan's robust rule to all workers' vectors (P,), in rank order, and return the aggregate (P,).

    Zeno scores the vectors by the loss that `model` has on the `trusted` inputs and targets.
    """
    name = str(COMBINE.of(plan.options))
    scores: list[float] = []
    if name == ZENO:
        assert trusted is not None
        scores = zeno_scores(model, vectors, *trusted, plan.lr)
    return aggregate(name, vectors, int(BYZANTINE.of(plan.options)), scores)


def zeno_scores(
    model: "torch.nn.Module",
    vectors: "Sequence[torch.Tensor]",
    inputs: "torch.Tensor",
    targets: "torch.Tensor",
    rate: float,
) -> list[float]:
    """Return Zeno's score of each vector v (P,): L(x) - L(x - γv) - ρ‖v‖². L is the loss of a trusted minibatch.

    γ is the learning rate and ρ a share of it. The model and its buffers don't change.
    """
    import torch

    from slslab_workers.training import gradients, models

    names = [name for name, _ in model.named_parameters()]

    def loss(change: torch.Tensor | None) -> float:
        parts = () if change is None else gradients.parts(model.parameters(), change.to(inputs.device))
        moved = {name: own.detach() - rate * part for name, (own, part) in zip(names, parts, strict=False)}
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        with torch.no_grad():
            scores = torch.func.functional_call(model, {**moved, **buffers}, (inputs,))
            return float(models.loss(model, scores, targets))

    before = loss(None)
    return [before - loss(vector) - PENALTY * rate * float(vector.to(torch.float64).pow(2).sum()) for vector in vectors]
