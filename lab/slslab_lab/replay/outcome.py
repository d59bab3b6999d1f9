"""The totals of a timeline: durations, billed time, requests, and the usage that a book prices.

Every figure depends on the timeline's profile, so it is modelled; counts, rounding and prices are exact.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slslab.aws.limits import billed_ms
from slslab.predict.environment import NS
from slslab.run.bill import Usage
from slslab.run.containers import container_usage
from slslab.run.document import ModelledWorker
from slslab.run.metrics import Records, gb_seconds, summed
from slslab.run.records import billed_seconds, seconds_used
from slslab_lab.replay.gpus import lives
from slslab_lab.replay.kernel.kernel import TRANSITION
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_workers.trace.operations import BILLED, billed_requests

MS = 1_000_000


@dataclass(frozen=True)
class Totals:
    """The totals of a timeline.

    `makespan_ns` lasts from the first acceptance to the last end. `gb_seconds` (1 GB = 1,024 MB) are the functions'.
    `invocations` and `instances` are records with what bills and limits read from metered ones, their `worker`, and the
    number of their `track` in the program. `usage` is what the timeline's own tracks use, including polls that found
    nothing; on a platform that bills containers, invocations cost nothing themselves.

    `workers` have the seconds of their invocations and instances; executions aren't billed by time, so they are left
    out. `seconds` are waiting + transfer + compute: `waiting` is time blocked by other workers, including polls and
    their pauses; `transfer` is requests to stores, databases and queues, including waiting for their servers. `init`,
    a cold start's billed part or an instance's boot, isn't part of them.
    """

    makespan_ns: int
    billed_seconds: float
    gb_seconds: Decimal
    cold_starts: int
    workers: Sequence[ModelledWorker]
    invocations: Records
    instances: Records
    usage: Usage

    @property
    def seconds(self) -> float:
        """The makespan."""
        return self.makespan_ns / NS

    @property
    def waiting_seconds(self) -> float:
        """The seconds that all workers together waited."""
        return sum(worker["parts"]["waiting"] for worker in self.workers)

    @property
    def waiting_share(self) -> float:
        """The share of the billed time in which workers waited for others; 0 if no time is billed."""
        return self.waiting_seconds / self.billed_seconds if self.billed_seconds else 0.0

    def as_usage(self, hosts: Sequence[str] = (), driver: Mapping[str, int] | None = None) -> Usage:
        """Return the usage for a book. `hosts` are the instance types of the databases and queue; each runs for the
        makespan, rounded up to milliseconds. `driver` counts the driver's own requests to the object store by op, since
        timelines don't contain them."""
        span = Decimal(-(-self.makespan_ns // MS)) / 1000
        objects = Counter(self.usage.object_requests)
        objects.update(driver or {})
        return replace(self.usage, object_requests=objects, service_hosts=tuple((host, span) for host in hosts))


def outcome(timeline: Timeline, architecture: str = "x86_64") -> Totals:
    """Add up a timeline; all its functions run on one processor architecture."""
    invocations, instances = tuple(_invocations(timeline, architecture)), tuple(_instances(timeline))
    accepted = min((call.accepted for call in timeline.calls), default=0)
    spent = _spend(timeline)
    billed_containers, running, idle = container_usage(timeline.profile.containers, lives(timeline))
    return Totals(
        makespan_ns=timeline.end_ns - accepted,
        billed_seconds=(billed_containers or sum(record["billed_ms"] for record in invocations) / 1000)
        + sum(instance["billed_seconds"] for instance in instances),
        gb_seconds=gb_seconds(invocations),
        cold_starts=sum(record["init_ms"] is not None for record in invocations),
        workers=tuple(_workers(spent, invocations, instances, timeline)),
        invocations=invocations,
        instances=instances,
        usage=Usage(
            () if running else invocations,
            summed((op, billed_requests(op, number, size)) for op, number, size in _requests(timeline) if op in BILLED),
            sum(max(1, step.requests) for step in timeline.steps if step.op == TRANSITION),
            hosts=tuple((instance["type"], seconds_used(instance)) for instance in instances),
            containers=running,
            idle=idle,
        ),
    )


def waits(timeline: Timeline) -> NDArray[np.int64]:
    """Return how long (ns) each entry's track waited.

    In a step of several requests, the earlier requests are made during the wait. Each takes as long as the last, and
    their time doesn't count as waiting.
    """
    begin, start, end = (np.array(column, np.int64) for column in (timeline.begin, timeline.start, timeline.end))
    waited: NDArray[np.int64] = start - begin
    several = np.array([step.requests > 1 and "." in step.op for step in timeline.steps], bool)
    # A list that found everything at once is a separate request, and waited for no gate.
    several &= np.array(timeline.opened, np.int64) >= 0
    meanwhile = (end - start) * (np.array([step.requests for step in timeline.steps], np.int64) - 1)
    return np.where(several, np.maximum(0, waited - meanwhile), waited)


def _spend(timeline: Timeline) -> NDArray[np.float64]:
    """Return the ns of each track in three rows, waiting, transfer, compute: whole numbers below 2⁵³, so exact."""
    track = np.array(timeline.track, np.int64)
    waited = waits(timeline)
    busy = np.array(timeline.end, np.int64) - np.array(timeline.begin, np.int64) - waited
    moving = np.array(["." in step.op for step in timeline.steps], bool)
    parts = (waited, np.where(moving, busy, 0), np.where(moving, 0, busy))
    return np.array([np.bincount(track, part, minlength=len(timeline.calls)) for part in parts])


def _workers(
    spent: NDArray[np.float64], invocations: Records, instances: Records, timeline: Timeline
) -> Iterator[ModelledWorker]:
    calls = timeline.calls
    parts = [(each["worker"], each["track"], calls[each["track"]].init_ns, each["billed_ms"]) for each in invocations]
    for each in instances:
        boot_ns = calls[each["track"]].began - each["start_ns"]
        parts.append((each["worker"], each["track"], boot_ns, each["billed_seconds"] * 1000))
    for worker, of_worker in groupby(sorted(parts), key=itemgetter(0)):
        _, tracks, init_ns, billed = zip(*of_worker, strict=True)
        columns = spent[:, tracks]
        waiting, transfer, compute = (float(part) / NS for part in columns.sum(axis=1))
        yield {
            "worker": worker,
            "seconds": float(columns.sum()) / NS,
            "billed_seconds": sum(billed) / 1000,
            "parts": {"init": sum(init_ns) / NS, "compute": compute, "transfer": transfer, "waiting": waiting},
        }


def _invocations(timeline: Timeline, architecture: str) -> Iterator[dict[str, Any]]:
    for number, (track, call) in enumerate(zip(timeline.program.tracks, timeline.calls, strict=True)):
        if track.kind == "invocation":
            duration_ms = round((call.ended - call.began) / MS, 2)
            init_ms = round(call.init_ns / MS, 2) if call.cold else None
            yield {
                "track": number,
                "worker": track.worker,
                "function": track.name,
                "memory_mb": track.memory_mb,
                "ephemeral_mb": track.ephemeral_mb,
                "architecture": architecture,
                "init_ms": init_ms,
                "duration_ms": duration_ms,
                "billed_ms": billed_ms(duration_ms, init_ms),
            }


def _instances(timeline: Timeline) -> Iterator[dict[str, Any]]:
    for number, (track, call) in enumerate(zip(timeline.program.tracks, timeline.calls, strict=True)):
        if track.kind == "instance":
            yield {
                "track": number,
                "worker": track.worker,
                "type": track.name,
                "start_ns": call.accepted,
                "end_ns": call.ended,
                "billed_seconds": billed_seconds(call.ended - call.accepted),
            }


def _requests(timeline: Timeline) -> Iterator[tuple[str, int, int]]:
    for step, polls in zip(timeline.steps, timeline.polls, strict=True):
        if "." in step.op:
            yield step.op, step.requests, step.bytes
        if polls:
            yield step.polls, polls, 0
