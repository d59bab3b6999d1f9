"""Small plans with random faults, drawn from a seed: of every architecture and channel, with every kind of fault."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from slslab.errors import RequestError
from slslab_lab.runs.planning import architectures, make_plan
from slslab_workers.channels.choice import OPENERS
from slslab_workers.faults.plan import CUT, DEATHS, KINDS, LOSSES, OBJECTS, PHASES, STORES
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training.options import COMBINE
from slslab_workers.training.samples import Samples

Place = tuple[str, Mapping[str, str]]
# Each architecture with what its workers exchange by, where there is a choice.
PLACES: tuple[Place, ...] = (
    *((name, {"channel": channel}) for name in ("allreduce", "scatterreduce") for channel in OPENERS),
    *(("mlless", {"store": store}) for store in ("tensordb", "s3")),
    *((name, {}) for name in ("spirt", "gradssharding", "kubeml", "gpu", "gloo")),
)
# A parameter server refuses ScatterReduce.
POSSIBLE = tuple(place for place in PLACES if place != ("scatterreduce", {"channel": "parameter-server"}))
MODELS = {"lr": "breast-cancer", "svm": "breast-cancer", "lenet": "digits"}
# Those that this host decides, those that a place has, and those of which other values need other plans.
FIXED = ("channel", "store", "queue", "device", "algorithm", "gradients", "partition")
SUMS = {COMBINE.name: ("mean", "sum")}
# Environments are forks, whose memory is in part that of the process that they are forks of.
ALSO: Mapping[str, Mapping[str, Any]] = {
    "spirt": {"light-memory": 700, "barrier-timeout": 8.0},
    "kubeml": {"job-memory": 700},
}
# Of these architectures alone workers may be invoked once a minibatch.
FUNCTIONS = ("allreduce", "scatterreduce", "mlless")
TIMEOUT_S = 10
DRAWS = 1000


@dataclass(frozen=True)
class Drawn:
    """What a seed gives: the arguments of `run_plan`, the plan that they make, and how many draws were refused."""

    architecture: str
    values: Mapping[str, Any]
    options: Mapping[str, Any]
    faults: Mapping[str, Any]
    plan: Plan
    refused: int

    def row(self, seed: int, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the results say of a run by its seed, its plan, and its document."""
        plan = self.plan
        return {
            "seed": seed,
            "architecture": self.architecture,
            "place": plan.options.get("channel") or plan.options.get("store"),
            "model": self.values["model"],
            "workers": plan.workers,
            "epochs": plan.epochs,
            "batches": plan.batches,
            "mode": plan.mode,
            "invoke": plan.invoke,
            "options": {name: value for name, value in self.options.items() if name not in ("channel", "store")},
            "faults": self.faults["fault"],
            "refused": self.refused,
            "met": [fault["times"] for fault in document["faults"]],
            "status": document["status"],
        }


def draw(
    seed: int,
    directory: Path,
    places: Sequence[Place] = POSSIBLE,
    models: Mapping[str, str] = MODELS,
    timeout_s: int = TIMEOUT_S,
) -> Drawn:
    """Return the plan and faults of a seed; the fault plan is a file in the directory, as a run takes it.

    A plan that the product refuses is drawn again.
    """
    drawn = random.Random(seed)
    for refused in range(DRAWS):
        name, place = drawn.choice(places)
        model = drawn.choice(list(models))
        workers, epochs, batches = drawn.choice((1, 2, 2, 3, 4)), drawn.choice((1, 2)), drawn.choice((1, 2, 3))
        faults = {
            "seed": seed,
            "fault": [_fault(drawn, workers, epochs, batches) for _ in range(drawn.choice((1, 1, 2, 3)))],
        }
        path = directory / f"{seed}.toml"
        path.write_text(tomli_w.dumps(faults))
        values = {
            "model": model,
            "dataset": models[model],
            "workers": workers,
            "epochs": epochs,
            "batches": batches,
            # A KubeML function loads whole documents of 64 samples.
            "batch_size": 64 if name == "kubeml" else 16,
            "timeout": timeout_s,
            "evaluation": False,
            "seed": drawn.randrange(100),
            "faults": path,
        }
        if name in FUNCTIONS:
            values["mode"] = drawn.choice(("long-running", "long-running", "per-batch"))
            values["invoke"] = drawn.choice(("sync", "event"))
        options = {**place, **ALSO.get(name, {}), **_options(drawn, name)}
        architecture = architectures()[name]
        try:
            plan = make_plan(architecture, values, options)
            architecture.requirements(plan)
            Samples(plan)  # the dataset may have too few
        except (PlanError, RequestError):
            continue
        return Drawn(name, values, options, faults, plan, refused)
    raise AssertionError(f"seed {seed}: {DRAWS} plans were refused")


def _options(drawn: random.Random, name: str) -> dict[str, Any]:
    """Draw some of the options that have choices."""
    chosen = [option for option in architectures()[name].options if option.choices and option.name not in FIXED]
    # Rules that withstand Byzantine workers need more of them, so that of many architectures only the mean is left.
    chosen = [option for option in chosen if option.name != COMBINE.name or {*SUMS[COMBINE.name]} <= {*option.choices}]
    return {
        option.name: drawn.choice(SUMS.get(option.name, option.choices)) for option in chosen if drawn.random() < 0.3
    }


def _fault(drawn: random.Random, workers: int, epochs: int, batches: int) -> dict[str, Any]:
    """Draw a fault of any kind; a field that it may have, it has in half of all cases."""
    kind = drawn.choice(list(KINDS))
    operations = {"slow-down": OBJECTS, "unreachable": CUT}.get(kind, STORES)
    ranges: dict[str, Any] = {
        "worker": lambda: drawn.randrange(workers),
        "epoch": lambda: drawn.randrange(epochs),
        "step": lambda: drawn.randrange(batches),
        # What workers do in every step comes first.
        "phase": lambda: drawn.choice(PHASES[:4] if kind in (*DEATHS, *LOSSES) else PHASES),
        "op": lambda: drawn.choice(operations),
        "count": lambda: drawn.choice((1, 1, 2, 3, 6)),
        "probability": lambda: drawn.choice((0.1, 0.3, 0.7)),
        "factor": lambda: drawn.choice((1.5, 2.0, 4.0)),
        "seconds": lambda: drawn.choice((0.01, 0.05, 0.2)),
    }
    needed, optional = KINDS[kind]
    fields = [*needed, *(field for field in optional if drawn.random() < 0.5)]
    return {"kind": kind, **{field: ranges[field]() for field in fields}}
