"""What a run's trace and metered invocations add up to; nothing here talks to a running system."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from statistics import median
from typing import Any

import pyarrow as pa

PHASES = ("init", "fetch", "compute", "synchronise", "update", "wait", "other")
PROTOCOL = (
    "object.put",
    "object.get",
    "object.list",
    "object.delete",
    "tensor.set",
    "tensor.get",
    "tensor.delete",
    "tensor.script",
    "queue.publish",
    "queue.deliver",
    "transition",
)
TO_STORES = ("object.put", "tensor.set")
# A script's bytes are what it replies.
FROM_STORES = ("object.get", "object.list", "tensor.get", "tensor.script")
# What happens beside a worker on its behalf: a transition spans the invocation that it waits for, and a script runs in
# the database while the worker waits for its reply.
BESIDE = ("transition", "tensor.script.run")
OVERSUBSCRIBED = 0.02
Records = Sequence[Mapping[str, Any]]
Rows = list[dict[str, Any]]


def rows(events: pa.Table) -> Rows:
    """The events as dictionaries."""
    found: Rows = events.to_pylist()
    return found


def protocol(events: Rows) -> dict[str, Any]:
    """Counts and bytes of the training protocol, and of everything beside it, under the same keys."""
    parts: dict[bool, tuple[Counter[str], Counter[str]]] = {flag: (Counter(), Counter()) for flag in (False, True)}
    for event in events:
        if event["op"] in PROTOCOL:
            counts, moved = parts[event["overhead"]]
            counts[event["op"]] += event["requests"]
            _move(moved, event)

    def document(flag: bool) -> dict[str, Any]:
        counts, moved = parts[flag]
        return {"counts": dict(sorted(counts.items())), "bytes": {"in": moved["in"], "out": moved["out"]}}

    return {**document(False), "overheads": document(True)}


def _move(moved: Counter[str], event: Mapping[str, Any]) -> None:
    if event["op"] in TO_STORES:
        moved["in"] += event["bytes"]
    elif event["op"] in FROM_STORES:
        moved["out"] += event["bytes"]


def object_requests(events: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Every request to the object store by operation, failed ones and polls included: what S3 bills."""
    requests: Counter[str] = Counter()
    for event in events:
        if event["op"].startswith("object."):
            requests[event["op"]] += event["requests"]
    return dict(sorted(requests.items()))


def driver_requests(events: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Those requests to the object store that the driver made: they are in the bill, and belong to no worker."""
    return object_requests(event for event in events if event["worker"] < 0)


def workers(events: Rows, records: Records, instances: Records = ()) -> list[dict[str, Any]]:
    """Per worker: seconds of each phase on the Lambda clock, bytes, billed seconds, invocations and peak memory.

    An instance has no Lambda clock: its phases are wall time, and add up to the time from its launch to its end. The
    phases of a worker add up to its invocations' init and duration. `other` is therefore what no event names: the
    runtime between events, and what was going on when an invocation was killed. The host delay of an event is read
    between two samples of the clock, so that `other` may be some ms below zero; that is not hidden. Events whose
    invocation was never metered (the command was killed) count as they are, without init and `other`. An invocation
    whose worker is not known (it ended before its first event) is of worker -1.
    """
    owner = {e["invocation"]: e["worker"] for e in events if e["worker"] >= 0}
    owner |= {instance["id"]: instance["worker"] for instance in instances}
    invoked = Counter(owner.get(record["request_id"], -1) for record in records)
    seconds: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    moved: dict[int, Counter[str]] = defaultdict(Counter)
    named: dict[str, float] = defaultdict(float)
    for event in events:
        if event["worker"] >= 0 and event["op"] not in BESIDE:
            lambda_s = (event["end_ns"] - event["start_ns"] - event["host_delay_ns"]) / 1e9
            phase = event["phase"] if event["phase"] in PHASES else "other"
            seconds[event["worker"]][phase] += lambda_s
            named[event["invocation"]] += lambda_s
            _move(moved[event["worker"]], event)
    by_worker: dict[int, list[Mapping[str, Any]]] = {worker: [] for worker in seconds}
    for record in (*records, *map(_as_invocation, instances)):
        worker = owner.get(record["request_id"], -1)
        by_worker.setdefault(worker, []).append(record)
        seconds[worker]["init"] += (record["init_ms"] or 0.0) / 1000
        # Retries of an asynchronous invocation share its request id, and what is named is named once.
        seconds[worker]["other"] += record["duration_ms"] / 1000 - named.pop(record["request_id"], 0.0)
    return [
        {
            "worker": worker,
            "phases": {phase: round(seconds[worker][phase], 6) for phase in PHASES},
            "bytes": {"in": moved[worker]["in"], "out": moved[worker]["out"]},
            "billed_seconds": sum(record["billed_ms"] for record in own) / 1000,
            "invocations": invoked[worker],
            "peak_memory_mb": max((record["max_memory_mb"] for record in own), default=0),
            "host_delay_seconds": sum(record["host_delay_ms"] for record in own) / 1000,
        }
        for worker, own in sorted(by_worker.items())
    ]


def _as_invocation(instance: Mapping[str, Any]) -> dict[str, Any]:
    """An instance's record in the words of an invocation's, as far as they are added up."""
    return {
        "request_id": instance["id"],
        "init_ms": None,
        "duration_ms": (instance["end_ns"] - instance["start_ns"]) / 1e6,
        "billed_ms": instance["billed_seconds"] * 1000,
        "max_memory_mb": instance["peak_memory_mb"],
        **{name: instance[name] for name in ("host_delay_ms", "start_ns", "end_ns")},
    }


def totals(events: Rows, records: Records, instances: Records = ()) -> dict[str, Any]:
    """The figures of a run's document that its trace, its invocations and its instances decide."""
    per_worker = workers(events, records, instances)
    ran = (*records, *map(_as_invocation, instances))
    delay_ms = sum(record["host_delay_ms"] for record in ran)
    wall_ms = sum((record["end_ns"] - record["start_ns"]) / 1e6 + (record["init_ms"] or 0.0) for record in ran)
    return {
        "billed_seconds": sum(record["billed_ms"] for record in ran) / 1000,
        "gb_seconds": format(gb_seconds(records), "f"),
        "invocations": len(records),
        "cold_starts": sum(record["cold_start"] for record in records),
        "peak_memory_mb": max((record["max_memory_mb"] for record in ran), default=0),
        "instances": list(instances),
        "device": ", ".join(dict.fromkeys(instance["device"] for instance in instances)) or None,
        "phases": {phase: round(sum(w["phases"][phase] for w in per_worker), 6) for phase in PHASES},
        **protocol(events),
        "orchestration_seconds": orchestration_seconds(events),
        "per_worker": per_worker,
        "reports": report_summary(records),
        "host_delay_seconds": round(delay_ms / 1000, 6),
        "oversubscribed": delay_ms > OVERSUBSCRIBED * wall_ms,
    }


def span_seconds(events: Iterable[Mapping[str, Any]], instances: Records = ()) -> float:
    """Seconds from when the first invocation was accepted, or what runs them was launched, to the last one's end: wall
    time, without what the emulator and the driver did before and after it."""
    # The emulator's own `invoke` spans an invocation from its acceptance on.
    own = [e for e in events if e["op"] == "transition" or (e["op"] == "invoke" and e["worker"] < 0)]
    spans = [(e["start_ns"], e["end_ns"]) for e in (*own, *instances)]
    return (max(end for _, end in spans) - min(start for start, _ in spans)) / 1e9 if spans else 0.0


def orchestration_seconds(events: Rows) -> float | None:
    """Seconds that executions of state machines lasted, less those in which one of their own invocations was under way.

    An execution lasts from its first transition's start to its last one's end; executions are added up, also those
    that ran at once. Waits (for Wait states and between retries) are orchestration. Whatever belongs to an invocation
    that a Task's TimeoutSeconds gave up is too: its transition cannot name it. None without state machines.
    """
    spans = {e["invocation"]: (e["start_ns"], e["end_ns"]) for e in events if e["op"] == "invoke" and e["worker"] < 0}
    executions: dict[str, Rows] = defaultdict(list)
    for event in events:
        if event["op"] == "transition":
            executions[event["resource"].partition("/")[0]].append(event)
    if not executions:
        return None
    total = 0
    for own in executions.values():
        first, last = min(e["start_ns"] for e in own), max(e["end_ns"] for e in own)
        covered = first
        for start, end in sorted(spans[e["invocation"]] for e in own if e["invocation"] in spans):
            # Of overlapping invocations each instant counts once, and none beyond the execution.
            total += max(0, min(start, last) - covered)
            covered = max(covered, min(end, last))
        total += last - covered
    return round(total / 1e9, 6)


def hosts(events: Iterable[Mapping[str, Any]]) -> list[tuple[str, Decimal]]:
    """Instance type and seconds, in whole ms, of each host of a database or queue: wall time of the run."""
    runs = [event for event in events if event["op"] == "host.run"]
    return [(run["resource"], Decimal(round((run["end_ns"] - run["start_ns"]) / 1e6)) / 1000) for run in runs]


def transitions(events: Iterable[Mapping[str, Any]]) -> int:
    """State transitions, retries among them: what Step Functions bills."""
    return sum(event["requests"] for event in events if event["op"] == "transition")


def report_summary(records: Records) -> dict[str, Any]:
    """The REPORT lines in short: how many ended how, and least, median and greatest of their figures."""

    def spread(key: str) -> dict[str, float] | None:
        values = [record[key] for record in records if record[key] is not None]
        return {"min": min(values), "median": median(values), "max": max(values)} if values else None

    figures = ("duration_ms", "init_ms", "billed_ms", "max_memory_mb")
    endings = Counter(record["error_type"] or record["status"] for record in records)
    return {"endings": dict(sorted(endings.items())), **{figure: spread(figure) for figure in figures}}


def gb_seconds(records: Records) -> Decimal:
    """Billed GB-seconds, exact (1 GB = 1,024 MB)."""
    total = sum(record["memory_mb"] * record["billed_ms"] for record in records)
    return Decimal(total) / (1024 * 1000)


def last_position(events: Rows, worker: int | None) -> tuple[int, int] | None:
    """Epoch and step that a worker (or any) reached last."""
    found = [(e["epoch"], e["step"]) for e in events if e["step"] >= 0 and worker in (None, e["worker"])]
    return max(found, default=None)
