"""The document of a reproduction, which is printed, saved and drawn.

A cell has a published figure and up to three others, each with its basis: recomputed (arithmetic on the paper's own
inputs), measured (on this host), modelled (on a platform's profile)."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from statistics import median
from typing import Any

from slslab.errors import counted
from slslab.predict.profiles.profile import Profile
from slslab.run.bill import Book
from slslab_lab.papers.paper import Row, Table
from slslab_lab.papers.recomputation import Recomputed
from slslab_lab.studies.study import Setup

Axis = tuple[str, str, str]
SCHEMA = 1
# A modelled figure agrees with a published one within this share; a peak of memory within the second share.
AGREES, AGREES_MEMORY = 0.25, 0.15


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % confidence interval; without one if all samples of a population were taken, or only one."""

    value: float
    low: float | None = None
    high: float | None = None
    samples: int = 1

    def mapped(self, change: Callable[[float], float]) -> "Estimate":
        """Return the estimate in another unit."""
        low, high = (None if bound is None else change(bound) for bound in (self.low, self.high))
        return Estimate(change(self.value), low, high, self.samples)


def middle(values: Sequence[float]) -> Estimate:
    """Return the median, with the minimum and maximum of several values."""
    several = len(values) > 1
    return Estimate(median(values), min(values) if several else None, max(values) if several else None, len(values))


@dataclass(frozen=True)
class Cell:
    """One figure of a row: `published` has the printed digits; `tolerance` is the share within which ours agree with
    it, `reason` says why they don't, `missing` why we have none. A `fitted` figure has no verdict, since the model was
    fitted to the published one. A figure that isn't printed is compared with what `follows` from printed figures.

    `agrees` decides where the tolerance doesn't, and `otherwise` is the verdict of figures that don't agree.
    """

    published: Decimal | None = None
    recomputed: tuple[Recomputed, ...] = ()
    measured: Estimate | None = None
    modelled: Estimate | None = None
    tolerance: float = AGREES
    reason: str = ""
    missing: str = ""
    fitted: bool = False
    follows: Decimal | None = None
    agrees: bool | None = None
    otherwise: str = "differs"

    @property
    def difference(self) -> float | None:
        """Return the modelled (or else measured) figure ÷ the published one − 1."""
        ours, published = self.modelled or self.measured, self.published or self.follows
        return ours.value / float(published) - 1 if ours and published else None

    @property
    def verdict(self) -> str:
        """Return whether the figures agree; empty if they can't be compared."""
        if self.fitted or self.difference is None:
            return ""
        agrees = abs(self.difference) <= self.tolerance if self.agrees is None else self.agrees
        return "agrees" if agrees else self.otherwise

    def as_document(self) -> dict[str, Any]:
        """Return the cell for JSON; published and recomputed figures are decimal strings."""
        return {
            "published": None if self.published is None else str(self.published),
            "recomputed": [
                {
                    **{name: getattr(way, name) for name in ("way", "expression", "filled")},
                    "value": None if way.value is None else format(way.value, "f"),
                    **{name: getattr(way, name) for name in ("verdict", "reason")},
                }
                for way in self.recomputed
            ],
            "measured": asdict(self.measured) if self.measured else None,
            "modelled": asdict(self.modelled) if self.modelled else None,
            "difference": self.difference,
            "tolerance": self.tolerance,
            "verdict": self.verdict,
            "reason": (self.reason if self.verdict == "differs" else "") or self.missing,
        }


def cell_of(row: Row, again: Iterable[Recomputed], column: str, **ours: Any) -> Cell:
    """Return the cell of a paper's row with its column's recomputed figures, and our figures."""
    return Cell(row.published.get(column), tuple(way for way in again if way.column == column), **ours)


@dataclass(frozen=True)
class ReproducedRow:
    """One row in one variant; its figures may be ranked within its `group`."""

    name: str
    group: str
    variant: str
    cells: Mapping[str, Cell]
    note: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    def as_document(self) -> dict[str, Any]:
        """Return the row for JSON."""
        texts = {name: getattr(self, name) for name in ("name", "group", "variant", "note")}
        return {**texts, "cells": {name: cell.as_document() for name, cell in self.cells.items()}, **self.more}


def mixed_hosts(hosts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence if measured figures come from several hosts, named in their runs' documents. Runs made on the
    host of their command don't name it."""
    runs = Counter(f"{host['name']}, {host['processors']}" if "name" in host else "" for host in hosts)
    if len(runs) > 1:
        each = ", ".join(
            f"{counted(number, 'run')} on {name or 'a host without a name'}" for name, number in runs.items()
        )
        yield f"The `measured` column mixes {len(runs)} hosts, so its seconds aren't comparable: {each}."


def make_document(
    setup: Setup,
    published: Table,
    columns: Iterable[tuple[str | int, ...]],
    rows: Iterable[ReproducedRow],
    notes: Iterable[str],
    rankings: Iterable[Any] = (),
    bills: Iterable[Any] = (),
    curves: Iterable[Any] = (),
    **own: Any,
) -> dict[str, Any]:
    """Return the document of a study of a published table. A column is a name, a title, a unit and optionally digits.
    `own` are additional entries of this study, profiles and price books among them; they may replace common entries."""
    paper = setup.paper
    return {
        "schema": SCHEMA,
        "reproduces": setup.study.name,
        "fidelity": setup.fidelity,
        "paper": {"name": paper.name, "title": paper.title, "published": paper.published},
        "table": {"title": published.title, "source": published.source, "notes": list(published.notes)},
        **{name: _described(entry) for name, entry in own.items()},
        "columns": [dict(zip(("name", "title", "unit", "digits"), column, strict=False)) for column in columns],
        "rows": [row.as_document() for row in rows],
        "rankings": list(rankings),
        "bills": list(bills),
        "curves": list(curves),
        "notes": list(notes),
    }


def make_curve(
    title: str, variant: str, x: Axis, y: Axis, lines: Iterable[tuple[str, Sequence[Any], Sequence[Any]]]
) -> dict[str, Any]:
    """Return a picture of lines, each a name and its coordinates; an axis is a name, a title and a unit."""
    names = ("name", "title", "unit")
    return {
        "title": title,
        "variant": variant,
        "x": dict(zip(names, x, strict=True)),
        "y": dict(zip(names, y, strict=True)),
        "lines": [{"name": name, "x": list(xs), "y": list(ys)} for name, xs, ys in lines],
    }


def _described(entry: Any) -> Any:
    """Return a platform's or a price book's entry in a document, and any other as it is."""
    if isinstance(entry, Profile):
        return {"name": entry.name, "date": entry.date.isoformat(), "description": entry.description}
    return {"name": entry.name, "date": entry.date.isoformat()} if isinstance(entry, Book) else entry
