"""What a reproduction finds, as the document that is printed, saved and drawn.

A cell has a published figure and up to three beside it, each by its own name: recomputed (arithmetic on the paper's own
inputs), measured (here, on this host), modelled (on a platform's profile)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from slslab.papers import Paper, Table
from slslab.recomputing import Recomputed
from slslab.reproductions.calls import Estimate

SCHEMA = 1
# A modelled figure agrees with a published one up to this share of it, a peak of memory up to that.
AGREES, AGREES_MEMORY = 0.25, 0.15


@dataclass(frozen=True)
class Cell:
    """One figure of a row: `published` with the digits that were printed; `tolerance` is the share of it up to which
    others agree with it, `reason` why they do not, `missing` why there is no figure of ours. Ours is above `least` and
    below `most` even where it has no figure."""

    published: Decimal | None = None
    recomputed: tuple[Recomputed, ...] = ()
    measured: Estimate | None = None
    modelled: Estimate | None = None
    tolerance: float = AGREES
    reason: str = ""
    missing: str = ""
    least: float = -math.inf
    most: float = math.inf

    @property
    def difference(self) -> float | None:
        """What is modelled, or else measured, over what was published, less 1."""
        ours = self.modelled or self.measured
        if ours is None or not self.published:
            return None
        return ours.value / float(self.published) - 1

    @property
    def verdict(self) -> str:
        """Whether the figures agree; empty where there is nothing to compare."""
        if self.difference is None:
            return "differs" if self._is_elsewhere else ""
        return "agrees" if abs(self.difference) <= self.tolerance else "differs"

    @property
    def _is_elsewhere(self) -> bool:
        """Whether no figure that ours may be agrees with what was published."""
        if not self.published:
            return False
        published = float(self.published)
        return self.most < published * (1 - self.tolerance) or self.least > published * (1 + self.tolerance)

    def as_document(self) -> dict[str, Any]:
        """For JSON: published and recomputed as decimal strings."""
        reason = self.reason if self.verdict == "differs" else ""
        return {
            "published": None if self.published is None else str(self.published),
            "recomputed": [
                {
                    "way": one.way,
                    "expression": one.expression,
                    "filled": one.filled,
                    "value": None if one.value is None else format(one.value, "f"),
                    "verdict": one.verdict,
                    "reason": one.reason,
                }
                for one in self.recomputed
            ],
            "measured": self.measured.as_document() if self.measured else None,
            "modelled": self.modelled.as_document() if self.modelled else None,
            "difference": self.difference,
            "tolerance": self.tolerance,
            "verdict": self.verdict,
            "reason": reason or self.missing,
        }


@dataclass(frozen=True)
class ReproducedRow:
    """One row in one variant; `group` is what its figures may be ranked with."""

    name: str
    group: str
    variant: str
    cells: Mapping[str, Cell]
    note: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    def as_document(self) -> dict[str, Any]:
        """For JSON."""
        cells = {name: cell.as_document() for name, cell in self.cells.items()}
        return {
            "name": self.name,
            "group": self.group,
            "variant": self.variant,
            "note": self.note,
            "cells": cells,
            **self.more,
        }


@dataclass(frozen=True)
class Ranking:
    """Rows by a figure, the smallest first, once for each basis (published, recomputed, modelled, ...)."""

    title: str
    unit: str
    orders: Mapping[str, Sequence[tuple[str, float]]]
    reason: str = ""

    @property
    def verdict(self) -> str:
        """Whether every basis has the published order."""
        published = [name for name, _ in self.orders["published"]]
        others = [[name for name, _ in order] for basis, order in self.orders.items() if basis != "published"]
        return "as published" if all(order == published for order in others) else "differs"

    def as_document(self) -> dict[str, Any]:
        """For JSON."""
        orders = {basis: [list(one) for one in order] for basis, order in self.orders.items()}
        return {"title": self.title, "unit": self.unit, **orders, "verdict": self.verdict, "reason": self.reason}


def ranked(figures: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Names with their figures, the smallest first."""
    return tuple(sorted(figures.items(), key=lambda one: (one[1], one[0])))


def head(name: str, fidelity: str, paper: Paper, table: Table) -> dict[str, Any]:
    """What every reproduction's document begins with."""
    return {
        "schema": SCHEMA,
        "reproduces": name,
        "fidelity": fidelity,
        "paper": {"name": paper.name, "title": paper.title, "published": paper.published},
        "table": {"title": table.title, "source": table.source, "notes": list(table.notes)},
    }
