"""A measured run with everything that replay derives from it: its program, and the costs of its steps."""

from dataclasses import replace
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from slslab.errors import RequestError
from slslab.predict.processor import Processor
from slslab.predict.profiles.profile import Profile
from slslab.run import metrics
from slslab.run.run import Run
from slslab_lab.replay.fitting import fit
from slslab_lab.replay.kernel.program import Program
from slslab_lab.replay.memory import Shortage, shortages
from slslab_lab.replay.programs.recorded import make_program, read_program
from slslab_lab.replay.programs.recording import processor_of, read_recording
from slslab_lab.replay.programs.step_costs import StepCosts, measure
from slslab_lab.replay.programs.stragglers import recorded_stragglers
from slslab_workers.architecture import Architecture, architectures, workload_of


class Measured(Run):
    """A finished run with its program and its architecture."""

    PARTS: ClassVar[tuple[str, ...]] = (*Run.PARTS, "program", "architecture")
    document: dict[str, Any]
    program: Program
    architecture: Architecture

    @cached_property
    def processor(self) -> Processor | None:
        """The processor that recorded it, None if it wasn't measured."""
        return processor_of(self)

    @cached_property
    def costs(self) -> StepCosts:
        """The costs of its steps, for programs of other sizes; RequestError if they can't be found."""
        program = read_program(self) if recorded_stragglers(self.plan) else self.program
        return measure([program], self.architecture, workload_of(self.plan, int(self.document["parameters"])))

    def warnings(self, workers: int | None) -> tuple[str, ...]:
        """Return which of its caches and databases may have too little memory for a number of workers, or its own."""
        short = self.shortages(workers or self.plan.workers)
        return tuple(f"{each.message} To change that, {each.hint}" for each in short)

    def shortages(self, workers: int) -> list[Shortage]:
        """Return its caches and databases that may have too little memory for a number of workers."""
        return list(shortages(self.architecture, replace(self.plan, workers=workers), self.parameters))

    def hosts(self, workers: int) -> tuple[str, ...]:
        """Return the instance types of its databases and queue for a number of workers; each peer has its own."""
        kinds = [kind for kind, _ in metrics.hosts(self.events)]
        recorded, needed = (
            self.architecture.requirements(replace(self.plan, workers=number)).tensor_databases
            for number in (self.plan.workers, workers)
        )
        # The databases' hosts come first in the trace.
        return (*kinds[:1] * (needed if recorded else 0), *kinds[recorded:])

    @property
    def waiting_share(self) -> float:
        """The share of its phases spent waiting: in pauses between polls, and for messages."""
        phases = self.document["phases"]
        total = sum(phases.values())
        return float(phases["wait"] / total) if total else 0.0

    def driver_requests(self, workers: int, epochs: int) -> dict[str, int]:
        """Return the driver's own requests to the object store, by op, for a number of workers and epochs.

        Nearly all belong to a minibatch or a worker, so they grow with both. Exact for the recorded numbers.
        """
        factor = workers * epochs / (self.program.workers * self.program.epochs)
        return {op: round(n * factor) for op, n in metrics.driver_requests(self.events).items()}

    def host_profile(self) -> Profile:
        """Return the profile of the recording host, fitted to all epochs."""
        records = (*self.invocations, *self.instances)
        on = datetime.fromisoformat(records[0]["started_at"]).date() if records else date.min
        return fit([self], self.plan.epochs, on)


def read_measured(directory: Path) -> Measured:
    """Read a run from its directory.

    RunError if it isn't finished, or if its trace is incomplete or contradicts itself; RequestError if its architecture
    isn't installed.
    """
    run = read_recording(directory)
    architecture = find_architecture(run.plan.architecture)
    return Measured(run.directory, **run.parts(), program=make_program(run), architecture=architecture)


def find_architecture(name: str) -> Architecture:
    """Return a registered architecture; RequestError for an unknown one."""
    known = architectures()
    if name not in known:
        raise RequestError(
            f"The architecture {name!r} is not installed.", f"install it; installed are {', '.join(known)}."
        )
    return known[name]
