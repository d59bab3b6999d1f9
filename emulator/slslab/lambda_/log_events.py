"""What all environments have written, as CloudWatch Logs has it: events of log streams, in the order of their time.

Nothing is copied while functions run: their logs are files, of which an index of times and places is kept. Lines are
read when somebody asks for them.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from slslab.aws.errors import invalid
from slslab.aws.gate import principal

PATH = "/slslab/logs"
# What one environment writes within this time is one entry of the index, and has the time of its first byte.
TOGETHER_MS = 10
# documented: cloudwatch_limits_cwl.html: a request of PutLogEvents has at most 1 MB; so has an answer, about.
ANSWER_BYTES = 1 << 20


@dataclass
class Written:
    """What one environment wrote at about one time, by its place in the file of its log."""

    log: "StreamLog"
    time_ms: int
    start: int
    end: int


@dataclass(frozen=True)
class StreamLog:
    """The log of one environment: its group and stream, and the file."""

    group: str
    stream: str
    path: Path


class LogEvents:
    """The log events of one emulator's functions."""

    def __init__(self) -> None:
        self._written: list[Written] = []
        # How many entries have been taken, to which nothing is added any more.
        self._taken = 0

    def writer(self, group: str, stream: str, path: Path) -> Callable[[int, int], None]:
        """Return what is called with the place of each piece that is written to a file."""
        log = StreamLog(group, stream, path)

        def wrote(start: int, end: int) -> None:
            now_ms = time.time_ns() // 1_000_000
            last = self._written[-1] if len(self._written) > self._taken else None
            if last is not None and last.log is log and now_ms - last.time_ms < TOGETHER_MS:
                last.end = end
            else:
                self._written.append(Written(log, now_ms, start, end))

        return wrote

    def take(self, since: int) -> list[Written]:
        """Return the entries since this one."""
        self._taken = len(self._written)
        return self._written[since:]

    def route(self) -> Route:
        """Return the route by which the owner reads the events since a cursor (`?since=`, 0 for all)."""
        return Route(PATH, self._read)

    async def _read(self, request: Request) -> Response:
        principal(request).require("logs:FilterLogEvents", "*")
        since = request.query_params.get("since", "0")
        if not since.isdecimal() or int(since) > len(self._written):
            raise invalid(f"There is no log event {since}.")
        return JSONResponse(await run_in_threadpool(read_events, self.take(int(since)), int(since)))


def read_events(written: Sequence[Written], since: int) -> dict[str, Any]:
    """Return the events of these entries, about a megabyte, with the cursor behind them, and whether there are more."""
    events: list[dict[str, Any]] = []
    size, count = 0, 0
    while count < len(written) and size < ANSWER_BYTES:
        entry = written[count]
        about = {"group": entry.log.group, "stream": entry.log.stream, "timestamp_ms": entry.time_ms}
        events += [{**about, "message": line} for line in _lines(entry)]
        size, count = size + entry.end - entry.start, count + 1
    return {"events": events, "cursor": since + count, "more": count < len(written)}


def _lines(entry: Written) -> list[str]:
    """Return the lines that end in an entry; the first may have begun in an earlier one, and the last may wait."""
    with entry.log.path.open("rb") as file:
        begin = _line_start(file.fileno(), entry.start)
        text = os.pread(file.fileno(), entry.end - begin, begin)
    # measured: an event of a text log is a line without its line break, but for REPORT's tab.
    return [line.decode(errors="replace") for line in text.split(b"\n")[:-1] if line]


def _line_start(file: int, position: int) -> int:
    """Return where the line begins in which this position is."""
    while position:
        back = max(0, position - 4096)
        found = os.pread(file, position - back, back).rfind(b"\n")
        if found >= 0:
            return back + found + 1
        position = back
    return 0
