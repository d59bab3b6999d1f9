"""Finished runs, with everything that an export takes from them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from slslab.errors import RequestError
from slslab.reports.document import read_document
from slslab.trace.directory import PLAN, resolve
from slslab.trace.log import instances, invocations, load
from slslab.trace.metrics import grouped


@dataclass(frozen=True)
class Finished:
    """A finished run: its directory, document, trace and metered records."""

    path: Path
    document: Mapping[str, Any]
    events: pa.Table
    invocations: list[dict[str, Any]]
    instances: list[dict[str, Any]]

    @property
    def id(self) -> str:
        """Return the run's id."""
        return str(self.document["run"])

    def unix_ns(self, monotonic_ns: int) -> int:
        """Return an instant of the trace as nanoseconds since 1970, UTC, to the millisecond; without any metered
        record, nanoseconds since the host booted."""
        metered = next(iter((*self.invocations, *self.instances)), None)
        if metered is None:
            return monotonic_ns
        began = round(datetime.fromisoformat(metered["started_at"]).timestamp() * 1000) * 1_000_000
        return int(began + monotonic_ns - metered["start_ns"])

    def epoch_ends_ns(self) -> list[int | None]:
        """Return when each epoch's last event of a worker ended, ns on the trace's clock; None for an epoch without
        events."""
        columns = (self.events[name].to_pylist() for name in ("worker", "epoch", "end_ns"))
        ends = grouped((epoch, end) for worker, epoch, end in zip(*columns, strict=True) if worker >= 0 and epoch >= 0)
        return [max(ends[epoch], default=None) for epoch in range(len(self.document["loss"]))]

    def span_ns(self) -> tuple[int, int]:
        """Return when the trace's first event began and its last one ended, ns on its clock; zeros without events."""
        if not self.events.num_rows:
            return 0, 0
        return min(self.events["start_ns"].to_pylist()), max(self.events["end_ns"].to_pylist())


def read_finished(runs: Sequence[str]) -> list[Finished]:
    """Return the named runs, each once; RequestError for a running one, or two with the same id."""
    finished: dict[Path, Finished] = {}
    ids: set[str] = set()
    for run in runs:
        path = resolve(run).path.resolve()
        if path in finished:
            continue
        document = read_document(str(path))
        if document["run"] in ids:
            raise RequestError(f"Two of these runs have the id {document['run']}.", "export them separately.")
        if not re.fullmatch(r"(?!\.)[^/']+", document["run"]):
            raise RequestError(
                f"{document['run']!r} cannot be the name of a file, as a run's id must.", f"correct {path / PLAN}."
            )
        ids.add(document["run"])
        finished[path] = Finished(path, document, load(path).events, invocations(path), instances(path))
    return list(finished.values())
