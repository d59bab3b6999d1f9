"""Read and write the Parquet file of a trace's events; docs/trace.md lists its columns."""

from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slslab.errors import RunError
from slslab.run.metrics import Rows
from slslab.run.reading import reading
from slslab.run.table import NAMES, SCHEMA, Trace
from slslab_workers.trace.event import AMOUNTS, FIELDS, RANGES

_TYPES = {str: pa.string(), str | None: pa.string(), int: pa.int64(), int | None: pa.int64(), bool: pa.bool_()}
_OTHER = {
    "event": pa.int64(),
    **dict.fromkeys(("worker", "epoch", "step"), pa.int32()),
    "causes": pa.list_(pa.int64()),
}
COLUMNS = pa.schema([(name, _OTHER[name] if name in _OTHER else _TYPES[FIELDS[name]]) for name in NAMES])


def read_table(path: Path) -> Trace:
    """Read a trace; RunError if it is invalid or has another schema."""
    with reading(path, "a trace"):
        try:
            table = pq.ParquetFile(path, page_checksum_verification=True).read()
        except pa.ArrowException as error:  # not all derive from Python's errors
            raise ValueError(str(error)) from error
        metadata = table.schema.metadata or {}
        if int(metadata.get(b"slslab.schema", b"0")) != SCHEMA:
            raise RunError(f"{path} doesn't have trace schema {SCHEMA}.", "use the version of slslab that recorded it.")
        for column in COLUMNS:
            if table.schema.field(column.name).type != column.type:
                raise ValueError(f"its column {column.name} doesn't have type {column.type}")
        _check_values(table)
        return Trace(table.to_pylist(), metadata[b"slslab.torn"] == b"1")


def _check_values(table: pa.Table) -> None:
    """Raise ValueError for impossible values: a missing or negative time, an unknown cause."""
    for name in NAMES:
        if name != "etag" and table[name].null_count:
            raise ValueError(f"an event has no {name}")
    for name in (field.name for field in COLUMNS if pa.types.is_integer(field.type) and field.name != "event"):
        allowed, found = RANGES.get(name, AMOUNTS), pc.min_max(table[name]).as_py()
        if not all(value is None or value in allowed for value in found.values()):
            raise ValueError(f"its column {name} has impossible values, {found['min']} to {found['max']}")
    if table["event"].to_pylist() != list(range(len(table))):
        raise ValueError("its events are not numbered in their order")
    if not all(cause in range(len(table)) for cause in pc.list_flatten(table["causes"]).unique().to_pylist()):
        raise ValueError("events have unknown causes")
    if pc.any(pc.less(table["end_ns"], table["start_ns"])).as_py():
        raise ValueError("an event ends before it starts")


def write_table(trace: Trace, file: BinaryIO) -> None:
    """Write a trace; the same trace gives the same bytes."""
    metadata = {b"slslab.schema": str(SCHEMA).encode(), b"slslab.torn": str(int(trace.torn)).encode()}
    table = to_arrow(trace.events).replace_schema_metadata(metadata)
    pq.write_table(table, file, compression="zstd", write_page_checksum=True)


def to_arrow(events: Rows) -> pa.Table:
    """Return events as a table of COLUMNS."""
    return pa.Table.from_pylist(events, schema=COLUMNS)
