"""The logs of one emulator's environments: log streams as CloudWatch Logs has them, and a file for each."""

import time
import uuid
from pathlib import Path

from slslab.host.output import FunctionLog
from slslab.lambda_.configuration import Function
from slslab.lambda_.log_events import LogEvents


class EnvironmentLogs:
    """Opens logs in one directory; Invoke returns at most `tail_bytes` of one, and `events` has the index of all."""

    def __init__(self, directory: Path, tail_bytes: int, events: LogEvents) -> None:
        self._directory = directory
        self._tail_bytes = tail_bytes
        self._events = events

    def open(self, function: Function, environment: str) -> tuple[str, FunctionLog]:
        """Return the name of the log stream of an environment, by its id, and its log."""
        # documented: monitoring-cloudwatchlogs-view.html shows such a name; its 32 hexadecimal digits are measured.
        # A log group of the function's own choice may have others' logs, too (measured).
        prefix = function.name if "LogGroup" in function.logging else ""
        day = time.strftime("%Y/%m/%d", time.gmtime())
        stream = f"{day}/{prefix}[{function.version}]{uuid.uuid4().hex}"
        path = self._directory / f"{environment}.log"
        return stream, FunctionLog(path, self._tail_bytes, self._events.writer(function.log_group, stream, path))
