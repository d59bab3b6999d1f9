"""A run that grows by a test: two functions of 1,024 MB with records that are appended one by one.

With `half` of it, one invocation has ended after 2,000 ms and 40 ms of init, and the other is under way: its clock has
counted 1,500 ms after 60.5 ms of init. By hand, of the book aws-us-east-1:

  billed 2,040 + 1,561 = 3,601 ms of 1,024 MB: 3.601 GB-seconds × 0.0000166667   0.0000600167867
  2 requests × 0.0000002                                                         0.0000004
  3 puts × 0.000005                                                              0.000015
                                                                                 0.0000754167867
"""

from pathlib import Path
from typing import Any

from tests.emulator.run.test_log import clock, event
from tests.lab.replay.recordings import make_plan

from slslab.run.directory import RunDirectory
from slslab.run.log import TraceWriter

MS = 1_000_000
MB = 1 << 20
TOTAL = "0.0000754167867"
PLAN = make_plan()
FUNCTION = f"slslab-{PLAN.run}"


def begin(worker: int, start_ms: int, init_ms: float | None) -> dict[str, Any]:
    """The record of an invocation that has begun."""
    return {
        "record": "begin", "of": "invocation", "id": f"i{worker}", "function": FUNCTION, "environment": f"e{worker}",
        "memory_mb": 1024, "architecture": "x86_64", "ephemeral_mb": 512, "init_ms": init_ms,
        "start_ns": start_ms * MS,
    }  # fmt: skip


def metered(worker: int, start_ms: int, duration_ms: float, init_ms: float) -> dict[str, Any]:
    """The record of an invocation that has ended."""
    return {
        "record": "invocation", "request_id": f"i{worker}", "function": FUNCTION, "environment": f"e{worker}",
        "memory_mb": 1024, "cpu_share": 0.58, "architecture": "x86_64", "ephemeral_mb": 512, "cold_start": True,
        "init_ms": init_ms, "duration_ms": duration_ms, "billed_ms": int(duration_ms + init_ms), "max_memory_mb": 200,
        "cpu_ms": 1.0, "init_cpu_ms": 1.0, "host_delay_ms": 0.0, "status": "success", "error_type": None,
        "started_at": "2026-11-21T00:00:00.000+00:00", "start_ns": start_ms * MS,
        "end_ns": round(start_ms + duration_ms) * MS,
    }  # fmt: skip


def sample(worker: int, wall_ms: int, delay_ms: int, peak_mb: int) -> dict[str, Any]:
    """A sample of an environment's clock."""
    return clock(wall_ms * MS, delay_ms * MS, f"e{worker}") | {"peak_bytes": peak_mb * MB}


def did(worker: int, op: str, start_ms: int, end_ms: int, **more: Any) -> dict[str, Any]:
    """An event of a worker."""
    own = {"worker": worker, "invocation": f"i{worker}", "environment": f"e{worker}", "function": FUNCTION}
    return event(op, start_ms * MS, end_ms * MS, **own, requests=int("." in op), **more)


def half() -> list[dict[str, Any]]:
    """What the trace holds when one invocation has ended and the other has not."""
    return [
        begin(0, 1000, 40.0),
        sample(0, 1000, 0, 150),
        did(0, "compute", 1100, 1300, loss=2.0),
        did(0, "object.put", 1300, 1400),
        did(0, "compute", 2100, 2300, step=1, loss=1.0),
        did(0, "object.put", 2300, 2400, step=1),
        metered(0, 1000, 2000.0, 40.0),
        # Samples of the init phase are not the invocation's.
        sample(1, 900, 100, 400),
        begin(1, 1000, 60.5),
        sample(1, 1001, 300, 100),
        did(1, "compute", 1100, 1300, loss=3.0),
        did(1, "object.put", 1300, 1400),
        sample(1, 3001, 800, 950),
        # A second attempt at the same minibatch.
        did(1, "compute", 2500, 2600, loss=4.0),
    ]


class Growing:
    """The run's directory, locked like a running run's."""

    def __init__(self, folder: Path) -> None:
        self.directory = RunDirectory.create(folder / PLAN.run)
        self._lock = self.directory.lock()
        self.directory.write_plan(PLAN.to_document())
        self.writer = TraceWriter(self.directory.trace_log, PLAN.run)

    def append(self, *records: dict[str, Any]) -> None:
        """Append records to the trace log."""
        for record in records:
            self.writer.write(record)

    def end(self) -> None:
        """Let go of it, as a command does at its end."""
        self.writer.__exit__(None, None, None)
        self.directory.unlock(self._lock)
