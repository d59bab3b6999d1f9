"""Table 3 of Barrak et al. reproduced: accuracy, and the time and cost to reach it: epochs of a curve × an epoch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from slslab.report.formats import percent
from slslab_lab.papers.paper import Row
from slslab_lab.papers.recomputation import Recomputed, recompute_row
from slslab_lab.studies import MODELS, NAMES, committed
from slslab_lab.studies.curves import (
    PROOFS,
    Curve,
    Point,
    common_target,
    curve_of,
    read_curves,
    rule_of,
    select,
    target_note,
)
from slslab_lab.studies.documents import Cell, Estimate, ReproducedRow, cell_of, make_curve, make_document
from slslab_lab.studies.experiments import BATCHES, WORKERS, Experiment, experiments, read_all
from slslab_lab.studies.rankings import Standing, by_variant, rank_rows
from slslab_lab.studies.replayed_rows import FIRST, LAST, EpochTime, Recordings, prepare
from slslab_lab.studies.study import Setup

TABLE, MODEL = "table3", "mobilenet"
ACCURACY = ("accuracy", "test accuracy", "%")
# The accuracy in the heading of the paper's column of minutes.
TARGET = 0.80
# Accuracies agree within this share of the published one: about four points.
AGREES_ACCURACY = 0.05


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
    recorded = read_all(options.get("recordings") or committed("table2"), experiments(MODELS))
    return Learnt(curves, prepare(setup.paper, recorded[0], setup.profile, setup.book))


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
    epoch = learnt.recordings.epoch
    return tuple(
        Progression(experiment, row, curve, epoch(experiment, None if curve is None else curve.share(curve.last)))
        for experiment, row, curve in setup.watched("playing epochs", pairs)
    )


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
                curve.percentages,
            )
            for curve, sharing in equal_ones(rows.values())
        ]
        yield make_curve(f"Accuracy by epoch, {variant}", variant, ("epochs", "epochs", ""), ACCURACY, lines)


def by_time(progressions: Sequence[Progression]) -> Iterator[dict[str, Any]]:
    """Yield accuracy by modelled minutes as a picture per variant, with one line per row that has both."""
    for variant, rows in variants(progressions).items():
        lines = [
            (name, [point.epoch * row.epoch.seconds / 60 for point in row.curve.points], row.curve.percentages)
            for name, row in rows.items()
            if row.curve is not None and row.epoch.seconds is not None
        ]
        yield make_curve(f"Accuracy by time, {variant}", variant, ("minutes", "modelled time", "min"), ACCURACY, lines)


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
            f"Curve {curve.name}, of {names}: {curve.end()}; seed {plan.seed}{odd}, on {curve.device.get('name', '')}, "
            f"{curve.started[:10]}.{also}"
        )


def whole(value: float | None) -> Estimate | None:
    """Return a figure without an interval."""
    return None if value is None else Estimate(value)


def build(setup: Setup, learnt: Learnt) -> dict[str, Any]:
    """Return the document; the option `target` (0..1) is a second accuracy, by default the common one."""
    paper, progressions, recordings = setup.paper, pair_up(setup, learnt), learnt.recordings
    target = setup.options.get("target")
    common = target if target is not None else common_target(curve for curve, _ in equal_ones(progressions))
    return make_document(
        setup,
        paper.table(TABLE),
        _columns(common),
        [_row(each, recompute_row(paper, TABLE, each.row), common) for each in progressions],
        [*describe(progressions), *target_note(common, target is not None), *time_notes(progressions, recordings)],
        rankings=_rankings(progressions, common),
        curves=[*by_epoch(progressions), *by_time(progressions)],
        **platform(recordings),
        target={"published": TARGET, "common": common, "chosen": target is not None},
    )


def platform(recordings: Recordings) -> dict[str, Any]:
    """Return the entries of a document about the platform of its model."""
    return {
        "profile": recordings.platform,
        "calibration": asdict(recordings.calibration),
        "prices": recordings.book,
    }


def time_notes(progressions: Sequence[Progression], recordings: Recordings) -> Iterator[str]:
    """Yield how epochs were modelled."""
    yield (
        f"Modelled: wall seconds of an epoch, the mean of epochs {FIRST + 1} to {LAST} of generated runs with "
        f"{WORKERS} workers × {BATCHES} minibatches, on {recordings.platform.name} with Table 2's memory sizes and the "
        f"one speed fitted to {len(recordings.calibration.rows)} of its rows ({recordings.calibration.cpu_speed:.3g} "
        "processors of the recording host a vCPU). Start-up, and functions that continue in another one after 900 s, "
        "aren't included."
    )
    for progression in progressions:
        if progression.epoch.seconds is not None and progression.epoch.share < 1:
            yield (
                f"{progression.label}: an epoch sends {percent(progression.epoch.share, '.1')} of the gradients, the "
                "mean of its curve, which differs between epochs; the model spreads them evenly, in sixteenths or "
                "simpler fractions."
            )
    if any(progression.experiment.released and progression.epoch.seconds is not None for progression in progressions):
        yield (
            "As released: a worker's log grows with every line, and so do the times of its requests; epochs are the "
            "first ones, when it is short."
        )


def _columns(common: float | None) -> list[tuple[str, str, str]]:
    columns = [
        ("accuracy", "Accuracy at the end", "%"),
        ("best_accuracy", "Best accuracy", "%"),
        ("minutes", f"Time to {percent(TARGET)}", "min"),
        ("seconds", f"Time to {percent(TARGET)}", "s"),
        ("epochs", f"Epochs to {percent(TARGET)}", "epochs"),
        ("steps", f"Steps to {percent(TARGET)}", "steps"),
        ("epoch_seconds", "Wall time of an epoch", "s"),
        ("whole_minutes", "Time of the whole curve", "min"),
    ]
    if common is not None:
        columns += [
            ("common_minutes", f"Time to {percent(common)}", "min"),
            ("common_epochs", f"Epochs to {percent(common)}", "epochs"),
            ("common_updates", f"Updates to {percent(common)}", "updates"),
            ("common_cost", f"Cost to {percent(common)}", "USD"),
        ]
    return columns


def _row(progression: Progression, again: Sequence[Recomputed], common: float | None) -> ReproducedRow:
    curve, point, missing = progression.curve, *progression.reach(TARGET)
    epochs = point.epoch if point else None
    minutes = progression.minutes(point)
    cell = partial(cell_of, progression.row, again)
    cells = {
        "accuracy": cell(
            "accuracy",
            measured=whole(100 * curve.last.accuracy) if curve else None,
            tolerance=AGREES_ACCURACY,
            missing="" if curve else progression.unknown,
        ),
        "best_accuracy": cell("best_accuracy", measured=whole(100 * curve.best.accuracy) if curve else None),
        "minutes": cell(
            "minutes",
            modelled=whole(minutes),
            missing="" if minutes is not None else missing or progression.epoch.reason,
        ),
        "seconds": cell("seconds", modelled=whole(None if minutes is None else 60 * minutes)),
        "epochs": cell("epochs", measured=whole(epochs)),
        "steps": cell("steps", measured=whole(None if epochs is None else epochs * BATCHES)),
        "epoch_seconds": cell(
            "epoch_seconds", modelled=whole(progression.epoch.seconds), missing=progression.epoch.reason
        ),
        "whole_minutes": cell("whole_minutes", modelled=whole(progression.minutes(curve.last if curve else None))),
    }
    if common is not None:
        reached, why = progression.reach(common)
        unknown = why or progression.epoch.reason
        cells |= {
            "common_minutes": Cell(modelled=whole(progression.minutes(reached)), missing=unknown),
            "common_epochs": Cell(measured=whole(reached.epoch if reached else None), missing=why),
            "common_updates": Cell(measured=whole(reached.updates if reached else None), missing=why),
            "common_cost": Cell(modelled=whole(progression.cost(reached)), missing=unknown),
        }
    return ReproducedRow(
        progression.row.name,
        NAMES[progression.experiment.model],
        progression.experiment.variant,
        cells,
        progression.row.note,
    )


def _rankings(progressions: Sequence[Progression], common: float | None) -> Iterator[dict[str, Any]]:
    table = {progression.row.name: progression.row for progression in progressions}
    published: dict[str, dict[str, float]] = {
        column: {name: float(row.published.get(column, Decimal(0))) for name, row in table.items()}
        for column in ("accuracy", "minutes")
    }
    accuracies = {
        f"measured, {variant}": {
            name: Standing(100 * progression.curve.last.accuracy)
            if progression.curve
            else Standing(None, missing=progression.unknown)
            for name, progression in rows.items()
        }
        for variant, rows in variants(progressions).items()
    }
    yield rank_rows(
        "accuracy at the end, highest first",
        "%",
        published["accuracy"],
        accuracies,
        "{first} has {ratio} times the accuracy of {second}",
        highest_first=True,
        reasons=tuple(_rule_reasons(progressions)),
    )
    targets = {f"time to {percent(TARGET)}": TARGET}
    if common is not None and common != TARGET:
        targets[f"time to {percent(common)} (published to {percent(TARGET)})"] = common
    for title, accuracy in targets.items():
        yield rank_rows(
            title,
            "min",
            published["minutes"],
            {
                f"modelled, {variant}": {name: progression.standing(accuracy) for name, progression in rows.items()}
                for variant, rows in variants(progressions).items()
            },
            "{first} takes {ratio} times as long as {second}",
        )


def _rule_reasons(progressions: Sequence[Progression]) -> Iterator[str]:
    for curve, sharing in equal_ones(progressions):
        if dict(curve.rule.options).get("combine") == "sum":
            names = ", ".join(progression.label for progression in sharing)
            yield (
                f"{names}: gradients are summed, not averaged, so a step is {curve.plan.workers} times as large, as "
                f"with a learning rate of {curve.plan.workers * curve.plan.lr:g}"
            )
