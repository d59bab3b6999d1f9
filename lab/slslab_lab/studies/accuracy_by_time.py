"""Accuracy by time and by cost for each row of Table 3: accuracy by epoch × time of an epoch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from slslab.report.formats import percent
from slslab_lab.papers.paper import Row
from slslab_lab.studies import MODELS, committed
from slslab_lab.studies.curves import PROOFS, Curve, Point, curve_of, read_curves, rule_of, select
from slslab_lab.studies.documents import Estimate, make_curve
from slslab_lab.studies.experiments import Experiment, experiments, read_all
from slslab_lab.studies.rankings import Standing, by_variant
from slslab_lab.studies.replayed_rows import EpochTime, Recordings, prepare
from slslab_lab.studies.study import Setup

TABLE, MODEL = "table3", "mobilenet"
CANONICAL, RELEASED = "canonical", "as released"
ACCURACY = ("accuracy", "test accuracy", "%")


@dataclass(frozen=True)
class Progression:
    """A row in one variant, with its epoch, and its curve, perhaps by another architecture with the same rule."""

    experiment: Experiment
    row: Row
    curve: Curve | None
    epoch: EpochTime

    @property
    def label(self) -> str:
        """Return row and variant in words."""
        return f"{self.row.name} ({self.experiment.variant})"

    def minutes(self, until: Point | None) -> float | None:
        """Return modelled minutes until this point of the curve."""
        return None if until is None or self.epoch.seconds is None else until.epoch * self.epoch.seconds / 60

    def cost(self, until: Point | None) -> float | None:
        """Return modelled USD until this point of the curve."""
        return None if until is None or self.epoch.cost is None else until.epoch * self.epoch.cost

    def reach(self, accuracy: float) -> tuple[Point | None, str]:
        """Return the first epoch with this accuracy; or None, and the reason."""
        if self.curve is None:
            return None, self.unknown
        point = self.curve.reach(accuracy)
        return point, "" if point else f"{percent(accuracy)} not reached in {self.curve.last.epoch} epochs"

    @property
    def unknown(self) -> str:
        """Return why the accuracy is unknown."""
        return f"{self.experiment.architecture}, {self.experiment.variant} has no curve"

    def standing(self, accuracy: float) -> Standing:
        """Return the minutes until it reaches this accuracy, or the minutes after which it hasn't."""
        point, missing = self.reach(accuracy)
        if self.epoch.seconds is None:
            return Standing(None, missing=self.epoch.reason)
        if point is not None:
            return Standing(self.minutes(point))
        return Standing(None, self.minutes(self.curve.last) if self.curve else None, missing)


@dataclass(frozen=True)
class Learnt:
    """A model's curves, and Table 2's recordings on the platform."""

    curves: Sequence[Curve]
    recordings: Recordings


def read(setup: Setup) -> Learnt:
    """Return the curves and the recordings of the options."""
    options = setup.options
    curves = select(read_curves(options.get("accuracy") or committed("accuracy")), MODEL, options["dataset"])
    runs = read_all(options.get("recordings") or committed("table2"), experiments(MODELS))
    return Learnt(curves, prepare(setup.paper, runs.done, setup.profile, setup.book))


def pair_up(setup: Setup, learnt: Learnt) -> tuple[Progression, ...]:
    """Return the table's rows in order: canonical, and as released if that has a curve. An epoch is played with the
    share of the gradients that a filter let through over the whole curve."""
    table = setup.paper.table(TABLE)
    pairs = [
        (experiment, row, curve)
        for row in table.rows
        for experiment in experiments([MODEL])
        if experiment.architecture == table.inputs_of(row)["architecture"]
        for curve in [curve_of(learnt.curves, rule_of(experiment), experiment.architecture)]
        if curve is not None or not experiment.released
    ]
    found = []
    for experiment, row, curve in setup.watched("playing epochs", pairs):
        share = None if curve is None else curve.share(curve.last)
        found.append(Progression(experiment, row, curve, learnt.recordings.epoch(experiment, share)))
    return tuple(found)


def variants(progressions: Sequence[Progression]) -> dict[str, dict[str, Progression]]:
    """Return each variant's rows by name; rows with one variant are in both, if any row is as released."""
    return by_variant((each.row.name, each.experiment.variant, each) for each in progressions)


def by_epoch(progressions: Sequence[Progression]) -> Iterator[dict[str, Any]]:
    """Yield accuracy by epoch as a picture per variant, with one line per curve, even if rows share it."""
    for variant, rows in variants(progressions).items():
        lines = [
            (
                ", ".join(progression.row.name for progression in sharing),
                [float(point.epoch) for point in curve.points],
                percentages(curve),
            )
            for curve, sharing in equal_ones(rows.values())
        ]
        yield make_curve(f"Accuracy by epoch, {variant}", variant, ("epochs", "epochs", ""), ACCURACY, lines)


def by_time(progressions: Sequence[Progression]) -> Iterator[dict[str, Any]]:
    """Yield accuracy by modelled minutes as a picture per variant, with one line per row that has both."""
    for variant, rows in variants(progressions).items():
        lines = [
            (name, [point.epoch * row.epoch.seconds / 60 for point in row.curve.points], percentages(row.curve))
            for name, row in rows.items()
            if row.curve is not None and row.epoch.seconds is not None
        ]
        yield make_curve(f"Accuracy by time, {variant}", variant, ("minutes", "modelled time", "min"), ACCURACY, lines)


def percentages(curve: Curve) -> list[float]:
    """Return the accuracies of a curve, %."""
    return [100 * point.accuracy for point in curve.points]


def equal_ones(progressions: Iterable[Progression]) -> list[tuple[Curve, list[Progression]]]:
    """Return each curve with its rows."""
    groups: dict[str, tuple[Curve, list[Progression]]] = {}
    for progression in progressions:
        if progression.curve is not None:
            groups.setdefault(progression.curve.name, (progression.curve, []))[1].append(progression)
    return list(groups.values())


def describe(progressions: Iterable[Progression]) -> Iterator[str]:
    """Yield notes about curves and epochs."""
    for curve, sharing in equal_ones(progressions):
        names = ", ".join(progression.label for progression in sharing)
        plan = curve.plan
        odd = "".join(f", {name} {value}" for name, value in curve.unusual.items())
        also = f" These are equal in every bit ({PROOFS[1]})." if len(sharing) > 1 else ""
        yield (
            f"Curve {curve.name}, of {names}: {curve.end()}; seed {plan.seed}{odd}, on {curve.made['device']}, "
            f"{curve.made['started'][:10]}.{also}"
        )


def whole(value: float | None) -> Estimate | None:
    """Return a figure without an interval."""
    return None if value is None else Estimate(value)
