"""How a row of Table 3 comes on: what was learnt by epoch × what an epoch takes = accuracy by time and by money."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slslab.papers import Paper, Row
from slslab.reproductions.calls import Estimate
from slslab.reproductions.curves import PROOFS, Curve, Point, curve_of, rule_of
from slslab.reproductions.epochs import EpochTime
from slslab.reproductions.experiments import Experiment, experiments
from slslab.reproductions.places import Standing

TABLE = "table3"
CANONICAL, RELEASED = "canonical", "as released"


@dataclass(frozen=True)
class Progression:
    """A row in one variant, with its curve, or that of another architecture with the same rule, and its epoch."""

    experiment: Experiment
    row: Row
    curve: Curve | None
    epoch: EpochTime

    @property
    def variant(self) -> str:
        """Canonical or as released."""
        return self.experiment.variant

    @property
    def label(self) -> str:
        """Row and variant in words."""
        return f"{self.row.name} ({self.variant})"

    @property
    def shared(self) -> bool:
        """Whether the curve is another architecture's."""
        return self.curve is not None and self.curve.plan.architecture != self.experiment.architecture

    def minutes(self, epochs: int) -> float | None:
        """Modelled minutes of so many epochs."""
        return None if self.epoch.seconds is None else epochs * self.epoch.seconds / 60

    def cost(self, epochs: int) -> float | None:
        """Modelled USD of so many epochs."""
        return None if self.epoch.cost is None else epochs * self.epoch.cost

    def reach(self, accuracy: float) -> tuple[Point | None, str]:
        """The first epoch with this accuracy; or None, and why there is none."""
        if self.curve is None:
            return None, self.unknown
        point = self.curve.reach(accuracy)
        return point, "" if point else f"{accuracy:.0%} not reached in {self.curve.last.epoch} epochs"

    @property
    def unknown(self) -> str:
        """Why nothing is known of what is learnt."""
        return f"there is no curve of {self.experiment.architecture}, {self.variant}"

    def standing(self, accuracy: float) -> Standing:
        """When it comes to this accuracy, in minutes, or after how many it has not."""
        point, missing = self.reach(accuracy)
        if self.epoch.seconds is None:
            return Standing(None, missing=self.epoch.reason)
        if point is not None:
            return Standing(self.minutes(point.epoch))
        return Standing(None, self.minutes(self.curve.last.epoch) if self.curve else None, missing)

    def as_document(self) -> dict[str, Any]:
        """What a row's document has of it."""
        return {
            "curve": self.curve.as_document(self.shared) if self.curve else None,
            "epoch": {
                "seconds": self.epoch.seconds,
                "cost": self.epoch.cost,
                "share": self.epoch.share,
                "reason": self.epoch.reason,
            },
        }


def pair_up(
    paper: Paper, model: str, curves: Iterable[Curve], epochs: Mapping[Experiment, EpochTime]
) -> tuple[Progression, ...]:
    """The rows of the table in its order, canonical, and as released where that has a curve."""
    curves = tuple(curves)
    found = []
    for row in paper.table(TABLE).rows:
        architecture = paper.table(TABLE).inputs_of(row)["architecture"]
        for experiment in experiments([model]):
            if experiment.architecture == architecture:
                curve = curve_of(curves, rule_of(experiment), experiment.architecture)
                if curve is not None or not experiment.released:
                    found.append(Progression(experiment, row, curve, epochs[experiment]))
    return tuple(found)


def of_variant(progressions: Iterable[Progression], variant: str) -> dict[str, Progression]:
    """By row those of a variant, and those rows whose architecture has only one."""
    progressions = tuple(progressions)
    names = [one.row.name for one in progressions]
    return {one.row.name: one for one in progressions if one.variant == variant or names.count(one.row.name) == 1}


def variants(progressions: Iterable[Progression]) -> dict[str, dict[str, Progression]]:
    """By variant its rows by name; as released only if any row is."""
    progressions = tuple(progressions)
    released = any(one.experiment.released for one in progressions)
    return {name: of_variant(progressions, name) for name in (CANONICAL, *([RELEASED] if released else []))}


def by_epoch(progressions: Iterable[Progression]) -> list[dict[str, Any]]:
    """Accuracy by epoch, a picture for each variant: a line for each curve, whoever shares it."""
    pictures = []
    for variant, rows in variants(progressions).items():
        lines = [
            _line(", ".join(one.row.name for one in own), curve, [float(point.epoch) for point in curve.points])
            for curve, own in equal_ones(rows.values())
        ]
        pictures.append(
            _picture("Accuracy by epoch", variant, {"name": "epochs", "title": "epochs", "unit": ""}, lines)
        )
    return pictures


def by_time(progressions: Iterable[Progression]) -> list[dict[str, Any]]:
    """Accuracy by modelled minutes, a picture for each variant: a line for each row that has both."""
    pictures = []
    for variant, rows in variants(progressions).items():
        lines = []
        for name, one in rows.items():
            if one.curve is not None and one.epoch.seconds is not None:
                minutes = [point.epoch * one.epoch.seconds / 60 for point in one.curve.points]
                lines.append(_line(name, one.curve, minutes))
        x = {"name": "minutes", "title": "modelled time", "unit": "min"}
        pictures.append(_picture("Accuracy by time", variant, x, lines))
    return pictures


def _line(name: str, curve: Curve, x: list[float]) -> dict[str, Any]:
    return {"name": name, "x": x, "y": [100 * point.accuracy for point in curve.points]}


def _picture(title: str, variant: str, x: dict[str, str], lines: list[dict[str, Any]]) -> dict[str, Any]:
    y = {"name": "accuracy", "title": "test accuracy", "unit": "%"}
    return {"title": f"{title}, {variant}", "variant": variant, "x": x, "y": y, "lines": lines}


def equal_ones(progressions: Iterable[Progression]) -> list[tuple[Curve, list[Progression]]]:
    """Each curve with those that it is of."""
    found: dict[str, tuple[Curve, list[Progression]]] = {}
    for one in progressions:
        if one.curve is not None:
            found.setdefault(one.curve.name, (one.curve, []))[1].append(one)
    return list(found.values())


def shared_curves(progressions: Iterable[Progression]) -> list[dict[str, Any]]:
    """For JSON: curves that several rows share since their parameters are equal in every bit, and the proofs."""
    return [
        {"curve": curve.name, "rows": [[one.row.name, one.variant] for one in own], "proofs": list(PROOFS)}
        for curve, own in equal_ones(progressions)
        if len(own) > 1
    ]


def describe(progressions: Iterable[Progression]) -> Iterator[str]:
    """What must be known of curves and epochs."""
    for curve, own in equal_ones(progressions):
        names = ", ".join(one.label for one in own)
        plan = curve.plan
        odd = "".join(f", {name} {value}" for name, value in curve.unusual.items())
        also = f" These are equal in every bit ({PROOFS[1]})." if len(own) > 1 else ""
        yield (
            f"Curve {curve.name}, of {names}: {curve.end()}; seed {plan.seed}{odd}, on {curve.made['device']}, "
            f"{curve.made['started'][:10]}.{also}"
        )


def whole(value: float | None) -> Estimate | None:
    """A figure without an interval."""
    return None if value is None else Estimate(value, None, None, 1)
