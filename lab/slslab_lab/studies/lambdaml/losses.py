"""Losses of small models by LambdaML's algorithms, round by round or epoch by epoch, and the file that keeps them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from slslab.toml_files import TomlTable
from slslab_lab.runs.planning import architectures, make_plan
from slslab_lab.studies.kept import Kept, made_now
from slslab_lab.studies.recording import check_done, make_run
from slslab_lab.studies.trainings import train
from slslab_workers.architecture import Progress
from slslab_workers.plan import Plan, Value
from slslab_workers.training.algorithms import ALGORITHM, SYNCHRONISATION, exchange_every
from slslab_workers.training.replicas import Replicas
from slslab_workers.training.samples import Samples

ARCHITECTURE = "allreduce"
# Rows of an epoch. HIGGS-shaped: each of ten workers has the paper's number of minibatches, with a thousandth of its
# 100,000 rows. On breast-cancer, four workers with seven minibatches cover all but six of the 454 training rows.
SHAPES: Mapping[str, Mapping[str, int]] = {
    "breast-cancer": {"workers": 4, "batch_size": 16, "batches": 7},
    "higgs-shaped": {"workers": 10, "batch_size": 100, "batches": 10},
}
RATE, PLAIN = 0.01, {"momentum": 0.0, "weight_decay": 0.0}
# In addition to the defaults, which are the released code's ρ, λ and one local pass; k-means has the paper's ten
# clusters.
OPTIONS: Mapping[str, Mapping[str, Value]] = {"ga": {}, "ma": {}, "admm": {"local-passes": 2}, "em": {}}
# Decimal places in the file.
PLACES = 6

Loss = Annotated[float, Field(allow_inf_nan=False)]


class Series(TomlTable):
    """The losses of one plan by seed; `plan` is the first seed's, without the run's name.

    In one process they are the losses before the first round and after each, on the test rows; with EM, the mean
    squared distance of the clustered rows. Epoch by epoch, they are means over all minibatches."""

    plan: Mapping[str, Any]
    losses: Annotated[Mapping[int, Annotated[tuple[Loss, ...], Field(min_length=1)]], Field(min_length=1)]

    @property
    def model(self) -> str:
        """Return the model's name, without its size."""
        return str(self.plan["model"]).partition("-")[0]

    @property
    def dataset(self) -> str:
        """Return the data set's name."""
        return str(self.plan["dataset"])

    @property
    def algorithm(self) -> str:
        """Return its algorithm."""
        return str(self.plan["options"][ALGORITHM.name])

    @property
    def synchronisation(self) -> str:
        """Return bsp or s-asp."""
        return str(self.plan["options"][SYNCHRONISATION.name])

    @property
    def passes_a_round(self) -> float:
        """Return passes over the data between two exchanges."""
        return exchange_every(self.plan["options"], self.plan["batches"]) / float(self.plan["batches"])


class Losses(Kept):
    """All series of a figure."""

    series: Annotated[tuple[Series, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Training:
    """One training: a model on a data set by an algorithm, for a number of epochs, from a seed; `workers` and `lr`
    replace the data set's usual number and the released code's rate."""

    model: str
    dataset: str
    algorithm: str
    epochs: int
    seed: int
    synchronisation: str = "bsp"
    workers: int | None = None
    lr: float = RATE

    @property
    def values(self) -> dict[str, Any]:
        """Return the values for `slslab run`."""
        own = {name: getattr(self, name) for name in ("model", "dataset", "epochs", "seed", "workers", "lr")}
        chosen = {name: value for name, value in own.items() if value is not None}
        return {**SHAPES[self.dataset], **PLAIN, **chosen, "evaluation": False}

    @property
    def options(self) -> dict[str, Value]:
        """Return the architecture's options that differ from its defaults."""
        return {ALGORITHM.name: self.algorithm, SYNCHRONISATION.name: self.synchronisation, **OPTIONS[self.algorithm]}

    def plan(self) -> Plan:
        """Return the complete plan."""
        return make_plan(architectures()[ARCHITECTURE], self.values, self.options)


def by_round(training: Training) -> tuple[float, ...]:
    """Return the loss before the first round and after each, with all workers in one process."""
    replicas = _replicas(training)
    plan = replicas.plan
    if replicas.local is not None and replicas.local.starts_from_data:
        # An epoch of EM reads all rows before the centroids move.
        return _by_epoch(replicas)
    losses = [replicas.judge().loss]
    every = exchange_every(plan.options, plan.batches)
    for _ in range(plan.epochs * plan.batches // every):
        for _ in range(every):
            replicas.advance()
        losses.append(replicas.judge().loss)
    return tuple(losses)


def by_epoch(training: Training) -> tuple[float, ...]:
    """Return the mean loss of each epoch's minibatches, with all workers in one process."""
    return _by_epoch(_replicas(training))


def _replicas(training: Training) -> Replicas:
    plan = training.plan()
    Replicas.check(plan)
    return Replicas(plan, Samples(plan))


def _by_epoch(replicas: Replicas) -> tuple[float, ...]:
    losses: list[float] = []
    while replicas.ended is None and len(losses) < replicas.plan.epochs:
        losses.append(replicas.train_epoch().loss)
    return tuple(losses)


def run(training: Training, progress: Progress) -> tuple[float, ...]:
    """Make a run, and return the mean loss of each epoch's minibatches; RunError if it fails."""
    document = make_run(None, ARCHITECTURE, training.values, training.options, progress)
    check_done(document, document["run"])
    return tuple(document["loss"])


def collect(
    trainings: Sequence[Training],
    learn: Callable[[Training], tuple[float, ...]],
    report: Callable[[str, int, int], None],
) -> Losses:
    """Return the losses of all trainings, with trainings that only differ in their seed in one series; `report`
    receives the progress."""
    series = []
    for training, learnt in train(learn, trainings, None, report).items():
        plan = training.plan().to_document()
        del plan["run"]
        losses = {seed: tuple(round(loss, PLACES) for loss in of_seed) for seed, of_seed in learnt.items()}
        series.append(Series(plan=plan, losses=losses))
    return Losses(**made_now(), series=tuple(series))
