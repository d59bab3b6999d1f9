"""A run as it was measured, with all that replay needs: its recording, its program and its billed usage."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from slslab.errors import RequestError
from slslab.predict.profiles.profile import Profile
from slslab.run import metrics
from slslab.run.bill import Usage
from slslab.run.directory import RunDirectory
from slslab.run.records import seconds_used
from slslab_lab.replay.fitting import fit
from slslab_lab.replay.kernel.program import Program
from slslab_lab.replay.programs.recorded import make_program
from slslab_lab.replay.programs.recording import Recording, read_recording
from slslab_lab.replay.programs.scaling import StepCosts, measure, workload_of
from slslab_workers.architecture import Architecture
from slslab_workers.plan import Plan


@dataclass(frozen=True)
class Measured:
    """A completed run, read from its directory; `document` is what `slslab show --json` prints, `architecture` its
    architecture."""

    recording: Recording
    document: Mapping[str, Any]
    program: Program
    architecture: Architecture
    directory: RunDirectory

    @property
    def plan(self) -> Plan:
        """The run's plan."""
        return self.recording.plan

    @cached_property
    def costs(self) -> StepCosts:
        """The costs of its steps, of which programs of other sizes are made; RequestError if they cannot be."""
        return measure([self.program], self.architecture, workload_of(self.plan, int(self.document["parameters"])))

    def hosts(self, workers: int) -> tuple[str, ...]:
        """Return the instance types of its databases and queue for so many workers: peers have one each."""
        kinds = [kind for kind, _ in metrics.hosts(self.recording.events)]
        recorded, needed = (
            self.architecture.requirements(replace(self.plan, workers=number)).tensor_databases
            for number in (self.plan.workers, workers)
        )
        # The databases' hosts come first in the trace.
        return (*kinds[:1] * (needed if recorded else 0), *kinds[recorded:])

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
        """Return the driver's own requests to the object store, by op, for so many workers and epochs.

        Nearly all are a minibatch's or a worker's, so they grow with both; exact as recorded.
        """
        factor = workers * epochs / (self.program.workers * self.program.epochs)
        return {op: round(n * factor) for op, n in metrics.driver_requests(self.recording.events).items()}

    def usage(self) -> Usage:
        """Return the usage that it was billed for."""
        events, launched = self.recording.events, self.recording.instances
        return Usage(
            self.recording.invocations,
            metrics.object_requests(events),
            metrics.transitions(events),
            hosts=tuple((instance["type"], seconds_used(instance)) for instance in launched),
            service_hosts=tuple(metrics.hosts(events)),
        )

    def host_profile(self) -> Profile:
        """Return the profile of the host that recorded it, fitted to all its epochs."""
        records = (*self.recording.invocations, *self.recording.instances)
        on = datetime.fromisoformat(records[0]["started_at"]).date() if records else date.min
        return fit([self.recording], self.plan.epochs, on)


def read_measured(directory: Path, architectures: Mapping[str, Architecture]) -> Measured:
    """Read a run from its directory.

    RunError if it is not done, or its trace is incomplete or contradicts itself; RequestError if its architecture is
    not among `architectures`.
    """
    recording, run = read_recording(directory), RunDirectory(directory)
    document = run.document()
    assert document is not None, "a recording has one"
    name = recording.plan.architecture
    if name not in architectures:
        raise RequestError(
            f"The architecture {name!r} is not installed.", f"install it; there are {', '.join(architectures)}."
        )
    return Measured(recording, document, make_program(recording), architectures[name], run)
