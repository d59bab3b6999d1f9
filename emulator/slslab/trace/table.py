"""The table that a trace's log is compacted into: an event's fields, and what only the whole log tells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slslab.errors import RunError
from slslab.trace.causes import find_causes
from slslab.trace.metrics import grouped
from slslab.trace.reading import reading
from slslab.trace.records import EVENT_FIELDS
from slslab_workers.trace.event import FIELDS

SCHEMA = 2

_TYPES = {str: pa.string(), str | None: pa.string(), int: pa.int64(), int | None: pa.int64(), bool: pa.bool_()}
_KEPT = {name: _TYPES[kind] for name, kind in FIELDS.items() if name not in ("reads", "loss")}
_POSITION = dict.fromkeys(("worker", "epoch", "step"), pa.int32())
COLUMNS = pa.schema({"event": pa.int64(), **_KEPT, **_POSITION, "causes": pa.list_(pa.int64())})


@dataclass(frozen=True)
class Trace:
    """A compacted trace: its events in order of their starts, and whether its log broke off in the middle of a line."""

    events: pa.Table
    torn: bool


def read_table(path: Path) -> Trace:
    """Read a compacted trace; RunError if it is not one, or of another schema."""
    with reading(path, "a trace"):
        table = pq.ParquetFile(path).read()
        metadata = table.schema.metadata or {}
        if int(metadata.get(b"slslab.schema", b"0")) != SCHEMA:
            raise RunError(f"{path} is not of trace schema {SCHEMA}.", "use the version of slslab that recorded it.")
        for column in COLUMNS:
            if table.schema.field(column.name).type != column.type:
                raise ValueError(f"its column {column.name} is not of type {column.type}")
        return Trace(table, metadata[b"slslab.torn"] == b"1")


def tabulate(records: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return the events of a log's records, of which the header is the first, as a table of COLUMNS."""
    header = records[0]
    events = [record for record in records if record["record"] == "event"]
    # Events that start at once are ordered by their ends, then by arrival, so that the numbering is reproducible.
    events.sort(key=lambda event: (event["start_ns"], event["end_ns"]))
    columns: dict[str, Any] = {
        **{name: [event[name] for event in events] for name in EVENT_FIELDS},
        "event": range(len(events)),
        "run": [header["run"]] * len(events),
        "clock": [header["clock"]] * len(events),
        "host_delay_ns": _host_delays(events, [record for record in records if record["record"] == "clock"]),
        # Only workers' events have it.
        "cpu_before_ns": [event.get("cpu_before_ns", 0) for event in events],
        "causes": find_causes(events),
    }
    return pa.table(columns, schema=COLUMNS)


def _host_delays(events: Sequence[Mapping[str, Any]], samples: Sequence[Mapping[str, Any]]) -> Any:
    """Return the host delay within each event, int64 nanoseconds: its environment's cumulative delay, interpolated.

    Interpolation is linear between samples. Before an environment's first sample and after its last one there is no
    delay, and none without samples.
    """
    sampled = grouped((sample["environment"], (sample["wall_ns"], sample["host_delay_ns"])) for sample in samples)
    members = grouped((e["environment"], number) for number, e in enumerate(events) if e["environment"] in sampled)
    delays = np.zeros(len(events), np.int64)
    for environment, numbers in members.items():
        walls, totals = np.array(sorted(sampled[environment]), np.int64).T
        spans = np.array([(events[n]["start_ns"], events[n]["end_ns"]) for n in numbers], np.int64).T
        # Counted from the first sample, because nanoseconds since the host's boot are not exact as float64; rounded
        # before the difference, so that delays of adjoining events add up to that of the whole.
        starts, ends = np.rint(np.interp(spans - walls[0], walls - walls[0], totals)).astype(np.int64)
        delays[numbers] = np.clip(ends - starts, 0, spans[1] - spans[0])
    return delays
