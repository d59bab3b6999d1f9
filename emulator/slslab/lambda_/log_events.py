"""Everything that environments have written, as in CloudWatch Logs: events of log streams, sorted by time.

Nothing is copied while functions run. Their logs are files, and an index holds times and positions. Lines are read
when somebody asks for them.
"""

import json
import os
import struct
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from slslab.aws.errors import invalid
from slslab.aws.gate import principal
from slslab.host.output import FunctionLog
from slslab.lambda_.configuration import Function

PATH = "/slslab/logs"
# Text that an environment writes within this time is one entry of the index, with the time of its first byte.
TOGETHER_MS = 10
# documented: cloudwatch_limits_cwl.html: a PutLogEvents request has at most 1 MB. Our answers have about as much.
ANSWER_BYTES = 1 << 20
# An entry in the file: the number of its log, its time, start and end, and whether it is one record.
ENTRY = struct.Struct("<QQQQ?")
# The most entries to read for one answer.
MOST_ENTRIES = 1 << 14


@dataclass
class Written:
    """Text that one environment wrote at about the same time: its log's number, and its position in the log's file.

    A `record` is one event, even with several lines; in other text, each line is an event.
    """

    log: int
    time_ms: int
    start: int
    end: int
    record: bool


@dataclass(frozen=True)
class StreamLog:
    """The log of one environment: its group and stream, and the file."""

    group: str
    stream: str
    path: Path


class LogEvents:
    """The log events of one emulator's functions.

    The index is an unnamed file in `directory`, so that memory doesn't grow with every invocation.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115
        self._logs: list[StreamLog] = []
        # The number of entries in the file, and the latest entry, which may still grow.
        self._count = 0
        self._last: Written | None = None

    def writer(self, group: str, stream: str, path: Path) -> Callable[[int, int, bool], None]:
        """Return a function to call with the start and end of each piece written, and whether it is a record."""
        log = len(self._logs)
        self._logs.append(StreamLog(group, stream, path))

        def wrote(start: int, end: int, record: bool) -> None:
            now_ms = time.time_ns() // 1_000_000
            last = self._last
            alike = last is not None and last.log == log and not (record or last.record)
            if last is not None and alike and now_ms - last.time_ms < TOGETHER_MS:
                last.end = end
            else:
                self._keep()
                self._last = Written(log, now_ms, start, end, record)

        return wrote

    def count(self) -> int:
        """Return the number of entries; they don't grow any more."""
        self._keep()
        return self._count

    def read(self, since: int, until: int) -> dict[str, Any]:
        """Return the events of these entries, about a megabyte, the cursor after them, and whether there are more."""
        most = min(until - since, MOST_ENTRIES)
        places = os.pread(self._file.fileno(), most * ENTRY.size, since * ENTRY.size)
        events: list[dict[str, Any]] = []
        size, cursor = 0, since
        for number, time_ms, start, end, record in ENTRY.iter_unpack(places):
            if size >= ANSWER_BYTES:
                break
            log = self._logs[number]
            about = {"group": log.group, "stream": log.stream, "timestamp_ms": time_ms}
            events += [{**about, "message": text} for text in _messages(log.path, start, end, record)]
            size, cursor = size + end - start, cursor + 1
        return {"events": events, "cursor": cursor, "more": cursor < until}

    def route(self) -> Route:
        """Return the route for the owner to read the events since a cursor (`?since=`, 0 for all)."""
        return Route(PATH, self._read)

    def close(self) -> None:
        """Remove the index."""
        self._file.close()

    def _keep(self) -> None:
        if self._last is not None:
            last, self._last = self._last, None
            self._file.write(ENTRY.pack(last.log, last.time_ms, last.start, last.end, last.record))
            self._count += 1

    async def _read(self, request: Request) -> Response:
        principal(request).require("logs:FilterLogEvents", "*")
        since, until = request.query_params.get("since", "0"), self.count()
        if not since.isdecimal() or int(since) > until:
            raise invalid(f"There is no log event {since}.")
        return JSONResponse(await run_in_threadpool(self.read, int(since), until))


def _messages(path: Path, start: int, end: int, record: bool) -> list[str]:
    """Return the record, or the lines that end here. The first may begin in an earlier entry."""
    with path.open("rb") as file:
        begin = start if record else _line_start(file.fileno(), start)
        text = os.pread(file.fileno(), end - begin, begin)
    if record:
        return [text.removesuffix(b"\n").decode(errors="replace")]
    # measured: an event of a text log is a line without its line break; REPORT keeps its tab.
    return [line.decode(errors="replace") for line in text.split(b"\n")[:-1] if line]


def _line_start(file: int, position: int) -> int:
    while position:
        back = max(0, position - 4096)
        found = os.pread(file, position - back, back).rfind(b"\n")
        if found >= 0:
            return back + found + 1
        position = back
    return 0


# documented: monitoring-cloudwatchlogs-log-level.html.
LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


class EnvironmentLogs:
    """Opens logs in `directory`; Invoke returns at most `tail_bytes` of one, and `events` is the index of all."""

    def __init__(self, directory: Path, tail_bytes: int, events: LogEvents) -> None:
        self.directory = directory
        self._tail_bytes = tail_bytes
        self._events = events

    def open(self, function: Function, environment: str) -> tuple[str, FunctionLog]:
        """Return the name of the log stream of an environment, by its id, and its log."""
        # documented: monitoring-cloudwatchlogs-view.html shows such a name; its 32 hexadecimal digits are measured.
        # A log group that the function chose may also contain other functions' logs (measured).
        prefix = function.name if "LogGroup" in function.logging else ""
        day = time.strftime("%Y/%m/%d", time.gmtime())
        stream = f"{day}/{prefix}[{function.version}]{uuid.uuid4().hex}"
        path = self.directory / f"{environment}.log"
        wrote = self._events.writer(function.log_group, stream, path)
        return stream, FunctionLog(path, self._tail_bytes, wrote, line_filter(function.logging))


def line_filter(config: Mapping[str, str]) -> Callable[[bytes], bool] | None:
    """Return a function that decides whether a line is logged at this ApplicationLogLevel; None if all lines are.

    documented: monitoring-cloudwatchlogs-log-level.html: levels need the JSON format. A JSON line has the level that it
    names; all other lines are INFO.
    """
    least = LEVELS.index(config.get("ApplicationLogLevel", LEVELS[0]))
    return (lambda line: _level(line) >= least) if least else None


def _level(line: bytes) -> int:
    try:
        said = str(json.loads(line)["level"]).upper()
    except (ValueError, LookupError, TypeError, RecursionError):
        said = "INFO"
    said = {"WARNING": "WARN", "CRITICAL": "FATAL"}.get(said, said)  # Python's names
    return LEVELS.index(said if said in LEVELS else "INFO")
