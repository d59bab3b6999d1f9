"""Accuracy curves that were made before (`slslab accuracy`), read from their directories, and whose they are.

Some architectures compute the same parameters, bit by bit, so one curve stands for all that learn by the same rule."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, Field

from slslab.curves import DOCUMENT, SCHEMA
from slslab.documents import check_schema, validate
from slslab.errors import RequestError, RunError
from slslab.execution import architectures
from slslab.reproductions import FOLDERS
from slslab.reproductions.experiments import BATCH_SIZE, BATCHES, WORKERS, Experiment
from slslab_workers.plan import Plan, PlanError, Value

# Options that say where and when something is done, and not what: without an effect on what is learnt.
PLACES = frozenset(
    {"polling", "log-traffic", "store", "queue", "averaging", "device", "instance-type", "supervisor-memory"}
    | {"max-time", "barrier-timeout", "light-memory"}
)
# Options that architectures share, and that change what is learnt by whatever rule.
COMMON = ("replicas", "partition")
# The mean of all gradients in every step, whoever calculates it.
MEAN = "mean"
PROOFS = (
    "tests/slslab/reproductions/test_curves.py::test_architectures_with_one_rule_learn_the_same_bits",
    "tests/architectures/test_conformance.py::test_trajectory_is_bit_equal_to_one_process",
)
# The options with which an architecture updates with the mean of all gradients.
_MEANS: Mapping[str, Mapping[str, Value]] = {
    "allreduce": {"combine": "mean"},
    "scatterreduce": {},
    "gpu": {},
    "mlless": {
        "filter": "none",
        "optimiser": "sgd",
        "end-threshold": 0.0,
        "remove-threshold": "off",
        "remove-interval": "off",
    },
}
# What a curve should have as the paper's profile has it, the first by default.
USUAL = ("lr", "momentum", "weight_decay", "seed", "memory_format")


# The smallest accuracy to compare at, %: twice what guessing among ten classes has. Models that diverge come out
# anywhere below it, with losses above that of guessing.
LOWEST_TARGET = 20


class CurveError(RequestError):
    """A curve's file that cannot be read."""


@dataclass(frozen=True)
class Rule:
    """What decides what is learnt from given minibatches: by a name, with the options that matter."""

    name: str
    options: tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Point:
    """The end of an epoch, from 1: test accuracy 0..1, updates of the model so far, significant updates in it."""

    epoch: int
    accuracy: float
    updates: int
    sent: int | None


@dataclass(frozen=True)
class Curve:
    """What was learnt epoch by epoch; `ended` is why: epochs, accuracy, patience, loss; None if interrupted."""

    name: str
    plan: Plan
    points: tuple[Point, ...]
    ended: str | None
    made: Mapping[str, Any]

    @property
    def rule(self) -> Rule:
        """By what it was learnt."""
        return rule(self.plan.architecture, self.plan.options)

    @property
    def dataset(self) -> str:
        """The data set's name, of a folder its last part."""
        return self.plan.dataset.removeprefix("folder:").rstrip("/").rpartition("/")[2]

    @property
    def last(self) -> Point:
        """Its end."""
        return self.points[-1]

    @property
    def best(self) -> Point:
        """The first of the most accurate ones."""
        return max(self.points, key=lambda point: point.accuracy)

    def reach(self, accuracy: float) -> Point | None:
        """The first epoch at whose end the test accuracy was at least this; None if there is none."""
        return next((point for point in self.points if point.accuracy >= accuracy), None)

    def share(self, until: Point) -> float | None:
        """The share of the gradients that a filter let pass until then; None where there is no filter."""
        sent = [point.sent for point in self.points if point.epoch <= until.epoch]
        known = [one for one in sent if one is not None]
        if len(known) < len(sent):
            return None
        return sum(known) / (len(known) * self.plan.workers * self.plan.batches)

    @property
    def unusual(self) -> dict[str, Value]:
        """What of it is otherwise than in the paper's profile."""
        usual = {one.name: one.default for one in fields(Plan)}
        return {name: value for name in USUAL if (value := getattr(self.plan, name)) != usual[name]}

    def end(self) -> str:
        """In words how far it goes and why no further."""
        reasons = {
            "epochs": "all that were asked for",
            "accuracy": "the accuracy asked for was reached",
            "patience": "the validation loss was not beaten for 10 epochs",
            "loss": "the loss was at or below the end threshold",
        }
        epochs = f"{self.last.epoch} epoch{'s' * (self.last.epoch != 1)}"
        return f"{epochs}, {reasons.get(self.ended or '', 'where it was interrupted')}"

    def as_document(self, shared: bool) -> dict[str, Any]:
        """For JSON; `shared` is whether it is another architecture's with the same rule."""
        return {
            "name": self.name,
            "architecture": self.plan.architecture,
            "shared": shared,
            "rule": {"name": self.rule.name, "options": dict(self.rule.options)},
            "dataset": self.dataset,
            "epochs": self.last.epoch,
            "ended": self.ended,
            "seed": self.plan.seed,
            **self.made,
        }


class _Epoch(BaseModel):
    epoch: Annotated[int, Field(ge=1)]
    updates: Annotated[int, Field(ge=0)]
    test_accuracy: Annotated[float, Field(ge=0, le=1)]
    significant_updates: Annotated[int, Field(ge=0)] | None = None


class _File(BaseModel):
    ended: str | None
    plan: dict[str, Any]
    device: dict[str, str]
    started: str
    epochs: Annotated[list[_Epoch], Field(min_length=1)]


def rule(architecture: str, options: Mapping[str, Value]) -> Rule:
    """The rule of an architecture with these options, all others having their defaults."""
    found: dict[str, Value] = {}
    rooms = architectures()
    if architecture in rooms:
        found = {option.name: option.default for option in rooms[architecture].options}
    found |= options
    found = {name: value for name, value in found.items() if name not in PLACES}
    if found.get("filter") == "none":
        # All send everything, and the mean over the senders is that over all.
        for name in ("threshold", "mean-over"):
            found.pop(name, None)
    common = {name: value for name, value in found.items() if name in COMMON}
    if {name: value for name, value in found.items() if name not in COMMON} == _MEANS.get(architecture):
        return Rule(MEAN, tuple(sorted(common.items())))
    return Rule(architecture, tuple(sorted(found.items())))


def rule_of(experiment: Experiment, options: Mapping[str, Value] = MappingProxyType({})) -> Rule:
    """The rule of a row of the paper, canonical or as released, but for these options."""
    known = architectures()[experiment.architecture].options
    released = {one.name: one.released for one in known if experiment.released and one.released is not None}
    return rule(experiment.architecture, {**released, **options})


def committed() -> Path:
    """Where the project's own curves are; RunError if there are none."""
    found = next((folder / "accuracy" for folder in FOLDERS if (folder / "accuracy").is_dir()), None)
    if found is None:
        raise RunError("There are no accuracy curves.", "make them with slslab accuracy ARCH, such as allreduce.")
    return found


def read_curves(directory: Path) -> tuple[Curve, ...]:
    """All curves in the directories in here, by name; RunError if there are none, CurveError for one that is wrong."""
    found = tuple(read_curve(path) for path in sorted(directory.glob(f"*/{DOCUMENT}")))
    if not found:
        raise RunError(
            f"{directory} has no accuracy curves.", "make them with slslab accuracy ARCH, such as allreduce."
        )
    return found


def read_curve(path: Path) -> Curve:
    """One curve; CurveError if it is none, or of another version."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as trouble:
        raise CurveError(f"The curve {path} cannot be read: {trouble.strerror}.", "choose another.") from trouble
    except ValueError as trouble:
        raise CurveError(
            f"The curve {path} is not JSON: {trouble}.", "make it again with slslab accuracy."
        ) from trouble
    if not isinstance(document, dict):
        raise CurveError(f"The curve {path} has no entries.", "make it again with slslab accuracy.")
    check_schema(document, SCHEMA, path, "curve", CurveError)
    file = validate(_File, document, path, "curve", CurveError)
    numbers = [one.epoch for one in file.epochs]
    if numbers != list(range(1, len(numbers) + 1)):
        raise CurveError(f"The curve {path} does not have every epoch from 1.", "make it again with slslab accuracy.")
    try:
        plan = Plan.from_document(file.plan)
    except PlanError as trouble:
        raise CurveError(f"The curve {path} is wrong at plan: {trouble.message}", trouble.hint) from trouble
    points = tuple(Point(one.epoch, one.test_accuracy, one.updates, one.significant_updates) for one in file.epochs)
    made = {"started": file.started, "device": file.device.get("name", "")}
    return Curve(path.parent.name, plan, points, file.ended, made)


def select(curves: Iterable[Curve], model: str, dataset: str) -> tuple[Curve, ...]:
    """Those of Table 2's minibatches, of this model and data set; RunError says which there are if none is."""
    curves = tuple(curves)
    size = (WORKERS, BATCHES, BATCH_SIZE)
    found = tuple(
        one
        for one in curves
        if one.plan.model == model
        and _is(one.dataset, dataset)
        and (one.plan.workers, one.plan.batches, one.plan.batch_size) == size
    )
    if not found:
        there = ", ".join(f"{one.name} ({one.plan.model} on {one.dataset})" for one in curves)
        raise RunError(
            f"No curve is of {model} on {dataset} with {WORKERS} workers × {BATCHES} minibatches of {BATCH_SIZE}; "
            f"there are {there}.",
            f"slslab accuracy ARCH --model {model} --dataset {dataset}",
        )
    return found


def curve_of(curves: Iterable[Curve], wanted: Rule, architecture: str) -> Curve | None:
    """The curve of a rule: the paper's learning rate and seed first, then the architecture's own, then the longest."""
    able = [one for one in curves if one.rule == wanted]
    return min(
        able,
        key=lambda one: (len(one.unusual), one.plan.architecture != architecture, -one.last.epoch, one.name),
        default=None,
    )


def sent_shares(curves: Iterable[Curve], wanted: Iterable[Experiment]) -> dict[Experiment, float]:
    """Of those whose curve has a filter, the share of the gradients that it let pass from the beginning to its end."""
    curves = tuple(curves)
    found = {}
    for experiment in wanted:
        curve = curve_of(curves, rule_of(experiment), experiment.architecture)
        if curve is not None and (share := curve.share(curve.last)) is not None:
            found[experiment] = share
    return found


def common_target(curves: Iterable[Curve]) -> float | None:
    """The largest multiple of 5 % that the most curves reach; None if none reaches the lowest to compare at."""
    best = [one.best.accuracy for one in curves]
    reached = {
        percent / 100: sum(accuracy >= percent / 100 for accuracy in best) for percent in range(LOWEST_TARGET, 101, 5)
    }
    most = max(reached.values())
    return max(target for target, number in reached.items() if number == most) if most else None


def target_note(target: float | None, chosen: bool) -> Iterator[str]:
    """Where the accuracy that is compared at comes from, unless it was chosen."""
    if target is None:
        yield f"No curve reaches {LOWEST_TARGET} %, so there is no accuracy at which they could be compared."
    elif not chosen:
        yield (
            f"{target:.0%} is the largest multiple of 5 %, {LOWEST_TARGET} or more, that the most curves reach; "
            "--target chooses another."
        )


def _is(found: str, wanted: str) -> bool:
    """Whether a data set's name is the wanted one, or begins with it: cifar-10-images is cifar10, cifar100 is not."""
    plain, prefix = ("".join(letter for letter in name.lower() if letter.isalnum()) for name in (found, wanted))
    return plain.startswith(prefix) and not plain[len(prefix) :][:1].isdigit()
