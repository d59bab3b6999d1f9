"""Read the accuracy curves of `slslab accuracy` from their directories, and find the architectures they stand for.

Some architectures compute the same parameters, bit by bit, so one curve stands for all with the same rule."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf

from slslab.errors import RequestError, RunError, counted
from slslab.report.formats import percent
from slslab_lab.runs.accuracy.directory import DOCUMENT, SCHEMA
from slslab_lab.runs.planning import architectures
from slslab_lab.studies.experiments import BATCH_SIZE, BATCHES, WORKERS, Experiment
from slslab_lab.studies.kept import read_entries
from slslab_workers.architecture import read_plan
from slslab_workers.plan import Plan, Value
from slslab_workers.training import algorithms
from slslab_workers.training.algorithms import ALGORITHM
from slslab_workers.training.attacks import ATTACK
from slslab_workers.training.buffers import BUFFERS
from slslab_workers.training.robust import BYZANTINE

# Options that set where and when something happens, without an effect on learning.
PLACES = frozenset(
    {"polling", "log-traffic", "store", "queue", "averaging", "device", "instance-type", "supervisor-memory"}
    | {"max-time", "barrier-timeout", "light-memory", "tensor-host", "queue-host"}
    | {"channel", "channel-host", "serialisation", "job-memory"}
)
# Options of all architectures that affect learning by any rule.
COMMON = ("replicas", "partition", BUFFERS.name)
# Every step uses the mean of all gradients, in any architecture.
MEAN = "mean"
PROOFS = (
    "tests/lab/studies/test_curves.py::test_architectures_with_one_rule_learn_the_same_bits",
    "tests/workers/architectures/test_conformance.py::test_trajectory_is_bit_equal_to_one_process",
)
# Options with which an architecture updates with the mean of all gradients.
_MEANS: Mapping[str, Mapping[str, Value]] = {
    **{name: {"combine": "mean", "optimiser": "sgd"} for name in ("allreduce", "scatterreduce", "gpu")},
    "mlless": {
        "combine": "mean",
        "filter": "none",
        "optimiser": "sgd",
        "end-threshold": 0.0,
        "remove-threshold": "off",
        "remove-interval": "off",
    },
}
# Values in which a curve should match the paper's profile.
USUAL = ("lr", "momentum", "weight_decay", "seed", "memory_format")
# The smallest accuracy to compare at, in %: twice that of guessing among ten classes. Models that diverge end anywhere
# below it, with losses above that of guessing.
LOWEST_TARGET = 20


@dataclass(frozen=True)
class Rule:
    """What determines learning from the same minibatches: a name, and the options that matter."""

    name: str
    options: tuple[tuple[str, Value], ...]


class Point(BaseModel):
    """The end of an epoch, counted from 1: test accuracy 0..1, the model's updates so far, significant updates in the
    epoch; mean losses of the test and of the epoch's minibatches, None if they aren't finite."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    epoch: Annotated[int, Field(ge=1)]
    updates: Annotated[int, Field(ge=0)]
    accuracy: Annotated[float, Field(ge=0, le=1, alias="test_accuracy")]
    sent: Annotated[int | None, Field(ge=0, alias="significant_updates")] = None
    loss: Annotated[float | None, Field(alias="test_loss")] = None
    training_loss: float | None = None


def _read_plan(plan: object) -> object:
    return read_plan(plan) if isinstance(plan, Mapping) else plan


class Curve(BaseModel):
    """Learning, epoch by epoch; `ended` is the reason: epochs, accuracy, patience, loss; None if interrupted. `name` is
    its directory's."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    name: str = ""
    plan: Annotated[InstanceOf[Plan], BeforeValidator(_read_plan)]
    points: Annotated[tuple[Point, ...], Field(min_length=1, alias="epochs")]
    ended: str | None
    device: Mapping[str, str]
    started: str

    @property
    def rule(self) -> Rule:
        """Return its learning rule."""
        return rule(self.plan.architecture, self.plan.options)

    @property
    def dataset(self) -> str:
        """Return the name of the data set, or the last part of a folder."""
        return self.plan.dataset.removeprefix("folder:").rstrip("/").rpartition("/")[2]

    @property
    def last(self) -> Point:
        """Return the last epoch."""
        return self.points[-1]

    @property
    def best(self) -> Point:
        """Return the first of the most accurate epochs."""
        return max(self.points, key=lambda point: point.accuracy)

    @property
    def percentages(self) -> list[float]:
        """Return the accuracies, %."""
        return [100 * point.accuracy for point in self.points]

    def reach(self, accuracy: float) -> Point | None:
        """Return the first epoch that ended with at least this test accuracy, or None."""
        return next((point for point in self.points if point.accuracy >= accuracy), None)

    def share(self, until: Point) -> float | None:
        """Return the share of the gradients that a filter let through until then; None without a filter."""
        sent = [point.sent for point in self.points if point.epoch <= until.epoch]
        known = [number for number in sent if number is not None]
        if len(known) < len(sent):
            return None
        return sum(known) / (len(known) * self.plan.workers * self.plan.batches)

    @property
    def unusual(self) -> dict[str, Value]:
        """Return the values that differ from the paper's profile."""
        usual = {entry.name: entry.default for entry in fields(Plan)}
        return {name: value for name in USUAL if (value := getattr(self.plan, name)) != usual[name]}

    def end(self) -> str:
        """Return in words how far the curve goes, and why it ends there."""
        reasons = {
            "epochs": "all requested",
            "accuracy": "the requested accuracy was reached",
            "patience": "the validation loss didn't improve for 10 epochs",
            "loss": "the loss was at or below the end threshold",
        }
        return f"{counted(self.last.epoch, 'epoch')}, {reasons.get(self.ended or '', 'where it was interrupted')}"


def rule(architecture: str, options: Mapping[str, Value]) -> Rule:
    """Return the rule of an architecture with these options, and defaults for the others."""
    known = architectures().get(architecture)
    defaults = {option.name: option.default for option in known.options} if known else {}
    values = {name: value for name, value in {**defaults, **options}.items() if name not in PLACES}
    if values.get("filter") == "none":
        # All workers send everything, so the mean over the senders is the mean over all.
        for name in ("threshold", "mean-over"):
            values.pop(name, None)
    if values.get(ALGORITHM.name) == ALGORITHM.default:
        for option in algorithms.OPTIONS:
            values.pop(option.name, None)
    for option in (BYZANTINE, ATTACK, BUFFERS):
        if values.get(option.name) == option.default:
            values.pop(option.name)
    common = {name: value for name, value in values.items() if name in COMMON}
    if {name: value for name, value in values.items() if name not in COMMON} == _MEANS.get(architecture):
        return Rule(MEAN, tuple(sorted(common.items())))
    return Rule(architecture, tuple(sorted(values.items())))


def rule_of(experiment: Experiment, options: Mapping[str, Value] = MappingProxyType({})) -> Rule:
    """Return the rule of a row of the paper, canonical or as released, with these options changed."""
    known = architectures()[experiment.architecture].options
    released = {option.name: option.released for option in known if experiment.released and option.released is not None}
    return rule(experiment.architecture, {**released, **options})


def read_curves(directory: Path) -> tuple[Curve, ...]:
    """Return all curves in the subdirectories, by name; RunError without curves, RequestError for a wrong one."""
    curves = tuple(read_curve(path) for path in sorted(directory.glob(f"*/{DOCUMENT}")))
    if not curves:
        raise RunError(f"{directory} has no accuracy curves.", "make them: slslab accuracy ARCH, such as allreduce.")
    return curves


def read_curve(path: Path) -> Curve:
    """Return one curve; RequestError if it can't be read, or has another version."""
    hint = "make it again with slslab accuracy."
    curve = read_entries(path, Curve, SCHEMA, "curve", hint)
    numbers = [point.epoch for point in curve.points]
    if numbers != list(range(1, len(numbers) + 1)):
        raise RequestError(f"The curve {path} doesn't contain every epoch from 1.", hint)
    return curve.model_copy(update={"name": path.parent.name})


def select(curves: Sequence[Curve], model: str, dataset: str) -> tuple[Curve, ...]:
    """Return the curves with Table 2's minibatches, this model and this data set; RunError lists the others."""
    selected = tuple(
        curve
        for curve in curves
        if curve.plan.model == model
        and _is(curve.dataset, dataset)
        and (curve.plan.workers, curve.plan.batches, curve.plan.batch_size) == (WORKERS, BATCHES, BATCH_SIZE)
    )
    if not selected:
        there = ", ".join(f"{curve.name} ({curve.plan.model} on {curve.dataset})" for curve in curves)
        raise RunError(
            f"No curve has {model} on {dataset} with {WORKERS} workers × {BATCHES} minibatches of {BATCH_SIZE}; "
            f"found: {there}.",
            f"slslab accuracy ARCH --model {model} --dataset {dataset}",
        )
    return selected


def curve_of(curves: Iterable[Curve], rule: Rule, architecture: str) -> Curve | None:
    """Return a rule's curve: preferably the paper's rate and seed, then the architecture's own, then the longest."""
    return min(
        (curve for curve in curves if curve.rule == rule),
        key=lambda curve: (len(curve.unusual), curve.plan.architecture != architecture, -curve.last.epoch, curve.name),
        default=None,
    )


def common_target(curves: Iterable[Curve]) -> float | None:
    """Return the largest multiple of 5 % that the most curves reach; None if none reaches the lowest to compare at."""
    best = [curve.best.accuracy for curve in curves]
    reached = {
        percent / 100: sum(accuracy >= percent / 100 for accuracy in best) for percent in range(LOWEST_TARGET, 101, 5)
    }
    most = max(reached.values())
    return max(target for target, number in reached.items() if number == most) if most else None


def target_note(target: float | None, chosen: bool) -> Iterator[str]:
    """Yield a note on the accuracy of the comparison, unless the user chose it."""
    if target is None:
        yield f"No curve reaches {LOWEST_TARGET} %, so they can't be compared at the same accuracy."
    elif not chosen:
        yield (
            f"{percent(target)} is the largest multiple of 5 %, {LOWEST_TARGET} or more, that the most curves reach; "
            "--target chooses another."
        )


def _is(available: str, target: str) -> bool:
    """Return whether a data set's name is or begins with the wanted one: cifar-10-images is cifar10, cifar100 isn't."""
    plain, prefix = ("".join(letter for letter in name.lower() if letter.isalnum()) for name in (available, target))
    return plain.startswith(prefix) and not plain[len(prefix) :][:1].isdigit()
