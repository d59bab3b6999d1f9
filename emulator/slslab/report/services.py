"""The document of what `slslab up` recorded: the figures of a run, but for those that need a plan."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from slslab.predict.invocation import make_predictor
from slslab.predict.processor import UNANCHORED, Processor
from slslab.predict.profiles.profile import Profile, load_profile
from slslab.report.predictions import Bill, Predicted, bill_of, predict, requests_of
from slslab.run import metrics
from slslab.run.directory import RunDirectory
from slslab.run.document import SCHEMA
from slslab.run.events import clock_domain
from slslab.run.faults import injected
from slslab.run.log import read_log
from slslab_workers.trace.operations import OPERATIONS


@dataclass(frozen=True)
class Recorded:
    """What a service has recorded until now: what it is, how it stands, its trace and its invocations' records.

    The hosts that run count as if they ended now, or with the last record of a service that was killed. `profiles` were
    fitted to AWS's times of a function, by its name.
    """

    about: Mapping[str, Any]
    status: str
    seconds: float
    events: metrics.Rows
    invocations: list[dict[str, Any]]
    torn: bool
    profiles: Mapping[str, Profile] = field(default_factory=dict)


def read_recorded(directory: RunDirectory, about: Mapping[str, Any]) -> Recorded:
    """Read the directory of a service; RunError if its trace is broken."""
    # In this order, a service that ends in between is shown as it was before.
    status = directory.status()
    records, torn = read_log(directory.trace_log)
    of = metrics.grouped((record["record"], record) for record in records)
    events, invoked = of["event"], of["invocation"]
    for event in events:
        event["host_delay_ns"] = 0  # without samples of clocks it is not known within an event
    running = status == "running" and records[0]["clock"] == clock_domain()
    last_ns = max((event["end_ns"] for event in events), default=0)
    if running:
        last_ns = time.monotonic_ns()
    if not any(event["op"] == "host.run" for event in events):
        events += [_host(host, max(last_ns, host["start_ns"])) for host in of["begin"]]
    started = datetime.fromisoformat(about["started_at"])
    until = datetime.fromisoformat(about["ended_at"]) if "ended_at" in about else datetime.now(UTC)
    seconds = (until - started).total_seconds()
    if status == "interrupted":
        last = max((record["started_at"] for record in invoked), default=about["started_at"])
        seconds = (datetime.fromisoformat(last) - started).total_seconds()
    # The last line of a log that is being written may be half a line.
    profiles = {name: load_profile(path) for name, path in directory.profiles().items()}
    return Recorded(about, status, seconds, events, invoked, torn and not running, profiles)


def predict_recorded(recorded: Recorded, kind: str | None) -> Predicted:
    """Return what the invocations take on Lambda; `kind` is the handlers' kind of work, None if it isn't known."""
    described, enforced = recorded.about.get("processor"), recorded.about["cpu_share_enforced"]
    processor = Processor.from_dict(described) if described else UNANCHORED
    predictor = make_predictor(processor, kind, enforced)
    return predict(recorded.invocations, requests_of(recorded.events), predictor, recorded.profiles)


def service_document(run: str, recorded: Recorded, bill: Bill, kind: str | None = None) -> dict[str, Any]:
    """Return the document, with the keys that a run's has; what only a run has is left out.

    `bill` makes the bill of invocations and of all else that was used. `predicted` is what the functions' handlers, of
    this `kind` of work, take and cost on Lambda.
    """
    predicted = predict_recorded(recorded, kind)
    events, records = recorded.events, recorded.invocations
    totals = metrics.totals(events, records)
    about = recorded.about
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "run": run,
        "status": recorded.status,
        "error": None,
        "started_at": about["started_at"],
        "host": {
            "cores": about["cores"],
            "cpu_share_enforced": about["cpu_share_enforced"],
            **totals["host"],
            "own_cpu_seconds": None,
        },
        "stack": about["stack"],
        "environment": about["environment"],
        "confinement": about["confinement"],
        "seconds": {
            "measured": round(recorded.seconds, 3),
            "span": round(metrics.span_seconds(events), 3),
        },
        **{name: totals[name] for name in ("billed_seconds", "gb_seconds", "invocations", "cold_starts")},
        **{name: totals[name] for name in ("peak_memory_mb", "orchestration_seconds", "reports")},
        "counts": _counts(events),
        "predicted": predicted.document(bill),
        "functions": _functions(records, predicted),
        "cost": dict(bill(records)),
        "faults": injected(events, about.get("faults")),
        "trace_torn": recorded.torn,
    }
    if recorded.status == "interrupted":
        document["error"] = {
            "type": "Killed",
            "message": "`slslab up` was killed; this is what its trace holds.",
            "hint": "what ran when it was killed, and the last requests to stores, are not in the bill.",
            "worker": None,
            "epoch": None,
            "step": None,
        }
    return document


def _counts(events: metrics.Rows) -> dict[str, int]:
    """Return the requests to stores and the state transitions."""
    counted = metrics.grouped(
        (event["op"], event["requests"])
        for event in events
        if OPERATIONS[event["op"]].channel or event["op"] == "transition"
    )
    return {op: sum(numbers) for op, numbers in sorted(counted.items())}


def _functions(records: metrics.Records, predicted: Predicted) -> list[dict[str, Any]]:
    by_name = metrics.grouped((record["function"], record) for record in records)
    split = predicted.by([record["function"] for record in records])
    return [{**function_row(own), "predicted": split[name].figures(bill_of())} for name, own in sorted(by_name.items())]


def function_row(own: metrics.Records) -> dict[str, Any]:
    """Return how often a function was invoked, how that ended, and what it took; memory size is that of the last."""
    return {
        "function": own[-1]["function"],
        "memory_mb": own[-1]["memory_mb"],
        "invocations": len(own),
        "cold_starts": sum(record["cold_start"] for record in own),
        "errors": sum(record["status"] != "success" or record["error_type"] is not None for record in own),
        "billed_seconds": sum(record["billed_ms"] for record in own) / 1000,
        "gb_seconds": format(metrics.gb_seconds(own), "f"),
        "peak_memory_mb": max(record["max_memory_mb"] for record in own),
        "reports": metrics.report_summary(own),
    }


def _host(begun: Mapping[str, Any], end_ns: int) -> dict[str, Any]:
    return {
        "op": "host.run",
        "resource": begun["type"],
        "start_ns": begun["start_ns"],
        "end_ns": end_ns,
        "requests": 0,
        "bytes": 0,
        "worker": -1,
        "overhead": True,
        "invocation": "",
        "host_delay_ns": 0,
    }
