"""A run as it was measured, with all that replay needs of it: its recording, its program and what it was billed for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from slslab import metrics
from slslab.billing import Usage
from slslab.errors import RequestError
from slslab.instances import seconds_used
from slslab.replay.fitting import fit
from slslab.replay.profiles import Profile
from slslab.replay.program import Program
from slslab.replay.recorded import make_program
from slslab.replay.recording import Recording, read_recording
from slslab.replay.scaling import StepCosts, measure
from slslab.runs import RunDirectory
from slslab_workers.architecture import Architecture
from slslab_workers.plan import Plan


@dataclass(frozen=True)
class Measured:
    """A run that is done; `document` is what `slslab show --json` prints, `room` its architecture."""

    recording: Recording
    document: Mapping[str, Any]
    program: Program
    room: Architecture

    @property
    def plan(self) -> Plan:
        """What was run."""
        return self.recording.plan

    @property
    def arch(self) -> str:
        """The processor architecture of its functions, x86_64 or arm64."""
        records = self.recording.invocations
        return str(records[0]["architecture"]) if records else "x86_64"

    @cached_property
    def peak_memory_mb(self) -> int:
        """The most memory that a training function used, those of the plan's size; 0 for a run on instances."""
        records = self.recording.invocations
        return max((r["max_memory_mb"] for r in records if r["memory_mb"] == self.plan.memory_mb), default=0)

    @cached_property
    def costs(self) -> StepCosts:
        """What its steps cost, of which programs of other sizes are made; RequestError if they cannot be."""
        return measure([self.program], self.room, int(self.document["parameters"]), self.plan.options)

    def hosts(self, workers: int) -> tuple[str, ...]:
        """The instance types of its databases and queue, had there been so many workers: peers have one each."""
        kinds = [kind for kind, _ in metrics.hosts(self.recording.events)]
        recorded, wanted = (
            self.room.requirements(replace(self.plan, workers=number)).tensor_databases
            for number in (self.plan.workers, workers)
        )
        # The trace has those of databases first.
        return (*kinds[:1] * (wanted if recorded else 0), *kinds[recorded:])

    @property
    def span_s(self) -> float:
        """Seconds on the wall clock from the first acceptance to the last end."""
        return metrics.span_seconds(self.recording.events, self.recording.instances)

    @property
    def waiting_share(self) -> float:
        """The share of its phases that is waiting: pauses between polls, and waits for messages."""
        phases = self.document["phases"]
        total = sum(phases.values())
        return float(phases["wait"] / total) if total else 0.0

    def driver_requests(self, workers: int, epochs: int) -> dict[str, int]:
        """By op, the driver's own requests to the object store, had there been so many workers and epochs.

        Nearly all are a minibatch's or a worker's, so that they grow with both; exact as recorded."""
        grown = workers * epochs / (self.program.workers * self.program.epochs)
        found = metrics.driver_requests(self.recording.events)
        return {op: round(number * grown) for op, number in found.items()}

    def usage(self) -> Usage:
        """What it was billed for."""
        events, launched = self.recording.events, self.recording.instances
        hosts = (*metrics.hosts(events), *((one["type"], seconds_used(one)) for one in launched))
        requests = metrics.object_requests(events)
        return Usage(self.recording.invocations, requests, metrics.transitions(events), hosts=hosts)

    def host_profile(self) -> Profile:
        """The profile of the host that recorded it, fitted to all its epochs."""
        records = (*self.recording.invocations, *self.recording.instances)
        on = datetime.fromisoformat(records[0]["started_at"]).date() if records else date.min
        return fit([self.recording], self.plan.epochs, on)


def read_measured(directory: Path, rooms: Mapping[str, Architecture]) -> Measured:
    """A run out of its directory.

    RunError if it is not done, or its trace is incomplete or contradicts itself; RequestError if its architecture is
    none of the rooms."""
    recording = read_recording(directory)
    document = RunDirectory(directory).document()
    assert document is not None, "a recording has one"
    name = recording.plan.architecture
    if name not in rooms:
        raise RequestError(f"The architecture {name!r} is not installed.", f"install it; there are {', '.join(rooms)}.")
    return Measured(recording, document, make_program(recording), rooms[name])
