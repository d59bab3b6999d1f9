"""Read a trace log as it grows."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slslab.run.log import parse

Record = dict[str, Any]


@dataclass
class Log:
    """The content of a trace log so far: its whole lines, and unmetered begun records by id."""

    path: Path
    records: list[Record] = field(default_factory=list)
    invocations: dict[str, Record] = field(default_factory=dict)
    instances: dict[str, Record] = field(default_factory=dict)
    hosts: dict[str, Record] = field(default_factory=dict)
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
            begun = {"invocation": self.invocations, "instance": self.instances, "host": self.hosts}
            # A later attempt at an event has the same id as the first.
            begun.get(record["of"], {})[record["id"]] = record
        elif kind == "invocation":
            self.invocations.pop(record["request_id"], None)
        elif kind == "instance":
            self.instances.pop(record["id"], None)
        elif kind == "event" and record["op"] == "host.run":
            ended = next((id_ for id_, host in self.hosts.items() if host["type"] == record["resource"]), "")
            self.hosts.pop(ended, None)
