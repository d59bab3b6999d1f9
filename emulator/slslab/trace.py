"""The trace of a run: appended while it goes on, compacted into Parquet at its end or after a crash.

Schema 2 is documented in docs/trace.md. Times are nanoseconds of CLOCK_MONOTONIC, one clock domain per host and boot.
"""

import fcntl
import json
import os
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slslab.errors import HostError, RunError
from slslab.metering import clock_domain

SCHEMA = 2
LOG = "trace.jsonl"
TABLE = "trace.parquet"
INVOCATIONS = "invocations.jsonl"
INSTANCES = "instances.jsonl"
COLUMNS = pa.schema(
    [
        ("event", pa.int64()),
        ("run", pa.string()),
        ("invocation", pa.string()),
        ("function", pa.string()),
        ("environment", pa.string()),
        ("worker", pa.int32()),
        ("epoch", pa.int32()),
        ("step", pa.int32()),
        ("phase", pa.string()),
        ("op", pa.string()),
        ("start_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("clock", pa.string()),
        ("host_delay_ns", pa.int64()),
        ("cpu_ns", pa.int64()),
        ("cpu_before_ns", pa.int64()),
        ("bytes", pa.int64()),
        ("requests", pa.int64()),
        ("resource", pa.string()),
        ("etag", pa.string()),
        ("overhead", pa.bool_()),
        ("failed", pa.bool_()),
        ("causes", pa.list_(pa.int64())),
    ]
)


# Kind, name and version of what one event makes and others get.
Source = tuple[str, str, str]

# What a record must have to be read; more keys are allowed.
_EVENT: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("op", "phase", "invocation", "resource", "function", "environment"), str),
    **dict.fromkeys(("start_ns", "end_ns", "cpu_ns", "bytes", "requests", "worker", "epoch", "step"), int),
    **dict.fromkeys(("overhead", "failed"), bool),
    "etag": (str, type(None)),
}
_RECORDS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "header": {"schema": int, "run": str, "clock": str},
    "event": _EVENT,
    "clock": {"environment": str, "wall_ns": int, "host_delay_ns": int},
    "begin": {"of": str, "id": str, "start_ns": int},
    "invocation": {"request_id": str},
    "instance": {
        **dict.fromkeys(("id", "type", "device"), str),
        **dict.fromkeys(("worker", "start_ns", "end_ns", "billed_seconds", "peak_memory_mb"), int),
        "host_delay_ms": (int, float),
    },
}


@dataclass(frozen=True)
class Trace:
    """A compacted trace: its events in order of their starts, and whether its log broke off in the middle of a line."""

    events: pa.Table
    torn: bool


class TraceWriter:
    """Appends records to a run's trace log, each with one write, so that a killed run keeps what was written."""

    def __init__(self, path: Path, run: str) -> None:
        self._lock = threading.Lock()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.write({"record": "header", "schema": SCHEMA, "run": run, "clock": clock_domain(), "started": started})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            os.close(self._descriptor)
            self._descriptor = -1

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record, whole or (HostError) not at all.

        A late one, after the end of the trace, is dropped with the run it belongs to.
        """
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._descriptor < 0:
                return
            written = 0
            try:
                while written < len(line):
                    written += os.write(self._descriptor, line[written:])
            except OSError as error:
                # What follows must not be glued to half a line.
                os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
                raise HostError(f"The trace cannot be written: {error.strerror}.", "make room for runs.") from error


def read_log(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """Records of a trace log, and whether its last line is torn; RunError for a line that is broken elsewhere."""
    lines = path.read_bytes().split(b"\n")
    torn = lines.pop() != b""
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            check_record(record)
        except ValueError as error:
            raise RunError(
                f"Line {number} of {path} is not a trace record: {error}.", "the file was changed; run the plan again."
            ) from error
        records.append(record)
    if not records or records[0]["record"] != "header":
        raise RunError(f"{path} has no header.", "the run ended before its trace began; run the plan again.")
    if records[0]["schema"] != SCHEMA:
        raise RunError(
            f"{path} has trace schema {records[0]['schema']}, and this version reads {SCHEMA}.",
            "use the version of slslab that recorded it.",
        )
    return records, torn


def compact(directory: Path) -> Trace:
    """Turn the log of a run that has ended into its Parquet table and the files of its metered records.

    They replace it: invocations.jsonl, and instances.jsonl if there were any.

    The same log gives the same files; the log goes when they are on disk. Two commands may do it at the same time.
    """
    with _alone(directory):
        if (directory / LOG).exists():
            records, torn = read_log(directory / LOG)
            metadata = {b"slslab.schema": str(SCHEMA).encode(), b"slslab.torn": str(int(torn)).encode()}
            with replacing(directory / TABLE) as file:
                pq.write_table(tabulate(records).replace_schema_metadata(metadata), file, compression="zstd")
            write_invocations(directory, _metered(records, "invocation"))
            if launched := _metered(records, "instance"):
                _write_records(directory / INSTANCES, launched)
            (directory / LOG).unlink()
        return _read_table(directory / TABLE)


def load(directory: Path) -> Trace:
    """The trace of a run that has ended; after a crash, its log is compacted first."""
    if (directory / LOG).exists():
        return compact(directory)
    if not (directory / TABLE).exists():
        raise RunError(f"{directory} has no trace.", "the run ended before it began; run the plan again.")
    return _read_table(directory / TABLE)


def invocations(directory: Path) -> list[dict[str, Any]]:
    """The metered records of a run's invocations, out of its trace log or of the file made from it."""
    return _read_records(directory, "invocation", INVOCATIONS)


def instances(directory: Path) -> list[dict[str, Any]]:
    """The metered records of a run's instances, likewise."""
    return _read_records(directory, "instance", INSTANCES)


def write_invocations(directory: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write invocations.jsonl: one metered record a line, with its REPORT line, in order of their ends."""
    _write_records(directory / INVOCATIONS, records)


def _read_records(directory: Path, kind: str, name: str) -> list[dict[str, Any]]:
    if (directory / LOG).exists():
        return _metered(read_log(directory / LOG)[0], kind)
    path = directory / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _write_records(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    with replacing(path) as file:
        file.writelines(json.dumps(record).encode() + b"\n" for record in records)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` once it is complete and on disk; an exception leaves `path` as it was."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink()
        raise
    temporary.replace(path)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def check_record(record: Any) -> None:
    """ValueError if the record is not of the schema."""
    kind = record.get("record") if isinstance(record, dict) else None
    if not isinstance(kind, str) or kind not in _RECORDS:
        raise ValueError("it is no header, event, clock, begin, invocation or instance")
    for name, wanted in _RECORDS[kind].items():
        if not isinstance(record.get(name, record), wanted):
            raise ValueError(f"{kind} has no valid {name!r}")
    if kind == "event" and record["end_ns"] < record["start_ns"]:
        raise ValueError("the event ends before it starts")


def _metered(records: Sequence[Mapping[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k != "record"} for r in records if r["record"] == kind]


def _read_table(path: Path) -> Trace:
    try:
        table = pq.ParquetFile(path).read()
    except pa.ArrowInvalid as error:
        raise RunError(f"{path} is not a trace: {error}.", "the file was changed; run the plan again.") from error
    metadata = table.schema.metadata or {}
    if int(metadata.get(b"slslab.schema", b"0")) != SCHEMA:
        raise RunError(f"{path} is not of trace schema {SCHEMA}.", "use the version of slslab that recorded it.")
    return Trace(table, metadata[b"slslab.torn"] == b"1")


def tabulate(records: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The events of a log's records, the header first among them, as a table of COLUMNS with their causes."""
    header = records[0]
    events = [record for record in records if record["record"] == "event"]
    # Equal starts are told apart by the end and then by the order of arrival, so that the numbering is reproducible.
    events.sort(key=lambda event: (event["start_ns"], event["end_ns"]))
    columns: dict[str, Any] = {name: [event[name] for event in events] for name in _EVENT}
    # Only workers' processes have any.
    columns["cpu_before_ns"] = [event.get("cpu_before_ns", 0) for event in events]
    columns["event"] = range(len(events))
    columns["run"] = [header["run"]] * len(events)
    columns["clock"] = [header["clock"]] * len(events)
    columns["host_delay_ns"] = _host_delays(events, [record for record in records if record["record"] == "clock"])
    columns["causes"] = _causes(events)
    return pa.table(columns, schema=COLUMNS)


def _host_delays(events: Sequence[Mapping[str, Any]], samples: Sequence[Mapping[str, Any]]) -> Any:
    """Host delay within each event, int64 nanoseconds: its environment's cumulative delay, linear between samples.

    Before an environment's first sample and after its last one nothing is added; without samples it is 0.
    """
    taken: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for sample in samples:
        taken[sample["environment"]].append((sample["wall_ns"], sample["host_delay_ns"]))
    members: dict[str, list[int]] = defaultdict(list)
    for number, event in enumerate(events):
        if event["environment"] in taken:
            members[event["environment"]].append(number)
    delays = np.zeros(len(events), np.int64)
    for environment, numbers in members.items():
        walls, totals = np.array(sorted(taken[environment]), np.int64).T
        spans = np.array([(events[n]["start_ns"], events[n]["end_ns"]) for n in numbers], np.int64).T
        # From the first sample on, so that nanoseconds since the host's boot stay exact as float64; rounded before the
        # difference, so that adjoining events add up to the delay of the whole.
        starts, ends = np.rint(np.interp(spans - walls[0], walls - walls[0], totals)).astype(np.int64)
        delays[numbers] = np.clip(ends - starts, 0, spans[1] - spans[0])
    return delays


def _causes(events: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Events that must precede each event: see docs/trace.md, "Causes".

    No cycle can arise, whatever the events are: an event in program order ends before its effect starts. A source (the
    put of an object, the publish of a message, the set of a tensor) ends before what it caused does, or has no cause
    but program order and starts before that ends. So along any path the ends only decrease.
    """
    sources: dict[Source, list[int]] = defaultdict(list)
    for number, event in enumerate(events):
        for source in _made(event):
            sources[source].append(number)
    # A script reads and writes, so that only what had ended before is certain to have come first.
    for source, made in sources.items():
        if source[0] == "tensor":
            made.sort(key=lambda number: events[number]["end_ns"])
    latest: dict[str, int | None] = {}
    before: list[int | None] = []
    spanning: list[int] = []
    causes: list[list[int]] = []
    for number, event in enumerate(events):
        invocation, found = event["invocation"], set()
        previous = latest.get(invocation)
        if event["op"] == "invoke" and event["worker"] < 0:
            spanning.append(number)
            previous = None
        elif event["op"] == "transition":
            # It names the invocation that it is about, and is no part of it.
            previous = None
        elif invocation:
            # Of events that overlap (a function with threads), the next common predecessor counts.
            if previous is not None and events[previous]["end_ns"] > event["start_ns"]:
                previous = before[previous]
            latest[invocation] = number
        before.append(previous)
        if previous is not None:
            found.add(previous)
        for source in _got(event):
            made = sources.get(source, [])
            # The latest that had started (of tensors: ended) when the get or the delivery ended.
            mark = "end_ns" if source[0] == "tensor" else "start_ns"
            if index := bisect_left(made, event["end_ns"], key=lambda put: events[put][mark]):
                found.add(made[index - 1])
        causes.append(sorted(found))
    for number in spanning:
        # What a retry did under the same request id came later.
        last = latest.get(events[number]["invocation"])
        while last is not None and events[last]["end_ns"] > events[number]["end_ns"]:
            last = before[last]
        causes[number] = [] if last is None else [last]
    return causes


def _made(event: Mapping[str, Any]) -> list[Source]:
    """What an event makes for others to get: an object by key and ETag, a message by its id, tensors by their keys."""
    op, etag = event["op"], event["etag"]
    if op == "queue.publish" and etag is not None:
        # Also one that failed: a connection can break after the broker has the message and before it says so.
        return [("message", "", etag)]
    if event["failed"]:
        return []
    if op == "object.put" and etag is not None:
        return [("object", event["resource"], etag)]
    return [("tensor", event["resource"], "")] if op in ("tensor.set", "tensor.script") else []


def _got(event: Mapping[str, Any]) -> list[Source]:
    """What an event got of what others made."""
    op, etag = event["op"], event["etag"]
    if event["failed"]:
        return []
    if op == "object.get" and etag is not None:
        return [("object", event["resource"], etag)]
    if op == "queue.deliver" and etag is not None:
        # One publish to an exchange is delivered from many queues.
        return [("message", "", etag)]
    if op == "tensor.get":
        return [("tensor", event["resource"], "")]
    return [("tensor", resource, "") for resource in event.get("reads", ())] if op == "tensor.script" else []
