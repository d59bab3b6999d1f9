"""Tables as CSV or Parquet files in a directory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from slslab.errors import RequestError, writable
from slslab.run.log import replacing
from slslab.run.run import Run
from slslab_lab.pages.exports.tables import TABLES, make_tables


def write_files(runs: Sequence[Run], kind: str, out: Path) -> list[dict[str, Any]]:
    """Write the runs' tables to `out`, one file each, as `kind` (csv or parquet); return what was written.

    It replaces the files of an earlier export. RequestError for a directory with files of their names that aren't one.
    """
    make_directory(out)
    names = sorted(f"{table}.{kind}" for table in TABLES)
    there = [name for name in names if (out / name).exists()]
    if there and there != names:
        raise RequestError(
            f"{out} contains a {there[0]}, but not all tables of an export.", "delete it, or choose another --out."
        )
    written = []
    for name, table in make_tables(runs).items():
        path = out / f"{name}.{kind}"
        with writable(path, "choose another --out."), replacing(path) as file:
            if kind == "csv":
                pyarrow.csv.write_csv(_flat(table), file)
            else:
                pyarrow.parquet.write_table(table, file, compression="zstd")
        written.append({"table": name, "path": str(path), "rows": table.num_rows})
    return written


def make_directory(out: Path) -> None:
    """Make a directory for exports; RequestError if it cannot be made."""
    with writable(out, "choose another --out.", done="made"):
        out.mkdir(parents=True, exist_ok=True)


def _flat(table: pa.Table) -> pa.Table:
    """Return the table with lists joined by spaces, since CSV has no lists."""
    for number, field in enumerate(table.schema):
        if pa.types.is_list(field.type):
            texts = [" ".join(map(str, entries)) for entries in table.column(number).to_pylist()]
            table = table.set_column(number, field.name, pa.array(texts, pa.string()))
    return table
