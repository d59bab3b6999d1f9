"""Write what a run reports to its trace and its progress."""

import threading
from dataclasses import dataclass, field
from typing import Any

from slslab.trace.log import TraceWriter
from slslab.trace.records import InstanceRecord, InvocationRecord
from slslab_workers.architecture import Progress
from slslab_workers.plan import Plan


@dataclass
class Recorder:
    """Receives what happens while a run goes on, for the trace and the progress, and keeps the invocations."""

    writer: TraceWriter
    plan: Plan
    progress: Progress
    records: list[InvocationRecord] = field(default_factory=list)
    computed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def event(self, record: dict[str, Any]) -> None:
        """Write a trace record at once, so that a killed run keeps it."""
        self.writer.write(record)
        if record.get("op") == "compute":
            with self.lock:
                self.computed += 1
            total = self.plan.workers * self.plan.batches * self.plan.epochs
            # Where workers leave, the others may take a few minibatches twice.
            self.progress.report("train", min(self.computed, total), total)

    def driver_event(self, record: dict[str, Any]) -> None:
        """Write a trace event of the driver, which runs in no environment."""
        self.writer.write({"record": "event", **record, "function": "driver", "environment": "driver"})

    def invocation(self, record: InvocationRecord) -> None:
        """Keep and write a metered invocation."""
        self.records.append(record)
        self.writer.write({"record": "invocation", **record.as_document()})

    def instance(self, record: InstanceRecord) -> None:
        """Write a metered instance."""
        self.writer.write({"record": "instance", **record.as_document()})
