"""The logs of environments, with what Lambda itself writes into them, and their events as in CloudWatch Logs.

Nothing is copied while functions run. Their logs are files, and an index holds times and positions. Lines are read
when somebody asks for them.

Lambda's lines for successes are measured (recorded from AWS). JSON lines for failures are assumed to differ only in
their status. Figures that aren't measured here, such as a runtime's overhead, are left out.
https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-logformat.html
"""

import json
import os
import struct
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from slslab.aws.errors import invalid
from slslab.aws.gate import principal
from slslab.aws.limits import MB
from slslab.host.output import FunctionLog
from slslab.lambda_.configuration import Function, without_effect
from slslab.lambda_.references import function_arn
from slslab.run.records import InvocationRecord

PATH = "/slslab/logs"
# Text that an environment writes within this time is one entry of the index, with the time of its first byte.
TOGETHER_MS = 10
# documented: cloudwatch_limits_cwl.html: a PutLogEvents request has at most 1 MB. Our answers have about as much.
ANSWER_BYTES = 1 << 20
# An entry in the file: text that one environment wrote at about the same time. It has the log's number, the time (ms),
# where its first line starts and where it ends in the log's file, and whether it is a record. A record is one event,
# even with several lines; in other text, each line is an event.
ENTRY = struct.Struct("<QQQQ?")
# The most entries to read for one answer.
MOST_ENTRIES = 1 << 14
# documented: monitoring-cloudwatchlogs-log-level.html; and which system log level shows a line, if all went well.
LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
SHOWN_AT = {"platform.initRuntimeDone": "DEBUG", "platform.initReport": "DEBUG", "platform.runtimeDone": "DEBUG"}
INIT = {"initializationType": "on-demand", "phase": "init"}


class LogEvents:
    """The logs of one emulator's environments, in `directory`, and their events; Invoke returns `tail_bytes` of a log.

    The index is an unnamed file in `home`, so that memory doesn't grow with every invocation.
    """

    def __init__(self, home: Path, directory: Path, tail_bytes: int) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._tail_bytes = tail_bytes
        self._file = TemporaryFile(dir=home)  # noqa: SIM115
        # The group, the stream and the file of each log.
        self._logs: list[tuple[str, str, Path]] = []
        # The number of entries in the file, and the latest entry, which may still grow.
        self._count = 0
        self._last: tuple[int, int, int, int, bool] | None = None

    def open(self, function: Function, environment: str) -> "EnvironmentLog":
        """Return the log of an environment, by its id."""
        # documented: monitoring-cloudwatchlogs-view.html shows such a name; its 32 hexadecimal digits are measured.
        # A log group that the function chose may also contain other functions' logs (measured).
        prefix = function.name if "LogGroup" in function.logging else ""
        day = time.strftime("%Y/%m/%d", time.gmtime())
        stream = f"{day}/{prefix}[{function.version}]{uuid.uuid4().hex}"
        path = self.directory / f"{environment}.log"
        wrote = self.writer(function.log_group, stream, path)
        return EnvironmentLog(function, stream, path, self._tail_bytes, wrote)

    def writer(self, group: str, stream: str, path: Path) -> Callable[[int, int, bool], None]:
        """Return a function to call with where each piece's first line starts, its end, and whether it is a record."""
        log = len(self._logs)
        self._logs.append((group, stream, path))

        def wrote(start: int, end: int, record: bool) -> None:
            now_ms = time.time_ns() // 1_000_000
            if self._last is not None:
                last, began_ms, first, _, is_record = self._last
                if last == log and not (record or is_record) and now_ms - began_ms < TOGETHER_MS:
                    self._last = log, began_ms, first, end, False
                    return
                self._keep()
            self._last = log, now_ms, start, end, record

        return wrote

    def count(self) -> int:
        """Return the number of entries; they don't grow any more."""
        self._keep()
        self._file.flush()
        return self._count

    def read(self, since: int, until: int) -> dict[str, Any]:
        """Return the events of these entries, about a megabyte, the cursor after them, and whether there are more."""
        most = min(until - since, MOST_ENTRIES)
        entries = os.pread(self._file.fileno(), most * ENTRY.size, since * ENTRY.size)
        events: list[dict[str, Any]] = []
        size, cursor = 0, since
        for number, time_ms, start, end, record in ENTRY.iter_unpack(entries):
            if size >= ANSWER_BYTES:
                break
            group, stream, path = self._logs[number]
            about = {"group": group, "stream": stream, "timestamp_ms": time_ms}
            events += [{**about, "message": text} for text in _messages(path, start, end, record)]
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
            self._file.write(ENTRY.pack(*self._last))
            self._last = None
            self._count += 1

    async def _read(self, request: Request) -> Response:
        principal(request).require("logs:FilterLogEvents", "*")
        since, until = request.query_params.get("since", "0"), self.count()
        if not since.isdecimal() or int(since) > until:
            raise invalid(f"There is no log event {since}.")
        return JSONResponse(await run_in_threadpool(self.read, int(since), until))


def _messages(path: Path, start: int, end: int, record: bool) -> list[str]:
    """Return the record, or the lines that end here."""
    with path.open("rb") as file:
        text = os.pread(file.fileno(), end - start, start)
    if record:
        return [text.removesuffix(b"\n").decode(errors="replace")]
    # measured: an event of a text log is a line without its line break; REPORT keeps its tab.
    return [line.decode(errors="replace") for line in text.split(b"\n")[:-1] if line]


class EnvironmentLog(FunctionLog):
    """The log of one environment; `stream` is the name of its log stream."""

    def __init__(
        self,
        function: Function,
        stream: str,
        path: Path,
        tail_bytes: int,
        wrote: Callable[[int, int, bool], None] = lambda _start, _end, _record: None,
    ) -> None:
        super().__init__(path, tail_bytes, wrote, line_filter(function.logging))
        self.stream = stream
        self._function = function
        self._json = function.logging.get("LogFormat") == "JSON"
        self._level = function.logging.get("SystemLogLevel", "INFO")

    def begin_init(self, runtime: str) -> None:
        """Begin an environment's log, and name the function's settings that have no effect here."""
        if self._json:
            about = {
                **INIT,
                "runtimeVersion": runtime,
                "functionName": self._function.name,
                "functionVersion": self._function.version,
                "instanceId": self.stream,
                "instanceMaxMemory": self._function.memory_mb * MB,
            }
            self._platform("platform.initStart", about)
        else:
            self.say(f"INIT_START Runtime Version: {runtime}\tLog Stream: {self.stream}\n".encode())
        for line in without_effect(self._function.stored):
            self.say(f"slslab: {line}\n".encode())

    def end_init(self, init_ms: float, status: str, error_type: str) -> None:
        """Report an initialisation; in a text log, only a failed one."""
        error = {"errorType": error_type} if error_type else {}
        if self._json:
            ended = {**INIT, "status": status, **error}
            self._platform("platform.initRuntimeDone", ended)
            self._platform("platform.initReport", {**ended, "metrics": {"durationMs": init_ms}})
        elif status != "success":
            suffix = f"\tError Type: {error_type}" if error_type else ""
            self.say(f"INIT_REPORT Init Duration: {init_ms:.2f} ms\tPhase: init\tStatus: {status}{suffix}\n".encode())

    def start(self, request_id: str) -> None:
        """Begin an invocation's log; Invoke returns its tail."""
        self.tail = b""
        version = self._function.version
        if self._json:
            arn = function_arn(self._function.name)
            self._platform("platform.start", {"requestId": request_id, "functionArn": arn, "version": version})
        else:
            self.say(f"START RequestId: {request_id} Version: {version}\n".encode())

    def end(self, record: InvocationRecord, cause: str = "") -> None:
        """End an invocation's log; `cause` is why the runtime ended, if it did."""
        request_id, status = record.request_id, record.status
        if cause:
            self.say(f"{cause}\n{record.error_type}\n".encode())
        if self._json:
            error = {"errorType": record.error_type} if record.error_type else {}
            init = {"initDurationMs": record.init_ms} if record.init_ms is not None else {}
            metrics = {
                "durationMs": record.duration_ms,
                "billedDurationMs": record.billed_ms,
                "memorySizeMB": record.memory_mb,
                "maxMemoryUsedMB": record.max_memory_mb,
                **init,
            }
            ended = {"requestId": request_id, "status": status, **error}
            self._platform("platform.runtimeDone", {**ended, "metrics": {"durationMs": record.duration_ms}})
            self._platform("platform.report", {"requestId": request_id, "metrics": metrics, "status": status, **error})
            return
        self.say(f"END RequestId: {request_id}\n{record.report}".encode())
        if status == "timeout":
            seconds = f"{self._function.timeout_s:.2f} seconds"
            self.say(f"{_now()} {request_id} Task timed out after {seconds}\n\n".encode())

    def _platform(self, kind: str, record: dict[str, Any]) -> None:
        level = SHOWN_AT.get(kind, "INFO") if record.get("status", "success") == "success" else "WARN"
        if LEVELS.index(level) >= LEVELS.index(self._level):
            line = {"time": _now(), "type": kind, "record": record}
            self.say(json.dumps(line, separators=(",", ":")).encode() + b"\n")


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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
