"""Read a trace log as it grows."""

from pathlib import Path
from typing import Any

from slslab.run.log import GrowingLog

Record = dict[str, Any]
# What begins and is metered later, by the end of its record; hosts end with an event.
KINDS = ("invocation", "instance", "host")


class Log:
    """The content of a trace log so far: its whole lines, and unmetered begun records by kind and id."""

    def __init__(self, path: Path) -> None:
        self._log = GrowingLog(path)
        self.records: list[Record] = []
        self.begun: dict[str, dict[str, Record]] = {kind: {} for kind in KINDS}

    def read(self) -> bool:
        """Read the whole lines that were appended since the last call; return whether there were any.

        A missing log was compacted at its run's end, so lines read earlier stay. RunError for an invalid line.
        """
        try:
            appended = self._log.read()
        except FileNotFoundError:
            return False
        for record in appended:
            self._take(record)
        return bool(appended)

    def _take(self, record: Record) -> None:
        self.records.append(record)
        kind = record["record"]
        if kind == "begin":
            # A later attempt at an event has the same id as the first.
            self.begun.setdefault(record["of"], {})[record["id"]] = record
        elif kind in KINDS:
            self.begun[kind].pop(record["request_id" if kind == "invocation" else "id"], None)
        elif kind == "event" and record["op"] == "host.run":
            hosts = self.begun["host"]
            ended = next((id_ for id_, host in hosts.items() if host["type"] == record["resource"]), "")
            hosts.pop(ended, None)
