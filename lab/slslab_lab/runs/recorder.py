"""Write what a run reports to its trace and progress bar."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slslab.errors import HostError
from slslab.run.log import TraceWriter
from slslab_workers.architecture import Progress, RunFailed
from slslab_workers.plan import Plan


@dataclass
class Recorder:
    """Receives records during a run, for the trace and the progress.

    `broken` is called when the trace can't be written any more; the trace then ends with the last written record.
    """

    writer: TraceWriter
    plan: Plan
    progress: Progress
    computed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    broken: Callable[[RunFailed], None] = field(init=False)
    _breaks: bool = False

    def event(self, record: dict[str, Any]) -> None:
        """Write a record of any kind to the trace at once, so that a killed run keeps it."""
        self._write(record)
        if record.get("op") == "compute":
            with self.lock:
                self.computed += 1
            total = self.plan.workers * self.plan.batches * self.plan.epochs
            # After a worker leaves, others may repeat a few minibatches.
            self.progress.report("train", min(self.computed, total), total)

    def driver_event(self, record: dict[str, Any]) -> None:
        """Write a trace event of the driver, which doesn't run in an environment."""
        self._write({"record": "event", **record, "function": "driver", "environment": "driver"})

    def _write(self, record: Mapping[str, Any]) -> None:
        if self._breaks:
            return
        try:
            self.writer.write(record)
        except HostError as error:
            self._breaks = True
            self.broken(RunFailed("TraceBroken", error.message))
