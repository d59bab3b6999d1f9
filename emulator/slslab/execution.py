"""Executes a plan: stack and emulator up, the architecture's driver, then the run's document from its trace.

Data flows one way: plan → invocations and events → trace → bill and metrics → document.
"""

import json
import os
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points, version
from typing import Any, Protocol

from slslab.billing import Usage, compute_bill, load_book
from slslab.emulator import CREDENTIALS, Emulator, memory_budget_mb
from slslab.environments.confinement import Hierarchy
from slslab.errors import HostError, RequestError
from slslab.functions import ACCOUNT, REGION
from slslab.metering import InvocationRecord, cpu_share
from slslab.metrics import Metrics, measure
from slslab.runs import RunDirectory, finished_documents
from slslab.stack.embedded import EmbeddedObjectStore
from slslab.trace import TraceWriter, compact, load
from slslab_workers.architecture import Architecture, Cloud, Outcome, RunFailed
from slslab_workers.plan import Plan

SCHEMA = 1
DEFAULT_BOOK = "aws-us-east-1"


class Progress(Protocol):
    """Hears how far a run is; stages: load, upload, deploy, train, evaluate."""

    def report(self, stage: str, done: int, total: int) -> None: ...


def architectures() -> dict[str, Architecture]:
    """Every registered architecture by name, built in or installed by somebody else."""
    found = entry_points(group="slslab.architectures")
    return {entry.name: entry.load() for entry in sorted(found, key=lambda entry: entry.name)}


def admit(plan: Plan, architecture: Architecture) -> None:
    """Refuse a plan that cannot be resident on this host, with the arithmetic (HostError)."""
    budget_mb = memory_budget_mb()
    for phase in architecture.resident_set(plan):
        needed = phase.environments * plan.memory_mb
        if needed > budget_mb:
            fits = budget_mb // plan.memory_mb
            raise HostError(
                f"{phase.name} needs {phase.environments} environments at once: {phase.environments} × "
                f"{plan.memory_mb:,} MB = {needed:,} MB, and this host has {budget_mb:,} MB for functions.",
                f"--workers {fits} fits, or a smaller --memory." if fits else "choose a smaller --memory.",
            )


@dataclass
class _Recorder:
    """Collects what the emulator tells while a run goes on, and passes it to the trace and the progress."""

    writer: TraceWriter
    plan: Plan
    progress: Progress
    records: list[InvocationRecord] = field(default_factory=list)
    updates: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def event(self, record: dict[str, Any]) -> None:
        """A trace record: written at once, so that a killed run keeps it."""
        self.writer.write(record)
        if record.get("op") == "update":
            with self.lock:
                self.updates += 1
            total = self.plan.workers * self.plan.batches * self.plan.epochs
            self.progress.report("train", self.updates, total)

    def invocation(self, record: InvocationRecord) -> None:
        """A metered invocation."""
        self.records.append(record)
        self.writer.write({"record": "invocation", **record.as_document()})


def execute(
    plan: Plan, architecture: Architecture, directory: RunDirectory, progress: Progress, book: str = DEFAULT_BOOK
) -> dict[str, Any]:
    """Run the plan to its end and return the run's document (status `done` or `failed`)."""
    admit(plan, architecture)
    directory.write_plan(plan.to_document())
    started = time.monotonic()
    outcome: Outcome | None = None
    error: dict[str, Any] | None = None
    with TraceWriter(directory.trace_log, plan.run) as writer:
        recorder = _Recorder(writer, plan, progress)
        with _stack_and_emulator(directory, recorder) as running:
            try:
                outcome = architecture.drive(plan, running.cloud(), progress)
            except RunFailed as failure:
                error = _failure_document(failure, plan, recorder.records)
            except KeyboardInterrupt:
                error = {
                    "type": "Interrupted",
                    "message": "The run was interrupted.",
                    "hint": "its trace up to then is kept",
                }
            stack, hierarchy = running.versions, running.emulator.hierarchy
    compact(directory.path)
    return _finish(plan, directory, outcome, error, stack, hierarchy, time.monotonic() - started, book)
