"""Table 3 of Barrak et al. reproduced: accuracy, and the time to reach it."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from slslab.report.formats import percent
from slslab_lab.papers.recomputation import Recomputed, recompute_row
from slslab_lab.studies import NAMES
from slslab_lab.studies.accuracy_by_time import (
    TABLE,
    Learnt,
    Progression,
    by_epoch,
    by_time,
    describe,
    equal_ones,
    pair_up,
    variants,
    whole,
)
from slslab_lab.studies.curves import common_target, target_note
from slslab_lab.studies.documents import Cell, ReproducedRow, cell_of, make_document
from slslab_lab.studies.experiments import BATCHES, WORKERS
from slslab_lab.studies.rankings import Standing, rank_rows
from slslab_lab.studies.replayed_rows import FIRST, LAST, Recordings
from slslab_lab.studies.study import Setup

# The accuracy in the heading of the paper's column of minutes.
TARGET = 0.80
# Accuracies agree within this share of the published one: about four points.
AGREES_ACCURACY = 0.05


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
        "calibration": recordings.calibration.as_document(),
        "prices": recordings.book,
    }


def time_notes(progressions: Sequence[Progression], recordings: Recordings) -> Iterator[str]:
    """Yield how epochs were modelled."""
    yield (
        f"Modelled: wall seconds of an epoch, the mean of epochs {FIRST + 1} to {LAST} of generated runs with "
        f"{WORKERS} workers × {BATCHES} minibatches, on {recordings.platform.name} with Table 2's memory sizes and the "
        f"one speed fitted to {len(recordings.calibration.rows)} of its rows ({recordings.calibration.speed:.3g} "
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
