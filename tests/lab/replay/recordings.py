"""A run directory with a trace that was made by hand: two workers, two epochs of one minibatch, no wait at all.

Worker 0 computes 100 ms and puts 1 MB, worker 1 computes 200 ms and gets it. Measured, an init took 50 ms of CPU time
and 60 ms, a request 5 ms.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from slslab.run import metrics
from slslab.run.directory import DOCUMENT, PLAN
from slslab.run.document import check_document
from slslab.run.log import LOG, TraceWriter, load, metered_records
from slslab_workers.architecture import architectures
from slslab_workers.plan import Plan

# Runs that were recorded for these tests, a folder each.
TRACES = Path(__file__).parent / "traces"
MS = 1_000_000
PEAK_MB = 300
GRADIENT_BYTES = 1_000_000


DECIDED = ("run", "architecture", "model", "dataset", "workers", "batch_size", "batches", "epochs", "memory_mb")
RECORDED = Path(__file__).parent / "traces" / "allreduce" / "run.json"


# What a step of each worker computes, ms.
COMPUTED = (100, 200)


def make_plan(architecture: str = "allreduce", name: str = "abcd") -> Plan:
    """The plan of the run; of an architecture that is not installed it has no options."""
    installed = architectures().get(architecture)
    return Plan(
        run=f"20261121-000000-{architecture}-lenet-{name}",
        architecture=architecture,
        model="lenet",
        dataset="digits",
        batch_size=8,
        batches=1,
        memory_mb=1769,
        workers=2,
        epochs=2,
        options={} if installed is None else installed.complete({}),
    )


def write_log(
    directory: Path,
    architecture: str = "allreduce",
    others: Sequence[tuple[str, str]] = (),
    computed: tuple[int, int] = COMPUTED,
    name: str = "abcd",
) -> Plan:
    """Write what the run leaves in this directory when its command is killed."""
    directory.mkdir(parents=True)
    plan = make_plan(architecture, name)
    (directory / PLAN).write_text(tomli_w.dumps(plan.to_document()))
    with TraceWriter(directory / LOG, plan.run) as writer:
        for worker in range(2):
            for record in _worker(worker, others, computed[worker]):
                writer.write(record)
    return plan


def write_run(
    directory: Path,
    architecture: str = "allreduce",
    others: Sequence[tuple[str, str]] = (),
    computed: tuple[int, int] = COMPUTED,
    name: str = "abcd",
) -> Path:
    """Write the run into this directory; each worker also does these others, op and phase, in no time at its end.

    Other recordings of its plan have other names, and compute for other milliseconds."""
    plan = write_log(directory, architecture, others, computed, name)
    events, records = load(directory).events, metered_records(directory)
    totals, recorded = metrics.totals(events, records), json.loads(RECORDED.read_text())
    host = {**recorded["host"], **totals.pop("host")}
    document = {
        **recorded,
        **{name: getattr(plan, name) for name in recorded if name in DECIDED},
        "plan": plan.to_document(),
        "parameters": GRADIENT_BYTES // 4,
        "gradient_bytes": GRADIENT_BYTES,
        "host": host,
        **totals,
    }
    (directory / DOCUMENT).write_text(json.dumps(check_document(document)))
    return directory


def _event(worker: int, op: str, phase: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    base = {
        "record": "event", "op": op, "phase": phase, "start_ns": start * MS, "end_ns": end * MS, "cpu_ns": 0,
        "cpu_before_ns": 0, "bytes": 0, "requests": 0, "resource": "", "etag": None, "overhead": False,
        "failed": False, "worker": worker, "epoch": -1, "step": -1, "invocation": f"i{worker}", "function": "train",
        "environment": f"e{worker}",
    }  # fmt: skip
    return base | more


def _worker(worker: int, others: Sequence[tuple[str, str]], computed: int) -> list[dict[str, Any]]:
    place: dict[str, int] = {}
    began, now = 1060, 1060
    inside = {"invocation": f"i{worker}", "environment": f"e{worker}"}
    records = [_event(-1, "environment.start", "init", 1000, began, cpu_ns=50 * MS) | inside]
    for epoch in range(2):
        place = {"epoch": epoch, "step": 0}
        records.append(_event(worker, "compute", "compute", now, now + computed, cpu_ns=computed * MS, **place))
        now += computed
        moved = {"bytes": GRADIENT_BYTES, "requests": 1, "resource": f"bucket/{epoch}", "etag": "tag"}
        op = ("object.put", "object.get")[worker]
        records.append(_event(worker, op, "synchronise", now, now + 5, **moved, **place))
        now += 5
    for op, phase in others:
        requests = int("." in op)
        records.append(_event(worker, op, phase, now, now, requests=requests, resource="bucket/other", **place))
    records.append(_event(-1, "invoke", "other", 1000, now) | inside)
    records.append(
        {
            "record": "invocation", "request_id": f"i{worker}", "function": "train", "environment": f"e{worker}",
            "memory_mb": 1769, "cpu_share": 1.0, "architecture": "x86_64", "ephemeral_mb": 512, "cold_start": True,
            "init_ms": 60.0, "duration_ms": float(now - began), "billed_ms": now - 1000, "max_memory_mb": PEAK_MB,
            "cpu_ms": 50.0 + 2 * computed, "host_delay_ms": 0.0, "status": "success", "error_type": None,
            "started_at": "2026-11-21T00:00:00.000+00:00", "start_ns": began * MS, "end_ns": now * MS,
        }
    )  # fmt: skip
    return records
