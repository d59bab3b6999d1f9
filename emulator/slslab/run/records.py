"""The metered records of invocations and instances, and the check of every record of a trace log."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, get_type_hints

from slslab.aws.limits import billed_ms
from slslab.run.bill import ARCHITECTURES
from slslab_workers.architecture import Fleet
from slslab_workers.trace.event import AMOUNTS, REQUIRED, wrong_field


def report_line(
    request_id: str,
    duration_ms: float,
    init_ms: float | None,
    memory_mb: int,
    max_memory_mb: int,
    status: str,
    error_type: str | None,
) -> str:
    """Return Lambda's REPORT log line: tab separated, with a newline at the end."""
    fields = [
        f"REPORT RequestId: {request_id}",
        f"Duration: {duration_ms:.2f} ms",
        f"Billed Duration: {billed_ms(duration_ms, init_ms)} ms",
        f"Memory Size: {memory_mb} MB",
        f"Max Memory Used: {max_memory_mb} MB",
    ]
    if init_ms is not None:
        fields.append(f"Init Duration: {init_ms:.2f} ms")
    if status == "timeout":
        fields.append("Status: timeout")
    elif status == "error" and error_type is not None:
        fields += ["Status: error", f"Error Type: {error_type}"]
    return "\t".join(fields) + ("\t\n" if status == "success" else "\n")


# Not frozen: to set a frozen field takes three times as long, and every invocation makes a record with thirty.
@dataclass
class _Record:
    kind = ""

    def as_document(self) -> dict[str, Any]:
        """Return the record as a JSON-safe mapping, without the figures of an unused GPU."""
        gpu = ("gpu", "max_gpu_memory_mb")
        return {name: value for name, value in vars(self).items() if value is not None or name not in gpu}

    def as_record(self) -> dict[str, Any]:
        """Return the record as a line of a trace log."""
        return {"record": self.kind, **self.as_document()}


@dataclass
class InvocationRecord(_Record):
    """The metered record of one invocation; durations in milliseconds, memory in MB as Lambda counts (MiB).

    `template` names the modules of the template that the environment was forked from; it is empty for a new process. A
    fork shares memory with its template, so its memory peaks and limits aren't Lambda's.

    `cpu_share` is the vCPUs of an invocation, `init_cpu_share` the vCPUs of a first init; `quota_period_ms` is the
    period in which they are enforced. `cpu_ms` is the CPU time of init and invocation together, `init_cpu_ms` of init
    alone (None if the environment was warm). `requests` are billed requests. The durations exclude `host_delay_ms`, but
    may include up to `uncertain_ms` caused by this host: waits for a file or a service while it was short of
    processors, memory or disks (None if the kernel doesn't tell). `gpu` is the GPU that torch used, by its number and
    name, and `max_gpu_memory_mb` the most of its memory that was allocated; a record without a GPU lacks them.
    """

    kind = "invocation"
    request_id: str
    function: str
    version: str
    environment: str
    memory_mb: int
    cpu_share: float
    init_cpu_share: float
    quota_period_ms: int
    architecture: str
    ephemeral_mb: int
    invocation_type: str
    cold_start: bool
    template: str
    init_ms: float | None
    duration_ms: float
    billed_ms: int
    max_memory_mb: int
    cgroup_peak_mb: int | None
    cpu_ms: float
    host_delay_ms: float
    uncertain_ms: float | None
    status: str
    error_type: str | None
    started_at: str
    start_ns: int
    end_ns: int
    report: str
    requests: int = 1
    init_cpu_ms: float | None = None
    gpu: str | None = None
    max_gpu_memory_mb: int | None = None


# documented: Lambda's pricing page: an asynchronous invocation is one request for the first 256 KB of its payload, and
# one more for each additional 64 KB or part of it. assumed: each attempt is billed.
FIRST_EVENT_BYTES, FURTHER_EVENT_BYTES = 262_144, 65_536


def billed_requests(invocation_type: str, payload_bytes: int) -> int:
    """Return the requests that Lambda bills for one attempt of an invocation."""
    if invocation_type != "Event":
        return 1
    return 1 + -(-max(0, payload_bytes - FIRST_EVENT_BYTES) // FURTHER_EVENT_BYTES)


BILLED_MINIMUM_S = 60  # documented: AWS What's New, 2 October 2017, "Per-second billing for Amazon EC2"


@dataclass
class InstanceRecord(_Record):
    """The metered record of one instance; times in ns of CLOCK_MONOTONIC, memory in MiB.

    `billed_seconds` are whole seconds, at least 60, as on EC2. `device` is `cpu`, or a GPU's number in torch and name.
    `host_delay_ms` is how long its threads waited for a processor of this host; the times aren't corrected for it.
    `status` is success, error (it failed), or ended (another instance failed, or the run was interrupted).
    """

    kind = "instance"
    id: str
    function: str
    type: str
    worker: int
    device: str
    started_at: str
    start_ns: int
    end_ns: int
    billed_seconds: int
    peak_memory_mb: int
    cpu_seconds: float
    host_delay_ms: float
    status: str
    exit_code: int


def billed_seconds(nanoseconds: int) -> int:
    """Return the seconds that EC2 bills for a launch: rounded up, at least 60."""
    return max(BILLED_MINIMUM_S, -(-nanoseconds // 1_000_000_000))


def seconds_used(record: Mapping[str, Any]) -> Decimal:
    """Return the seconds from an instance's launch to its end, rounded up to a millisecond, before a book's minimum."""
    return Decimal(-((record["start_ns"] - record["end_ns"]) // 1_000_000)) / 1000


def notes(instances: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return caveats on these records' times and prices: a sentence without subject for each device, except for CPU
    instances that ran on a CPU."""
    sentences = []
    for device, count in Counter(record["device"] for record in instances).items():
        kind = next(record["type"] for record in instances if record["device"] == device)
        if device == "cpu":
            if Fleet(kind).has_gpu:
                sentences.append(f"ran on the CPU, not on a GPU, though {kind} is billed")
        else:
            shared = f", which {count} instances shared" if count > 1 else ""
            sentences.append(f"ran on {device}{shared}: these are its times, and {kind} is billed for them")
    return sentences


def launch_record(
    of: str, id_: str, instance_type: str, start_ns: int, worker: int = -1, device: str = ""
) -> dict[str, Any]:
    """Return the trace record that starts the bill of an instance, or of a database's or queue's host (`of`)."""
    kind = {"record": "begin", "of": of, "id": id_, "type": instance_type}
    return {**kind, "worker": worker, "device": device, "start_ns": start_ns}


# Optional fields.
UNREAD = {
    "version", "invocation_type", "template", "cgroup_peak_mb", "uncertain_ms", "report", "cpu_seconds", "exit_code",
    "requests", "init_cpu_share", "quota_period_ms", "init_cpu_ms", "gpu", "max_gpu_memory_mb",
}  # fmt: skip
# Required fields; other keys are allowed.
EVENT_FIELDS = {**REQUIRED, "function": str, "environment": str}
RECORD_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "header": {"schema": int, "run": str, "clock": str},
    "event": EVENT_FIELDS,
    "clock": {"environment": str, "wall_ns": int, "host_delay_ns": int},
    "begin": {"of": str, "id": str, "start_ns": int},
    "invocation": get_type_hints(InvocationRecord),
    "instance": get_type_hints(InstanceRecord),
}


def check_record(record: Any) -> None:
    """Raise ValueError if the record doesn't follow the schema."""
    kind = record.get("record") if isinstance(record, dict) else None
    if not isinstance(kind, str) or kind not in RECORD_FIELDS:
        raise ValueError("it is not a header, event, clock, begin, invocation or instance")
    if kind != "event":
        check_metered(record, kind)
    elif wrong := wrong_field(record, EVENT_FIELDS):
        raise ValueError(f"event has no valid {wrong!r}")
    elif record["end_ns"] < record["start_ns"]:
        raise ValueError("the event ends before it starts")


def check_metered(record: Any, kind: str) -> None:
    """Raise ValueError if a field of this kind of record is missing, or has a wrong type or an impossible number."""
    if not isinstance(record, dict):
        raise ValueError(f"an {kind} must be a JSON object")
    fields = {name: type_ for name, type_ in RECORD_FIELDS[kind].items() if name in record or name not in UNREAD}
    numbers = {name: record[name] for name in fields if isinstance(record.get(name), float)}
    # JSON may have NaN.
    impossible = (name for name, number in numbers.items() if not 0 <= number < AMOUNTS.stop)
    if wrong := wrong_field(record, fields) or next(impossible, None):
        raise ValueError(f"{kind} has no valid {wrong!r}")
    if kind == "invocation" and record["architecture"] not in ARCHITECTURES:
        raise ValueError("invocation has no valid 'architecture'")
    if "started_at" in RECORD_FIELDS[kind]:
        datetime.fromisoformat(record["started_at"])
