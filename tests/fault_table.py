"""How runs end after a fault: each kind, in each phase of each architecture, in a real run.

`make fault-table` makes the runs that results/faults.json does not have and keeps the others; it may be interrupted.
`python -m tests.fault_table kill timeout` makes the runs of some faults. docs/reliability.md is built from it. There
are few workers and small data, but real servers and limits. The fault happens to worker 0, the worst one to lose: in
AllReduce it adds up, and gloo's peers connect through it.

A fault can't happen in a phase without the request or message that it needs. A run shows a defect, and stops the
command, if it does not end within BOUND_S, fails without naming the fault, or does not pass `slslab check`.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import tomli_w
from tests.commands import assert_holds, forked_environments
from tests.lambdaml_space import Silent

from slslab.errors import RequestError
from slslab.run.bill import DEFAULT_BOOK
from slslab.run.directory import RunDirectory
from slslab.run.log import load, replacing
from slslab.run.run import read_run
from slslab_lab.runs.execution import run_plan
from slslab_workers.faults.plan import CUT, DEATHS, LOSSES, OBJECTS, PHASES
from slslab_workers.plan import PlanError

DATA = Path(__file__).parents[1] / "results" / "faults.json"
SCHEMA = 1
WORKER, TIMEOUT_S = 0, 20
RUN = {
    "model": "lr", "dataset": "breast-cancer", "workers": 3, "epochs": 2, "batches": 2, "batch_size": 64,
    "evaluation": False, "timeout": TIMEOUT_S
}  # fmt: skip
# By system, an architecture with what is not its default: options, and other values of the plan. Environments are
# forks, whose memory is in part that of another process.
SYSTEMS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "allreduce": ({}, {}),
    "scatterreduce": ({}, {}),
    "mlless": ({"filter": "none", "store": "tensordb"}, {}),
    "spirt": ({"light-memory": 700, "barrier-timeout": 8.0}, {}),
    "kubeml": ({"k": 1}, {}),
    "gradssharding": ({}, {}),
    "gpu": ({}, {}),
    "gloo": ({}, {}),
    "allreduce/memcached": ({"channel": "memcached"}, {}),
    "allreduce/redis": ({"channel": "redis"}, {}),
    "allreduce/dynamodb": ({"channel": "dynamodb"}, {}),
    "allreduce/parameter-server": ({"channel": "parameter-server"}, {}),
    "allreduce/kmeans": ({"algorithm": "em"}, {"model": "kmeans"}),
    "gradssharding/lambda-fl": ({"topology": "lambda-fl"}, {}),
    "gradssharding/lifl": ({"topology": "lifl"}, {}),
}
# What differs from its architecture only in how it exchanges meets faults there alone.
EXCHANGE = ("synchronise",)
# Runs without faults of each architecture: their least and most say how much figures of one run are worth.
REPEATED = 3
# Whether a worker has to wait is a matter of time.
ATTEMPTS = 3
# A function may wait for its time-out, and others for it until their own; the rest is for a busy host.
BOUND_S = 2 * TIMEOUT_S + 60
# In which phase a fault happens: any, or each in turn.
ANY = ""
# By name: the entry of a fault plan without its place.
FAULTS: Mapping[str, dict[str, Any]] = {
    **{kind: {"kind": kind} for kind in (*DEATHS, *LOSSES)},
    "straggler": {"kind": "straggler", "factor": 3.0},
    "slow-store": {"kind": "slow-store", "seconds": 0.2},
    "slow-down": {"kind": "slow-down", "count": 1},
    "slow-down for good": {"kind": "slow-down", "count": 1000},
    "unreachable": {"kind": "unreachable", "count": 1},
    "unreachable for good": {"kind": "unreachable", "count": 1000},
    "message-lost": {"kind": "message-lost"},
    "message-duplicated": {"kind": "message-duplicated"},
    "throttle": {"kind": "throttle", "count": 1},
    "throttle for good": {"kind": "throttle", "count": 1000},
}
# What happens everywhere or nowhere in particular.
WITHOUT_PHASE = ("straggler", "throttle")
Cell = dict[str, Any]
Key = tuple[str, str, str]


class Defect(Exception):
    """A run with a fault did what no run may do."""


class Table:
    """The cells that there are, by fault, system and phase, and the runs without faults."""

    def __init__(self) -> None:
        found = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
        self.cells: dict[Key, Cell] = {_key(cell): cell for cell in found.get("cells", ())}
        self.without: dict[str, Cell] = {cell["system"]: cell for cell in found.get("without", ())}
        self.seconds: float = found.get("seconds", 0.0)
        self.began = time.monotonic()

    def write(self) -> None:
        """Write all, in the order of the axes."""
        now = time.monotonic()
        self.seconds, self.began = self.seconds + now - self.began, now
        top = {
            "schema": SCHEMA,
            "command": "make fault-table",
            "date": datetime.now(UTC).date().isoformat(),
            "seconds": round(self.seconds),
            "run": RUN,
            "systems": SYSTEMS,
            "worker": WORKER,
            "bound_seconds": BOUND_S,
        }
        lines = [json.dumps(top)[:-1] + ', "without": [']
        lines.append(
            ",\n".join(json.dumps(self.without[name]) for name in SYSTEMS if name in self.without) + '], "cells": ['
        )
        order = [*keys()]
        lines.append(",\n".join(json.dumps(self.cells[key]) for key in order if key in self.cells) + "]}")
        with replacing(DATA) as file:
            file.write(("\n".join(lines) + "\n").encode())


def keys() -> Iterator[Key]:
    """Yield every fault with every system and phase."""
    for fault in FAULTS:
        for system in SYSTEMS:
            phases = EXCHANGE if "/" in system else PHASES
            for phase in (ANY,) if FAULTS[fault]["kind"] in WITHOUT_PHASE else phases:
                yield fault, system, phase


def make_without(system: str, scratch: Path) -> Cell:
    """Run a system without faults, and return what it learns, costs, and does in each phase."""
    documents: list[Mapping[str, Any]] = []
    events: Any = ()
    for number in range(REPEATED):
        document, events = _run(system, None, scratch / f"{system}-{number}".replace("/", "-"))
        if document["status"] != "done":
            raise Defect(f"{system} without faults: {document['error']}")
        documents.append(document)
    fingerprints = {document["parameters_sha256"] for document in documents}
    if len(fingerprints) != 1:
        raise Defect(f"{system} does not learn the same twice.")
    own = [event for event in events if event["worker"] == WORKER and event["epoch"] >= 0]
    return {
        "system": system,
        "parameters_sha256": fingerprints.pop(),
        "billed_seconds": [document["billed_seconds"] for document in documents],
        "usd": [float(document["cost"]["total"]) for document in documents],
        "seconds": [document["seconds"]["measured"] for document in documents],
        # In each phase the operations of its worker: by the first epoch in which it has any.
        "phases": {
            phase: {"epoch": max({e["epoch"] for e in within}), "operations": sorted({e["op"] for e in within})}
            for phase in PHASES
            if (within := [event for event in own if event["phase"] == phase])
        },
    }


def fill(key: Key, without: Cell, scratch: Path) -> Cell:
    """Return what becomes of the fault; without a run where it cannot be."""
    name, system, phase = key
    cell: Cell = {"fault": name, "system": system, "phase": phase}
    fault = _placed(name, phase, without)
    if isinstance(fault, str):
        return {**cell, "status": "not applicable", "reason": fault}
    for attempt in range(ATTEMPTS):
        try:
            place = scratch / "-".join((*key, str(attempt))).replace(" ", "-").replace("/", "-")
            document, _ = _run(system, fault, place)
        except (RequestError, PlanError) as error:
            return {**cell, "status": "not applicable", "reason": error.message}
        [happened] = document["faults"]
        if happened["times"]:
            break
    else:
        return {**cell, "status": "not applicable", "reason": f"in {ATTEMPTS} runs it never came to it"}
    cell |= {
        "place": {each: happened[each] for each in ("worker", "epoch", "step", "phase")},
        "times": happened["times"],
        "seconds": round(document["seconds"]["measured"], 2),
        "billed_seconds": round(document["billed_seconds"] - median(without["billed_seconds"]), 3),
        "usd": float(f"{float(document['cost']['total']) - median(without['usd']):.3g}"),
    }
    if document["status"] == "done":
        equal = document["parameters_sha256"] == without["parameters_sha256"]
        return {**cell, "status": "survived", "equal": equal, "deaths": len(document["details"].get("deaths", ()))}
    failure = document["error"]
    if document["status"] != "failed" or fault["kind"] not in failure["hint"]:
        raise Defect(f"{key} ended without saying what did it: {failure}")
    return {**cell, "status": "failed", **{each: failure[each] for each in ("type", "worker", "epoch", "step")}}


def _placed(name: str, phase: str, without: Cell) -> dict[str, Any] | str:
    """Return the entry of a fault plan, or why there can be none in this phase."""
    fault = {**FAULTS[name]}
    kind = fault["kind"]
    if kind == "throttle":
        return {**fault, "worker": WORKER}
    if phase == ANY:
        return {**fault, "worker": WORKER}
    if phase not in without["phases"]:
        return "no worker has such a phase"
    within = without["phases"][phase]
    operations: Sequence[str] = within["operations"]
    place = {"worker": WORKER, "epoch": within["epoch"], "phase": phase}
    wanted = {"slow-down": OBJECTS, "unreachable": CUT, "slow-store": CUT}.get(kind, ())
    wanted = ("queue.publish",) if kind.startswith("message") else wanted
    found = [operation for operation in operations if operation in wanted]
    if wanted and not found:
        return "no worker makes such a request in this phase"
    # What it takes in is worse to lose than what it gives.
    chosen = min(found, key=lambda operation: (not operation.endswith("get"), operation)) if wanted else None
    return {**fault, **place, **({"op": chosen} if kind in ("slow-down", "unreachable") else {})}


def _run(system: str, fault: Mapping[str, Any] | None, directory: Path) -> tuple[Mapping[str, Any], Any]:
    """Make a run, and have it checked; return its document and events."""
    options, more = SYSTEMS[system]
    values = {**RUN, **more}
    if fault is not None:
        path = directory.with_suffix(".toml")
        path.write_text(tomli_w.dumps({"seed": 0, "fault": [fault]}), encoding="utf-8")
        values["faults"] = path
    began = time.monotonic()
    document = run_plan(system.partition("/")[0], values, options, out=directory, book=DEFAULT_BOOK, progress=Silent())
    if time.monotonic() - began > BOUND_S:
        raise Defect(f"{system} took {time.monotonic() - began:.0f} s to end with {fault}.")
    assert_holds(read_run(RunDirectory(directory)))
    return document, load(directory).events


def main(faults: Sequence[str]) -> int:
    """Fill what is missing of these faults, or of all, and write the file after each run."""
    if unknown := sorted(set(faults) - FAULTS.keys()):
        print(f"There is no fault {unknown[0]!r}. Hint: choose of {', '.join(FAULTS)}.", file=sys.stderr)
        return 2
    table, everything = Table(), [key for key in keys() if not faults or key[0] in faults]
    with tempfile.TemporaryDirectory() as scratch, forked_environments():
        for name in SYSTEMS:
            if name not in table.without:
                table.without[name] = make_without(name, Path(scratch))
                table.write()
        for number, key in enumerate(everything, 1):
            if key in table.cells:
                continue
            try:
                table.cells[key] = fill(key, table.without[key[1]], Path(scratch))
            except (Defect, AssertionError) as defect:
                print(f"{' '.join(key)}: {defect}", file=sys.stderr)
                return 1
            table.write()
            print(f"{number} of {len(everything)}: {' '.join(key)}: {table.cells[key]['status']}", flush=True)
    return 0


def _key(cell: Mapping[str, Any]) -> Key:
    return cell["fault"], cell["system"], cell["phase"]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("Interrupted: the same command makes the other runs.", file=sys.stderr)
        sys.exit(130)
