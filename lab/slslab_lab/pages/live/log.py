"""Read a trace log as it grows."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slslab.run.log import parse

Record = dict[str, Any]
# What begins and is metered later, by the end of its record; hosts end with an event.
KINDS = ("invocation", "instance", "host")


@dataclass
class Log:
    """The content of a trace log so far: its whole lines, and unmetered begun records by kind and id."""

    path: Path
    records: list[Record] = field(default_factory=list)
    begun: dict[str, dict[str, Record]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    _offset: int = 0

    def read(self) -> bool:
        """Read the whole lines that were appended since the last call; return whether there were any.

        A missing log was compacted at its run's end, so lines read earlier stay. RunError for an invalid line.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                appended = file.read()
        except FileNotFoundError:
            return False
        whole = appended[: appended.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._take(parse(line, f"A line of {self.path}"))
        self._offset += len(whole)
        return bool(whole)

    def _take(self, record: Record) -> None:
        self.records.append(record)
        kind = record["record"]
        if kind == "begin":
            # A later attempt at an event has the same id as the first.
            self.begun[record["of"]][record["id"]] = record
        elif kind in KINDS:
            self.begun[kind].pop(record["request_id" if kind == "invocation" else "id"], None)
        elif kind == "event" and record["op"] == "host.run":
            hosts = self.begun["host"]
            ended = next((id_ for id_, host in hosts.items() if host["type"] == record["resource"]), "")
            hosts.pop(ended, None)
