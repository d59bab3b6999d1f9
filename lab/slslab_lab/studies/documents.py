"""What a reproduction finds, as the document that is printed, saved and drawn.

A cell has a published figure and up to three others, each with its basis: recomputed (arithmetic on the paper's own
inputs), measured (here, on this host), modelled (on a platform's profile)."""

import json
import math
import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from slslab.errors import RequestError, counted
from slslab.toml_files import check_schema, validate
from slslab_lab.papers.paper import Paper, Table
from slslab_lab.papers.recomputation import Recomputed
from slslab_lab.studies.minibatches import Estimate

Entries = TypeVar("Entries", bound=BaseModel)
SCHEMA = 1
# A modelled figure agrees with a published one up to this share of it, a peak of memory up to the other.
AGREES, AGREES_MEMORY = 0.25, 0.15


@dataclass(frozen=True)
class Cell:
    """One figure of a row: `published` with the digits that were printed; `tolerance` is the share of it up to which
    others agree with it, `reason` why they do not, `missing` why there is no figure of ours. `least` and `most` bound
    ours even if it has no figure. A `fitted` figure has no verdict: the model was fitted to the published one."""

    published: Decimal | None = None
    recomputed: tuple[Recomputed, ...] = ()
    measured: Estimate | None = None
    modelled: Estimate | None = None
    tolerance: float = AGREES
    reason: str = ""
    missing: str = ""
    least: float = -math.inf
    most: float = math.inf
    fitted: bool = False

    @property
    def difference(self) -> float | None:
        """Return what is modelled, or else measured, over what was published, less 1."""
        ours = self.modelled or self.measured
        if ours is None or not self.published:
            return None
        return ours.value / float(self.published) - 1

    @property
    def verdict(self) -> str:
        """Return whether the figures agree; empty where there is nothing to compare."""
        if self.fitted:
            return ""
        if self.difference is None:
            return "differs" if self._is_elsewhere else ""
        return "agrees" if abs(self.difference) <= self.tolerance else "differs"

    @property
    def _is_elsewhere(self) -> bool:
        """Return whether the bounds of our figure exclude that it agrees with the published one."""
        if not self.published:
            return False
        published = float(self.published)
        return self.most < published * (1 - self.tolerance) or self.least > published * (1 + self.tolerance)

    def as_document(self) -> dict[str, Any]:
        """Return the cell for JSON: published and recomputed as decimal strings."""
        reason = self.reason if self.verdict == "differs" else ""
        return {
            "published": None if self.published is None else str(self.published),
            "recomputed": [
                {
                    "way": way.way,
                    "expression": way.expression,
                    "filled": way.filled,
                    "value": None if way.value is None else format(way.value, "f"),
                    "verdict": way.verdict,
                    "reason": way.reason,
                }
                for way in self.recomputed
            ],
            "measured": asdict(self.measured) if self.measured else None,
            "modelled": asdict(self.modelled) if self.modelled else None,
            "difference": self.difference,
            "tolerance": self.tolerance,
            "verdict": self.verdict,
            "reason": reason or self.missing,
        }


@dataclass(frozen=True)
class ReproducedRow:
    """One row in one variant; its figures may be ranked with those of its `group`."""

    name: str
    group: str
    variant: str
    cells: Mapping[str, Cell]
    note: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    def as_document(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return {
            "name": self.name,
            "group": self.group,
            "variant": self.variant,
            "note": self.note,
            "cells": {name: cell.as_document() for name, cell in self.cells.items()},
            **self.more,
        }


def read_entries(
    path: Path, entries: type[Entries], schema: int, what: str, error: type[RequestError], hint: str
) -> Entries:
    """Return a JSON file's validated entries; `error` if it cannot be read, or for the first entry that is wrong."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as trouble:
        raise error(f"The {what} {path} cannot be read: {trouble.strerror}.", hint) from trouble
    except ValueError as trouble:
        raise error(f"The {what} {path} is not JSON: {trouble}.", hint) from trouble
    if not isinstance(document, dict):
        raise error(f"The {what} {path} has no entries.", hint)
    check_schema(document, schema, path, what, error)
    return validate(entries, document, path, what, error)


def host() -> dict[str, str | int]:
    """Return what figures depend on of this host."""
    return {
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def mixed_hosts(hosts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the sentence that measured figures are of several hosts, if they are, by the hosts of their runs'
    documents; runs that were made where their command was do not name theirs."""
    runs = Counter(f"{host['name']}, {host['processors']}" if "name" in host else "" for host in hosts)
    if len(runs) > 1:
        each = ", ".join(
            f"{counted(number, 'run')} on {name or 'a host without a name'}" for name, number in runs.items()
        )
        yield f"The `measured` column mixes {len(runs)} hosts, whose seconds are not comparable: {each}."


def head(name: str, fidelity: str, paper: Paper, table: Table) -> dict[str, Any]:
    """Return what every reproduction's document begins with."""
    return {
        "schema": SCHEMA,
        "reproduces": name,
        "fidelity": fidelity,
        "paper": {"name": paper.name, "title": paper.title, "published": paper.published},
        "table": {"title": table.title, "source": table.source, "notes": list(table.notes)},
    }
