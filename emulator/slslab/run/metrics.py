"""Compute figures from a run's trace and metered invocations, without a running system."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from statistics import median
from typing import Any, Literal, TypeVar

from slslab.run.oversubscription import oversubscribed, uncertain
from slslab_workers.trace.operations import BESIDE as BESIDE
from slslab_workers.trace.operations import BILLED, PROTOCOL, billed_requests, moves

PHASES = ("init", "fetch", "compute", "synchronise", "update", "wait", "other")
Records = Sequence[Mapping[str, Any]]
Rows = list[dict[str, Any]]
Key = TypeVar("Key")
Value = TypeVar("Value")


def host_imports(events: Rows) -> dict[str, list[str]]:
    """Return the host's packages that each function imported, by function: on Lambda they would be missing."""
    found = grouped((str(event["function"]), str(event["resource"])) for event in events if event["op"] == "import")
    return {function: sorted(set(packages)) for function, packages in sorted(found.items())}


def grouped(pairs: Iterable[tuple[Key, Value]]) -> defaultdict[Key, list[Value]]:
    """Return the values of each key; keys and values keep the order of the pairs."""
    groups: defaultdict[Key, list[Value]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def summed(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the sum of the numbers of each name, in the order of the names."""
    return {name: sum(numbers) for name, numbers in sorted(grouped(pairs).items())}


def lambda_clock_ns(event: Mapping[str, Any]) -> int:
    """Return an event's duration on the Lambda clock, ns: its wall time minus the host delay."""
    return int(event["end_ns"] - event["start_ns"] - event["host_delay_ns"])


def protocol(events: Rows) -> dict[str, Any]:
    """Return counts and bytes of the training protocol and, with the same keys, of the overheads (everything else)."""

    def part(overhead: bool) -> dict[str, Any]:
        chosen = [event for event in events if event["op"] in PROTOCOL and event["overhead"] is overhead]
        return {"counts": summed((event["op"], event["requests"]) for event in chosen), "bytes": _moved(chosen)}

    return {**part(False), "overheads": part(True)}


def _moved(events: Rows) -> dict[str, int]:
    """Return the bytes that went in to stores or peers, and out of them."""
    ways: tuple[Literal["in", "out"], ...] = ("in", "out")
    return {way: sum(event["bytes"] for event in events if moves(event["op"], way)) for way in ways}


def object_requests(events: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the requests that S3 and DynamoDB bill, by operation, including failed ones and polls."""
    return summed((e["op"], billed_requests(e["op"], e["requests"], e["bytes"])) for e in events if e["op"] in BILLED)


def driver_requests(events: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the driver's billed requests to the object store, by operation."""
    return object_requests(event for event in events if event["worker"] < 0)


def workers(events: Rows, records: Records, instances: Records = ()) -> list[dict[str, Any]]:
    """Return for each worker the seconds of each phase on the Lambda clock, bytes, billed seconds and peak memory.

    The phases of a worker add up to its invocations' init and duration. So `other` includes time outside events: the
    runtime between events, and the last moments of a killed invocation. The host delay of an event is interpolated
    between samples of the clock, so `other` may be a few ms below zero. An instance has no Lambda clock: its phases are
    wall time, and add up to the time from its launch to its end. If the command was killed before an invocation was
    metered, its events count without init and `other`. An invocation that ended before its first event counts as
    worker -1.
    """
    owner = {e["invocation"]: e["worker"] for e in events if e["worker"] >= 0}
    owner |= {instance["id"]: instance["worker"] for instance in instances}
    invoked = Counter(owner.get(record["request_id"], -1) for record in records)
    seconds: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    events_of: dict[int, Rows] = defaultdict(list)
    traced_s: dict[str, float] = defaultdict(float)
    for event in events:
        if event["worker"] >= 0 and event["op"] not in BESIDE:
            lambda_s = lambda_clock_ns(event) / 1e9
            phase = event["phase"] if event["phase"] in PHASES else "other"
            seconds[event["worker"]][phase] += lambda_s
            traced_s[event["invocation"]] += lambda_s
            events_of[event["worker"]].append(event)
    by_worker: dict[int, list[Mapping[str, Any]]] = {worker: [] for worker in seconds}
    for record in (*records, *map(_as_invocation, instances)):
        worker = owner.get(record["request_id"], -1)
        by_worker.setdefault(worker, []).append(record)
        seconds[worker]["init"] += (record["init_ms"] or 0.0) / 1000
        # Retries of an asynchronous invocation share its request id: subtract the traced time once.
        seconds[worker]["other"] += record["duration_ms"] / 1000 - traced_s.pop(record["request_id"], 0.0)
    return [
        {
            "worker": worker,
            "phases": {phase: round(seconds[worker][phase], 6) for phase in PHASES},
            "bytes": _moved(events_of[worker]),
            "billed_seconds": sum(record["billed_ms"] for record in metered) / 1000,
            "invocations": invoked[worker],
            "peak_memory_mb": max((record["max_memory_mb"] for record in metered), default=0),
            "host_delay_seconds": sum(record["host_delay_ms"] for record in metered) / 1000,
        }
        for worker, metered in sorted(by_worker.items())
    ]


def _as_invocation(instance: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of an instance's record under the names of an invocation's."""
    return {
        "request_id": instance["id"],
        "memory_mb": 0,
        "cold_start": False,
        "init_ms": None,
        "duration_ms": (instance["end_ns"] - instance["start_ns"]) / 1e6,
        "billed_ms": instance["billed_seconds"] * 1000,
        "max_memory_mb": instance["peak_memory_mb"],
        **{name: instance[name] for name in ("host_delay_ms", "start_ns", "end_ns")},
    }


def totals(events: Rows, records: Records, instances: Records = ()) -> dict[str, Any]:
    """Return the figures of a run's document that follow from its trace, invocations and instances."""
    per_worker = workers(events, records, instances)
    ran = (*records, *map(_as_invocation, instances))
    return {
        **sums(ran),
        "invocations": len(records),
        "peak_memory_limit_mb": max(((r["max_memory_mb"], r["memory_mb"]) for r in records), default=(0, None))[1],
        "instances": list(instances),
        "device": ", ".join(dict.fromkeys(instance["device"] for instance in instances)) or None,
        "phases": {phase: round(sum(w["phases"][phase] for w in per_worker), 6) for phase in PHASES},
        **protocol(events),
        "orchestration_seconds": orchestration_seconds(events),
        "per_worker": per_worker,
        "reports": report_summary(records),
        "host": {
            "delay_seconds": round(sum(record["host_delay_ms"] for record in ran) / 1000, 6),
            "oversubscribed": oversubscribed(ran),
            "uncertain_seconds": round(sum(record.get("uncertain_ms") or 0.0 for record in records) / 1000, 6),
            "uncertain_invocations": sum(map(uncertain, records)),
        },
    }


def sums(records: Records) -> dict[str, Any]:
    """Return the number, billed seconds, GB-seconds (as text), cold starts and peak memory of invocations."""
    return {
        "billed_seconds": sum(record["billed_ms"] for record in records) / 1000,
        "gb_seconds": format(gb_seconds(records), "f"),
        "invocations": len(records),
        "cold_starts": sum(record["cold_start"] for record in records),
        "peak_memory_mb": max((record["max_memory_mb"] for record in records), default=0),
    }


def span_seconds(events: Iterable[Mapping[str, Any]], instances: Records = ()) -> float:
    """Return the wall seconds from the first invocation's acceptance or instance's launch to the end of the last one.

    They exclude what the emulator and the driver do before and after.
    """
    # The emulator's own `invoke` event begins when it accepts an invocation.
    accepted = [e for e in events if e["op"] == "transition" or (e["op"] == "invoke" and e["worker"] < 0)]
    spans = [(e["start_ns"], e["end_ns"]) for e in (*accepted, *instances)]
    return (max(end for _, end in spans) - min(start for start, _ in spans)) / 1e9 if spans else 0.0


def orchestration_seconds(events: Rows) -> float | None:
    """Return the seconds in which a state machine's execution ran without one of its invocations running.

    An execution lasts from the start of its first transition to the end of its last one. Executions are added up, even
    if they ran at the same time. Waits (Wait states, and between retries) count as orchestration. So does an invocation
    that a Task's TimeoutSeconds abandoned, because its transition can't name it. None without state machines.
    """
    spans = {e["invocation"]: (e["start_ns"], e["end_ns"]) for e in events if e["op"] == "invoke" and e["worker"] < 0}
    executions = grouped((e["resource"].partition("/")[0], e) for e in events if e["op"] == "transition")
    if not executions:
        return None
    total = 0
    for attempts in executions.values():
        first, last = min(e["start_ns"] for e in attempts), max(e["end_ns"] for e in attempts)
        covered = first
        for start, end in sorted(spans[e["invocation"]] for e in attempts if e["invocation"] in spans):
            # Overlapping invocations count once, and only within the execution.
            total += max(0, min(start, last) - covered)
            covered = max(covered, min(end, last))
        total += last - covered
    return round(total / 1e9, 6)


def hosts(events: Iterable[Mapping[str, Any]]) -> list[tuple[str, Decimal]]:
    """Return the instance type and wall seconds (in whole ms) of each database's or queue's host."""
    return [
        (event["resource"], Decimal(round((event["end_ns"] - event["start_ns"]) / 1e6)) / 1000)
        for event in events
        if event["op"] == "host.run"
    ]


def transitions(events: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of state transitions that Step Functions bills, including retries."""
    return sum(event["requests"] for event in events if event["op"] == "transition")


def report_summary(records: Records) -> dict[str, Any]:
    """Summarise the REPORT lines: count the endings, and return minimum, median and maximum of each figure.

    The memory of GPUs is among the figures if an invocation used one.
    """

    def spread(key: str) -> dict[str, float] | None:
        values = [record[key] for record in records if record.get(key) is not None]
        return {"min": min(values), "median": median(values), "max": max(values)} if values else None

    figures = ["duration_ms", "init_ms", "billed_ms", "max_memory_mb"]
    if any("max_gpu_memory_mb" in record for record in records):
        figures.append("max_gpu_memory_mb")
    endings = Counter(record["error_type"] or record["status"] for record in records)
    return {"endings": dict(sorted(endings.items())), **{figure: spread(figure) for figure in figures}}


def gb_seconds(records: Records) -> Decimal:
    """Return the billed GB-seconds, exact (1 GB = 1,024 MB)."""
    return Decimal(sum(record["memory_mb"] * record["billed_ms"] for record in records)) / (1024 * 1000)


def last_position(events: Rows, worker: int | None) -> tuple[int, int] | None:
    """Return the last epoch and step that a worker (None: any worker) reached; None before the first step."""
    positions = ((e["epoch"], e["step"]) for e in events if e["step"] >= 0 and worker in (None, e["worker"]))
    return max(positions, default=None)
