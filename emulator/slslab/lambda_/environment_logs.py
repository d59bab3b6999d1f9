"""The logs of one emulator's environments: log streams as CloudWatch Logs has them, and a file for each."""

import json
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from slslab.host.output import FunctionLog
from slslab.lambda_.configuration import Function
from slslab.lambda_.log_events import LogEvents

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
