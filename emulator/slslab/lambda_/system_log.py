"""What Lambda itself writes into a function's log: as text, or as JSON (LoggingConfig).

The lines for successes are measured (recorded from AWS). JSON lines for failures are assumed to differ only in their
status. Figures that aren't measured here, such as a runtime's overhead, are left out.
https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-logformat.html
"""

import json
from datetime import UTC, datetime
from typing import Any

from slslab.aws.limits import MB, billed_ms
from slslab.host.output import FunctionLog
from slslab.lambda_.configuration import Function
from slslab.lambda_.references import function_arn
from slslab.lambda_.stored_settings import without_effect
from slslab.run.records import report_line

# documented: monitoring-cloudwatchlogs-log-level.html: which system log level shows a line, if all went well.
SHOWN_AT = {"platform.initRuntimeDone": "DEBUG", "platform.initReport": "DEBUG", "platform.runtimeDone": "DEBUG"}
LEVELS = ("DEBUG", "INFO", "WARN")


class SystemLog:
    """Writes Lambda's lines into the log of one environment."""

    def __init__(self, function: Function, log: FunctionLog, stream: str) -> None:
        self._function = function
        self._log = log
        self._stream = stream
        self._json = function.logging.get("LogFormat") == "JSON"
        self._level = function.logging.get("SystemLogLevel", "INFO")

    def begin_init(self, runtime: str) -> None:
        """Begin an environment's log, and name the function's settings that have no effect here."""
        if self._json:
            version = {"runtimeVersion": runtime}
            place = {"instanceId": self._stream, "instanceMaxMemory": self._function.memory_mb * MB}
            name = {"functionName": self._function.name, "functionVersion": self._function.version}
            self._platform("platform.initStart", {**INIT, **version, **name, **place})
        else:
            self._write(f"INIT_START Runtime Version: {runtime}\tLog Stream: {self._stream}\n")
        for line in without_effect(self._function.stored):
            self._write(f"slslab: {line}\n")

    def end_init(self, init_ms: float, status: str, error_type: str) -> None:
        """Report an initialisation; in a text log, only a failed one."""
        error = {"errorType": error_type} if error_type else {}
        if self._json:
            ended = {**INIT, "status": status, **error}
            self._platform("platform.initRuntimeDone", ended)
            self._platform("platform.initReport", {**ended, "metrics": {"durationMs": init_ms}})
        elif status != "success":
            suffix = f"\tError Type: {error_type}" if error_type else ""
            self._write(f"INIT_REPORT Init Duration: {init_ms:.2f} ms\tPhase: init\tStatus: {status}{suffix}\n")

    def begin(self, request_id: str) -> None:
        """Begin an invocation's log; Invoke returns its tail."""
        self._log.begin()
        version = self._function.version
        if self._json:
            arn = function_arn(self._function.name)
            self._platform("platform.start", {"requestId": request_id, "functionArn": arn, "version": version})
        else:
            self._write(f"START RequestId: {request_id} Version: {version}\n")

    def end(
        self,
        request_id: str,
        duration_ms: float,
        init_ms: float | None,
        used_mb: int,
        status: str,
        error_type: str,
        cause: str = "",
    ) -> str:
        """End an invocation's log and return its REPORT line; `cause` is why the runtime ended, if it did."""
        memory_mb = self._function.memory_mb
        report = report_line(request_id, duration_ms, init_ms, memory_mb, used_mb, status, error_type)
        if cause:
            self._write(f"{cause}\n{error_type}\n")
        if self._json:
            error = {"errorType": error_type} if error_type else {}
            init = {"initDurationMs": init_ms} if init_ms is not None else {}
            metrics = {
                "durationMs": duration_ms,
                "billedDurationMs": billed_ms(duration_ms, init_ms),
                "memorySizeMB": memory_mb,
                "maxMemoryUsedMB": used_mb,
                **init,
            }
            ended = {"requestId": request_id, "status": status, **error}
            self._platform("platform.runtimeDone", {**ended, "metrics": {"durationMs": duration_ms}})
            self._platform("platform.report", {"requestId": request_id, "metrics": metrics, "status": status, **error})
            return report
        self._write(f"END RequestId: {request_id}\n{report}")
        if status == "timeout":
            seconds = f"{self._function.timeout_s:.2f} seconds"
            self._write(f"{_now()} {request_id} Task timed out after {seconds}\n\n")
        return report

    def _platform(self, kind: str, record: dict[str, Any]) -> None:
        level = SHOWN_AT.get(kind, "INFO") if record.get("status", "success") == "success" else "WARN"
        if LEVELS.index(level) >= LEVELS.index(self._level):
            line = {"time": _now(), "type": kind, "record": record}
            self._write(json.dumps(line, separators=(",", ":")) + "\n")

    def _write(self, text: str) -> None:
        self._log.say(text.encode())


INIT = {"initializationType": "on-demand", "phase": "init"}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
