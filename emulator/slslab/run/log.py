"""The trace of a run: a log while it runs, compacted into Parquet at its end or after a crash.

Schema 2 is documented in docs/trace.md. Times are nanoseconds of CLOCK_MONOTONIC, one clock domain per host and boot.
"""

import fcntl
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Self

from slslab.errors import HostError, RunError, writable
from slslab.installation import installed
from slslab.run.events import clock_domain
from slslab.run.reading import reading
from slslab.run.records import check_metered, check_record
from slslab.run.table import SCHEMA, Trace, tabulate
from slslab_workers.trace.appending import append

LOG = "trace.jsonl"
TABLE = "trace.parquet"
# The description of `slslab up`, in place of a plan in its directory.
SERVICE = "service.json"
INVOCATIONS = "invocations.jsonl"
INSTANCES = "instances.jsonl"
Begun = dict[str, dict[str, Mapping[str, Any]]]


class TraceWriter:
    """Appends records to a run's trace log, each with one write, so that a killed run keeps them."""

    def __init__(self, path: Path, run: str) -> None:
        self._lock = threading.Lock()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.write({"record": "header", "schema": SCHEMA, "run": run, "clock": clock_domain(), "started": started})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            os.close(self._descriptor)
            self._descriptor = -1

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record, or raise HostError and write nothing; after the end of the trace, drop it."""
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._descriptor < 0:
                return
            try:
                append(self._descriptor, line)
            except OSError as error:
                raise HostError(f"The trace cannot be written: {error.strerror}.", "make room for runs.") from error


class GrowingLog:
    """Reads a trace log, also while another process appends to it.

    `records` are all that were read; `torn` tells whether the last line is incomplete.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self.records: list[dict[str, Any]] = []
        self.torn = False

    def read(self) -> list[dict[str, Any]]:
        """Return the records of whole lines that were appended since the last call.

        FileNotFoundError for a log that was compacted, RunError for an invalid line.
        """
        with self._path.open("rb") as file:
            file.seek(self._offset)
            *lines, rest = file.read().split(b"\n")
        first = len(self.records) + 1
        records = [_parse(line, f"Line {number} of {self._path}") for number, line in enumerate(lines, first)]
        self._offset += sum(len(line) + 1 for line in lines)
        self.torn = rest != b""
        self.records += records
        return records


def _parse(line: bytes, source: str) -> dict[str, Any]:
    with reading(source, "a trace record"):
        record: dict[str, Any] = json.loads(line)
        check_record(record)
    return record


def read_log(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """Return the records of a trace log, and whether its last line is torn; RunError if another line is broken."""
    log = GrowingLog(path)
    with reading(path, "a trace"):
        records = log.read()
    if not records or records[0]["record"] != "header":
        raise RunError(f"{path} has no header.", "the run ended before its trace began; run the plan again.")
    if records[0]["schema"] != SCHEMA:
        raise RunError(
            f"{path} has trace schema {records[0]['schema']}, and this version reads {SCHEMA}.",
            "use the version of slslab that recorded it.",
        )
    return records, log.torn


def compact(directory: Path) -> Trace:
    """Replace an ended run's log with a Parquet table, invocations.jsonl and, if any, instances.jsonl.

    The same log gives the same files; the log is removed when they are on disk. Two commands may call this at once.
    """
    from slslab.run.parquet import read_table, write_table  # slow to import, and many commands don't need it

    with locked(directory):
        if not (directory / LOG).exists():
            return read_table(directory / TABLE)
        trace, records = _tabulated(directory / LOG)
        with writing(directory / TABLE) as file:
            write_table(trace, file)
        write_records(directory / INVOCATIONS, metered(records, "invocation"))
        if instance_records := metered(records, "instance"):
            write_records(directory / INSTANCES, instance_records)
        (directory / LOG).unlink()
        return trace


@contextmanager
def locked(directory: Path, flags: int = 0) -> Iterator[None]:
    """Hold a directory's lock, which excludes other processes; with LOCK_NB, BlockingIOError if another one has it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | flags)
        yield
    finally:
        os.close(descriptor)


def load(directory: Path) -> Trace:
    """Return the trace of a run that has ended; after a crash, compact its log first. RunError if it is missing.

    Without pyarrow a log isn't compacted, nor is a service's log, which may still grow.
    """
    is_service = (directory / SERVICE).exists()
    if is_service or (directory / LOG).exists():
        return compact(directory) if installed("pyarrow") and not is_service else _tabulated(directory / LOG)[0]
    if not (directory / TABLE).exists():
        raise RunError(f"{directory} has no trace.", "the run ended before it began; run the plan again.")
    from slslab.run.parquet import read_table  # as above

    return read_table(directory / TABLE)


def _tabulated(path: Path) -> tuple[Trace, list[dict[str, Any]]]:
    records, torn = read_log(path)
    with reading(path, "a trace"):
        return Trace(tabulate(records), torn), records


def metered_records(directory: Path, kind: str = "invocation") -> list[dict[str, Any]]:
    """Return the metered records of a run's invocations or instances (`kind`), from its log or what replaced it."""
    if (directory / LOG).exists():
        return metered(read_log(directory / LOG)[0], kind)
    path = directory / f"{kind}s.jsonl"
    if not path.exists():
        return []
    with reading(path, f"the records of {kind}s"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records:
            check_metered(record, kind)
    return records


def write_records(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write a metered record on each line."""
    with writing(path) as file:
        file.writelines(json.dumps(record).encode() + b"\n" for record in records)


@contextmanager
def replacing(path: Path, *, on_disk: bool = True) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` once it is complete and `on_disk`; an exception leaves `path` as it was.

    Other processes may read and replace `path` meanwhile. If it is a device or a pipe, write to it directly.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            if on_disk:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with suppress(OSError):  # it may not exist
            temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Open a file of a run that is replaced atomically; HostError if it can't be written."""
    with writable(path, "make room for runs; the trace so far is kept.", HostError), replacing(path) as file:
        yield file


def metered(records: Sequence[Mapping[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return the metered records of this kind (`invocation` or `instance`) from a log's records."""
    return [{k: v for k, v in r.items() if k != "record"} for r in records if r["record"] == kind]


def unmetered(records: Iterable[Mapping[str, Any]]) -> Begun:
    """Return the `begin` records of what hasn't been metered yet, by kind (invocation, instance, host) and id.

    Invocations and instances end with their metered record, and hosts with an event.
    """
    begun: Begun = {"invocation": {}, "instance": {}, "host": {}}
    for record in records:
        match record["record"]:
            case "begin":
                # A later attempt at an event has the same id as the first.
                begun.setdefault(record["of"], {})[record["id"]] = record
            case "invocation" | "instance" as kind:
                begun[kind].pop(record["request_id" if kind == "invocation" else "id"], None)
            case "event" if record["op"] == "host.run":
                hosts = begun["host"]
                hosts.pop(next((id_ for id_, host in hosts.items() if host["type"] == record["resource"]), ""), None)
    return begun
