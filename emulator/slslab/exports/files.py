"""Tables as CSV or Parquet files in a directory, beside a schema.json that says what their columns are."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from slslab.errors import RequestError
from slslab.exports.finished import Finished
from slslab.exports.tables import TABLES, make_tables
from slslab.trace import replacing

SCHEMA = 1
DESCRIPTION = "schema.json"


def write_files(runs: Sequence[Finished], kind: str, out: Path) -> list[dict[str, Any]]:
    """Write the runs' tables to `out`, one file each, as `kind` (csv or parquet); returns what was written.

    The files of an earlier export are replaced. RequestError for a directory whose files are of another making.
    """
    _claim(out, kind)
    _write_description(runs, kind, out)
    written = []
    for name, table in make_tables(runs).items():
        path = out / f"{name}.{kind}"
        with replacing(path) as file:
            if kind == "csv":
                pyarrow.csv.write_csv(_flat(table), file)
            else:
                pyarrow.parquet.write_table(table, file, compression="zstd")
        written.append({"table": name, "path": str(path), "rows": table.num_rows})
    return written


def make_directory(out: Path) -> None:
    """Make a directory for exports; RequestError if that cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"{out} cannot be made: {error.strerror}.", "choose another --out.") from error


def _claim(out: Path, kind: str) -> None:
    make_directory(out)
    taken = sorted(name for table in TABLES if (out / (name := f"{table}.{kind}")).exists())
    if taken and _made_by(out) != "slslab":
        raise RequestError(f"{out} has a {taken[0]} that is no export of slslab.", "choose another --out.")
    if (out / DESCRIPTION).exists() and _made_by(out) != "slslab":
        raise RequestError(f"{out} has a {DESCRIPTION} that is no export of slslab.", "choose another --out.")


def _made_by(out: Path) -> str | None:
    try:
        found = json.loads((out / DESCRIPTION).read_text())
    except (OSError, ValueError):
        return None
    return str(found.get("made_by")) if isinstance(found, Mapping) else None


def _write_description(runs: Sequence[Finished], kind: str, out: Path) -> None:
    document = {
        "schema": SCHEMA,
        "made_by": "slslab",
        "runs": [run.id for run in runs],
        "tables": {
            name: {
                "file": f"{name}.{kind}",
                "rows_are": table.about,
                "columns": [
                    {"name": column, "type": str(type_), "unit": unit, "description": text}
                    for column, type_, unit, text in table.columns
                ],
            }
            for name, table in TABLES.items()
        },
    }
    with replacing(out / DESCRIPTION) as file:
        file.write(json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n")


def _flat(table: pa.Table) -> pa.Table:
    """The table with lists as their entries with blanks between them, for CSV has no lists."""
    for number, field in enumerate(table.schema):
        if pa.types.is_list(field.type):
            texts = [" ".join(map(str, entries)) for entries in table.column(number).to_pylist()]
            table = table.set_column(number, field.name, pa.array(texts, pa.string()))
    return table
