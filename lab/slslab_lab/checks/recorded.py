"""A run as the checks see it: its plan, its trace, what was metered, and the documents that it left."""

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from slslab.errors import RequestError
from slslab.run.directory import BILL, RunDirectory
from slslab.run.log import instances, invocations, load
from slslab.run.metrics import Records, Rows, grouped
from slslab.run.reading import reading
from slslab_workers.architecture import read_plan
from slslab_workers.faults.plan import LOSSES
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training.models import spec

# Faults that leave peers without what they wait for.
TAKEN = (*LOSSES, "message-lost")
Place = tuple[int, int]


@dataclass(frozen=True)
class Recorded:
    """A run. Without a document its command was killed, or it is no run of a command.

    A run that is not `complete` failed, was interrupted, or lost the end of its trace: what is missing in it is no
    violation.
    """

    plan: Plan
    events: Rows
    invocations: Records = ()
    instances: Records = ()
    document: Mapping[str, Any] | None = None
    bill: Mapping[str, Any] | None = None
    complete: bool = True
    id: str = ""

    @cached_property
    def parameters(self) -> int | None:
        """How many parameters the model has; None if that is known neither to the document nor without building it."""
        if self.document is not None and self.document["parameters"] is not None:
            return int(self.document["parameters"])
        try:
            return spec(self.plan.model).parameters
        except PlanError:  # an architecture of another package may have models of its own
            return None

    @property
    def gradient_bytes(self) -> int | None:
        """The bytes of all parameters in float32, if their number is known."""
        return None if self.parameters is None else 4 * self.parameters

    @cached_property
    def failing(self) -> int | None:
        """The first epoch in which a peer failed or was left out, or a fault plan took its database or its message
        away; None if all went well."""
        details = {} if self.document is None else self.document["details"]
        without = (*details.get("deaths", ()), *details.get("late", ()))
        lost = (e["epoch"] for e in self.events if e["op"] == "fault" and e["resource"].split()[1] in TAKEN)
        return min((*(int(one["epoch"]) for one in without), *lost), default=None)

    @cached_property
    def computed(self) -> dict[tuple[int, int, int], list[int]]:
        """Numbers of the events that computed a minibatch, by worker, epoch and step."""
        return self._numbers("compute")

    @cached_property
    def puts(self) -> dict[tuple[int, int, int], list[int]]:
        """Numbers of the events of the training protocol that put an object, by worker, epoch and step."""
        return self._numbers("object.put", overhead=False)

    def _numbers(self, op: str, *, overhead: bool = True) -> dict[tuple[int, int, int], list[int]]:
        chosen = (e for e in self.events if e["op"] == op and e["step"] >= 0 and e["overhead"] is overhead)
        return grouped(((e["worker"], e["epoch"], e["step"]), e["event"]) for e in chosen)

    @cached_property
    def updated(self) -> dict[tuple[int, int, int, str], list[int]]:
        """Numbers of the events that updated a model, by worker, epoch, step and phase."""
        updates = (e for e in self.events if e["op"] == "update")
        return grouped(((e["worker"], e["epoch"], e["step"], e["phase"]), e["event"]) for e in updates)

    def entered(self, worker: int, after: Place) -> int | None:
        """Return the event with which a worker begins the step that follows one."""
        places, first = self._steps.get(worker, ([], []))
        index = bisect_right(places, after)
        return first[index] if index < len(places) else None

    @cached_property
    def _steps(self) -> dict[int, tuple[list[Place], list[int]]]:
        """The steps of each worker, with the first event of each."""
        found: dict[int, dict[Place, int]] = {}
        for event in self.events:
            if event["step"] >= 0:
                found.setdefault(event["worker"], {}).setdefault((event["epoch"], event["step"]), event["event"])
        return {worker: (sorted(first), [first[place] for place in sorted(first)]) for worker, first in found.items()}


def read_recorded(directory: RunDirectory) -> Recorded:
    """Read a run that has ended; RequestError for one that goes on, and for what `slslab up` records."""
    if directory.service() is not None:
        raise RequestError(
            f"{directory.path} is what `slslab up` recorded, and follows no plan.", "name a run: `slslab runs`."
        )
    document = directory.document()
    if document is None and directory.status() == "running":
        raise RequestError(f"The run {directory.id} is still going on.", "wait for its end.")
    if document is not None:
        directory.verify(document)
    # A run that is finished has its plan twice; the document's is the one that was carried out.
    plan = read_plan(directory.plan() if document is None else document["plan"])
    trace = load(directory.path)
    return Recorded(
        plan,
        trace.events,
        invocations(directory.path),
        instances(directory.path),
        document,
        _read_bill(directory.path / BILL),
        complete=document is not None and document["status"] == "done" and not trace.torn,
        id=directory.id,
    )


def _read_bill(path: Path) -> Mapping[str, Any] | None:
    """Return the bill that the run left; recordings of a repository may have none."""
    if not path.exists():
        return None
    with reading(path, "a bill"):
        return dict(json.loads(path.read_text()))
