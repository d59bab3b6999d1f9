"""The document of a running run: a finished run's figures, as far as the trace log has them.

Everything still running counts as if it ended now: an invocation with its Lambda time up to the latest sample of its
environment's clock, an instance or a host with its wall time.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from slslab.aws.limits import MB, billed_ms, cpu_share
from slslab.errors import counted
from slslab.report import formats
from slslab.report.formats import percent
from slslab.run import metrics
from slslab.run.bill import Book, load_book
from slslab.run.document import not_modelled
from slslab.run.events import host_until
from slslab.run.log import Begun, metered, unmetered
from slslab.run.records import billed_seconds
from slslab.run.run import PLANNED, UNKNOWN, Run
from slslab.run.table import tabulate
from slslab_workers.architecture import read_plan

# The pace of a run is known after this share of it.
PACE = 0.02
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Now:
    """An instant: wall time, and nanoseconds of the trace's clock."""

    time: datetime
    monotonic_ns: int


def describe(run: str, plan: Mapping[str, Any], records: Sequence[Record], book: Book, now: Now) -> Run:
    """Return the run as it is now, with its document so far, from the records of its trace log; before its trace has
    begun, only with its plan."""
    so_far: dict[str, Any] = {
        "run": run,
        "status": "running",
        "lambda": not_modelled("The run hasn't finished; it is modelled at its end."),
        "progress": progress(plan, records, now),
    }
    if not records or not plan:
        planned = {name: plan[name] for name in PLANNED if name in plan}
        return Run(document={**so_far, **planned, "plan": dict(plan)}, events=[])
    # By environment, in order of its clock.
    samples = metrics.grouped((each["environment"], each) for each in records if each["record"] == "clock")
    begun = unmetered(records)
    open_ = [_invocation(each, samples[each["environment"]], now) for each in begun["invocation"].values()]
    found = Run(
        plan=read_plan(dict(plan)),
        events=tabulate(records),
        invocations=[*metered(records, "invocation"), *open_],
        instances=[*metered(records, "instance"), *(_instance(each, now) for each in begun["instance"].values())],
        running_hosts=[host_until(each, now.monotonic_ns) for each in begun["host"].values()],
    )
    # Other books than its own have no prices of a platform's containers.
    prices = load_book(found.plan.prices) if found.plan.platform else book
    started = datetime.fromisoformat(records[0]["started"])
    document = found.describe(UNKNOWN, None, None, (now.time - started).total_seconds(), prices)
    document |= {**so_far, "loss": losses(records), "now": present(records, begun, samples, now)}
    document["seconds"]["span"] = round(metrics.span_seconds(found.events, [*found.instances, *open_]), 3)
    document["cost"]["notes"].insert(0, _so_far(begun))
    return found.replace(document=document)


def present(
    records: Iterable[Record], begun: Begun, samples: Mapping[str, Sequence[Record]], now: Now
) -> dict[str, Any]:
    """Return the current activity: running invocations with their memory, and each worker's latest event."""
    events = (
        record
        for record in records
        if record["record"] == "event" and record["worker"] >= 0 and record["op"] not in metrics.BESIDE
    )
    latest = {event["worker"]: event for event in sorted(events, key=itemgetter("end_ns"))}
    owners = {event["invocation"]: worker for worker, event in latest.items()}
    return {
        "invocations": [
            {
                "worker": owners.get(id_, -1),
                "function": invocation["function"],
                "memory_mb": invocation["memory_mb"],
                "peak_memory_mb": _peak_mb(invocation, samples[invocation["environment"]]),
                "seconds": _seconds_since(invocation["start_ns"], now),
            }
            for id_, invocation in begun["invocation"].items()
        ],
        "workers": [
            {
                "worker": worker,
                "under_way": any(event["invocation"] in begun[kind] for kind in ("invocation", "instance")),
                **{name: event[name] for name in ("epoch", "step", "op", "phase")},
                "seconds_ago": _seconds_since(event["end_ns"], now),
            }
            for worker, event in sorted(latest.items())
        ],
    }


def progress(plan: Mapping[str, Any], records: Sequence[Record], now: Now) -> str:
    """Return how far a run is, and the remaining time at the pace of its minibatches so far."""
    epochs, batches, workers = (int(plan.get(name) or 1) for name in ("epochs", "batches", "workers"))
    begun = [str(each["of"]) for each in records if each["record"] == "begin" and each["of"] != "host"]
    events = [
        each for each in records if each["record"] == "event" and 0 <= each["worker"] < workers and each["step"] >= 0
    ]
    if not events:
        started = f"; {counted(len(begun), begun[-1])} begun" if begun else ""
        return f"Getting ready: data is uploaded, and environments start cold{started}."
    reached = metrics.grouped((each["worker"], each["epoch"] * batches + each["step"]) for each in events)
    latest = [max(0, *steps) for steps in reached.values()]
    # Workers without events yet are at the beginning.
    share = min(1.0, sum(latest) / (workers * epochs * batches))
    most = "at most " if plan.get("until_accuracy") or plan.get("early_stopping") else ""
    sentence = f"Epoch {min(epochs, max(latest) // batches + 1)} of {most}{epochs}, {percent(share)} done"
    if share < PACE:
        return f"{sentence}."
    left = _seconds_since(min(each["start_ns"] for each in events), now) * (1 - share) / share
    return f"{sentence}; {most}{formats.seconds(left)} left at this pace."


def losses(records: Iterable[Record]) -> list[float]:
    """Return the mean training loss of each epoch, over the minibatches computed so far."""
    known: dict[int, dict[tuple[int, int], float]] = defaultdict(dict)
    for record in records:
        if record["record"] == "event" and "loss" in record and record["epoch"] >= 0:
            # Count a repeated minibatch once.
            known[record["epoch"]][record["worker"], record["step"]] = record["loss"]
    means: list[float] = []
    while (epoch := len(means)) in known:
        means.append(statistics.fmean(known[epoch].values()))
    return means


def _own(begun: Record, samples: Sequence[Record]) -> list[Record]:
    return [sample for sample in samples if sample["wall_ns"] >= begun["start_ns"]]


def _peak_mb(begun: Record, samples: Sequence[Record]) -> int:
    return math.ceil(max((sample.get("peak_bytes", 0) for sample in _own(begun, samples)), default=0) / MB)


def _invocation(begun: Record, samples: Sequence[Record], now: Now) -> Record:
    """Return the metered record of an invocation as if it ended with the latest sample of its environment's clock."""
    taken = _own(begun, samples)
    wall = delay = 0
    if taken:
        wall = taken[-1]["wall_ns"] - taken[0]["wall_ns"]
        delay = taken[-1]["host_delay_ns"] - taken[0]["host_delay_ns"]
    duration_ms = round((wall - delay) / 1e6, 2)
    started = now.time.timestamp() - _seconds_since(begun["start_ns"], now)
    return {
        "request_id": begun["id"],
        **{name: begun[name] for name in ("function", "environment", "memory_mb", "architecture", "ephemeral_mb")},
        "cpu_share": cpu_share(begun["memory_mb"]),
        "cold_start": begun["init_ms"] is not None,
        "init_ms": begun["init_ms"],
        "duration_ms": duration_ms,
        "billed_ms": billed_ms(duration_ms, begun["init_ms"]),
        "max_memory_mb": _peak_mb(begun, samples),
        "host_delay_ms": round(delay / 1e6, 3),
        "status": "running",
        "error_type": None,
        "started_at": datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds"),
        "start_ns": begun["start_ns"],
        "end_ns": max(now.monotonic_ns, begun["start_ns"]),
    }


def _instance(begun: Record, now: Now) -> Record:
    """Return the metered record of an instance as if it ended now; its memory is known at its end."""
    end_ns = max(now.monotonic_ns, begun["start_ns"])
    return {
        **{name: begun[name] for name in ("id", "type", "worker", "device", "start_ns")},
        "end_ns": end_ns,
        "billed_seconds": billed_seconds(end_ns - begun["start_ns"]),
        "peak_memory_mb": 0,
        "host_delay_ms": 0.0,
        "status": "running",
    }


def _so_far(begun: Begun) -> str:
    several = [counted(len(records), kind) for kind, records in begun.items() if records]
    running = f": what is running ({', '.join(several)}) counts as if it ended now" if several else ""
    return f"the price of this host's seconds is the one so far{running}"


def _seconds_since(instant_ns: int, now: Now) -> float:
    return max(0, now.monotonic_ns - instant_ns) / 1e9
