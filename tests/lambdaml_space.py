"""LambdaML's design space in this project: every combination of its axes ran, was refused, or is predicted.

`python -m tests.lambdaml_space` makes the runs that results/lambdaml-space.json does not have (2 workers, small data,
real servers) and keeps the others; it takes minutes, and may be interrupted. docs/lambdaml-space.md is built from it.

A combination that a plan's requirements rule out is refused before anything starts. If this host lacks the server, the
closed form predicts the combination's messages and bytes.
"""

import itertools
import json
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.commands import forked_environments

from slslab.errors import HostError
from slslab.run.bill import DEFAULT_BOOK
from slslab.run.log import replacing
from slslab_lab.runs.execution import run_plan
from slslab_lab.runs.planning import architectures, make_plan
from slslab_workers.architecture import Architecture
from slslab_workers.models import spec
from slslab_workers.plan import Plan, PlanError

DATA = Path(__file__).parents[1] / "results" / "lambdaml-space.json"
SCHEMA = 1
ARCHITECTURES = ("allreduce", "scatterreduce")
AXES = ("algorithm", "synchronisation", "channel")
# Each model with the data set that it is trained with.
MODELS = {"lr": "breast-cancer", "svm": "breast-cancer", "kmeans": "breast-cancer", "lenet": "digits"}
RUN = {"workers": 2, "batch_size": 16, "batches": 2, "epochs": 2, "evaluation": False}

Cell = dict[str, Any]


def combinations() -> Iterator[Cell]:
    """Yield every combination of the axes, with the values of the architectures' options."""
    known = architectures()
    for name in ARCHITECTURES:
        choices = {option.name: option.choices or () for option in known[name].options}
        for model, *values in itertools.product(MODELS, *(choices[axis] for axis in AXES)):
            yield {"pattern": name, "model": model, **dict(zip(AXES, values, strict=True))}


def plan_of(cell: Mapping[str, Any]) -> Plan:
    """Return a combination's plan; PlanError, with the reason, for one that is refused."""
    architecture = architectures()[cell["pattern"]]
    plan = make_plan(architecture, _values(cell), {axis: cell[axis] for axis in AXES})
    architecture.requirements(plan)
    return plan


def fill(cell: Cell, directory: Path) -> Cell:
    """Return the combination with what became of it."""
    architecture = architectures()[cell["pattern"]]
    try:
        plan = plan_of(cell)
    except PlanError as error:
        return {**cell, "status": "refused", "reason": error.message}
    foretold = _foretold(architecture, plan)
    try:
        found: Mapping[str, Any] = run_plan(
            cell["pattern"],
            _values(cell),
            {axis: cell[axis] for axis in AXES},
            out=directory,
            book=DEFAULT_BOOK,
            progress=Silent(),
        )
    except HostError as error:
        return {**cell, "status": "foretold", "reason": error.message, **foretold}
    if found["status"] != "done":
        raise SystemExit(f"{cell}: {found['status']}, {found['error']}")
    measured = {"counts": found["counts"], "bytes": found["bytes"]}
    return {
        **cell,
        "status": "done",
        **measured,
        "as_predicted": measured == foretold,
        "replicas_equal": found["replicas_equal"],
        "parameters_sha256": found["parameters_sha256"],
        "server": found["stack"]["s3" if cell["channel"] == "s3" else "channel"],
    }


class Silent:
    """Progress without a reader."""

    def report(self, stage: str, done: int, total: int) -> None:
        """Ignore it."""


def _values(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {**RUN, "model": cell["model"], "dataset": MODELS[cell["model"]]}


def _foretold(architecture: Architecture, plan: Plan) -> dict[str, Any]:
    parameters = spec(plan.model).parameters
    assert parameters is not None
    counts = architecture.counts(plan.workers, plan.batches, plan.epochs, parameters, plan.options)
    return {
        "counts": dict(sorted(counts.operations.items())),
        "bytes": {"in": counts.bytes_in, "out": counts.bytes_out},
    }


def main() -> None:
    """Fill what is missing, and write the file after each run."""
    cells = {_key(cell): cell for cell in (json.loads(DATA.read_text())["cells"] if DATA.exists() else ())}
    everything = list(combinations())
    with tempfile.TemporaryDirectory() as scratch, forked_environments():
        for number, cell in enumerate(everything):
            if cells.get(_key(cell), {}).get("status") != "done":
                cells[_key(cell)] = fill(cell, Path(scratch) / str(number))
                print(f"{number + 1} of {len(everything)}: {' '.join(_key(cell))}: {cells[_key(cell)]['status']}")
                _write([cells[key] for key in map(_key, everything) if key in cells])


def _key(cell: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(cell[axis] for axis in ("pattern", "model", *AXES))


def _write(cells: list[Cell]) -> None:
    lines = ",\n".join(f"    {json.dumps(cell)}" for cell in cells)
    top = json.dumps({"schema": SCHEMA, "command": "python -m tests.lambdaml_space", "run": RUN, "models": MODELS})
    date = json.dumps(datetime.now(UTC).date().isoformat())
    with replacing(DATA) as file:
        file.write(f'{top[:-1]},\n  "date": {date},\n  "cells": [\n{lines}\n  ]\n}}\n'.encode())


if __name__ == "__main__":
    main()
