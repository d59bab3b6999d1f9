"""The trace of a run: appended while it goes on, compacted into Parquet at its end or after a crash.

Schema 1 is documented in docs/trace.md. Times are nanoseconds of CLOCK_MONOTONIC, one clock domain per host and boot.
"""

import json
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slslab.errors import RunError

SCHEMA = 1
LOG = "trace.jsonl"
TABLE = "trace.parquet"
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
        ("bytes", pa.int64()),
        ("requests", pa.int64()),
        ("resource", pa.string()),
        ("etag", pa.string()),
        ("overhead", pa.bool_()),
        ("failed", pa.bool_()),
        ("causes", pa.list_(pa.int64())),
    ]
)


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
        self.write({"record": "header", "schema": SCHEMA, "run": run, "clock": _clock_domain(), "started": started})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            os.close(self._descriptor)
            self._descriptor = -1

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record; a late one, after the end of the trace, is dropped with the run it belongs to."""
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._descriptor >= 0:
                os.write(self._descriptor, line)


def read_log(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """Records of a trace log, and whether its last line is torn; RunError for a line that is broken elsewhere."""
    lines = path.read_bytes().split(b"\n")
    torn = lines.pop() != b""
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise RunError(
                f"Line {number} of {path} is not a trace record: {error}.", "the file was changed; run the plan again."
            ) from error
    if not records or records[0].get("record") != "header":
        raise RunError(f"{path} has no header.", "the run ended before its trace began; run the plan again.")
    if records[0]["schema"] != SCHEMA:
        raise RunError(
            f"{path} has trace schema {records[0]['schema']}, and this version reads {SCHEMA}.",
            "use the version of slslab that recorded it.",
        )
    return records, torn


def compact(directory: Path) -> Trace:
    """Turn the log of a run into its Parquet table, which replaces it; the same log gives the same table."""
    records, torn = read_log(directory / LOG)
    events = _table(records)
    metadata = {b"slslab.schema": str(SCHEMA).encode(), b"slslab.torn": str(int(torn)).encode()}
    temporary = directory / f".{TABLE}.tmp"
    pq.write_table(events.replace_schema_metadata(metadata), temporary, compression="zstd")
    temporary.replace(directory / TABLE)
    (directory / LOG).unlink()
    return Trace(events, torn)


def load(directory: Path) -> Trace:
    """The trace of a run; after a crash, its log is compacted first."""
    if not (directory / TABLE).exists():
        if not (directory / LOG).exists():
            raise RunError(f"{directory} has no trace.", "the run ended before it began; run the plan again.")
        return compact(directory)
    table = pq.read_table(directory / TABLE)
    metadata = table.schema.metadata or {}
    if int(metadata.get(b"slslab.schema", b"0")) != SCHEMA:
        raise RunError(
            f"{directory / TABLE} is not of trace schema {SCHEMA}.", "use the version of slslab that recorded it."
        )
    return Trace(table, metadata.get(b"slslab.torn") == b"1")


def invocations(directory: Path) -> list[dict[str, Any]]:
    """The metered records of a run's invocations, out of its trace log or of the file made from it."""
    if (directory / LOG).exists():
        records, _ = read_log(directory / LOG)
        return [{k: v for k, v in r.items() if k != "record"} for r in records if r["record"] == "invocation"]
    path = directory / "invocations.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _table(records: list[dict[str, Any]]) -> pa.Table:
    header = records[0]
    events = [record for record in records if record["record"] == "event"]
    # Equal starts are told apart by the end and then by the order of arrival, so that the numbering is reproducible.
    events.sort(key=lambda event: (event["start_ns"], event["end_ns"]))
    delays = _host_delays(records)
    causes = _causes(events)
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS.names}
    for number, event in enumerate(events):
        for name in COLUMNS.names:
            columns[name].append(event.get(name))
        columns["event"][-1] = number
        columns["run"][-1] = header["run"]
        columns["clock"][-1] = header["clock"]
        columns["causes"][-1] = causes[number]
        columns["host_delay_ns"][-1] = delays.between(event["environment"], event["start_ns"], event["end_ns"])
    return pa.table(columns, schema=COLUMNS)


class _HostDelays:
    """Cumulative host delay of each environment over time, linear between the clock's samples."""

    def __init__(self, samples: Mapping[str, tuple[list[int], list[int]]]) -> None:
        self._samples = samples

    def between(self, environment: str, start_ns: int, end_ns: int) -> int:
        if environment not in self._samples:
            return 0
        walls, delays = self._samples[environment]
        start, end = np.interp([start_ns, end_ns], walls, delays)
        return max(0, min(round(end - start), end_ns - start_ns))


def _host_delays(records: Iterable[Mapping[str, Any]]) -> _HostDelays:
    samples: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for record in records:
        if record["record"] == "clock":
            walls, delays = samples[record["environment"]]
            walls.append(record["wall_ns"])
            delays.append(record["host_delay_ns"])
    return _HostDelays(dict(samples))


def _causes(events: list[dict[str, Any]]) -> list[list[int]]:
    """Events that must precede each event: the one before it in its invocation, its environment's start if it is the
    first there, and for a fetched object the put that made it."""
    puts: dict[tuple[str, str], list[int]] = defaultdict(list)
    starts: dict[str, int] = {}
    for number, event in enumerate(events):
        if event["op"] == "object.put":
            puts[event["resource"], event["etag"]].append(number)
        elif event["op"] == "environment.start":
            starts[event["invocation"]] = number
    previous: dict[str, int] = {}
    causes: list[list[int]] = []
    for number, event in enumerate(events):
        found: list[int] = []
        invocation = event["invocation"]
        if event["worker"] >= 0:
            if invocation in previous:
                found.append(previous[invocation])
            elif invocation in starts:
                found.append(starts[invocation])
            previous[invocation] = number
        if event["op"] == "object.get" and not event["failed"]:
            made = [
                put
                for put in puts.get((event["resource"], event["etag"]), ())
                if events[put]["start_ns"] < event["end_ns"] and put != number
            ]
            if made and made[-1] not in found:
                found.append(made[-1])
        causes.append(sorted(found))
    return causes


def _clock_domain() -> str:
    return f"monotonic@{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
