"""Tables as CSV or Parquet files in a directory, with a schema.json that describes their columns."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from slslab.errors import RequestError, writable
from slslab.run.log import replacing
from slslab.run.run import Run
from slslab_lab.pages.exports.tables import TABLES, make_tables

SCHEMA = 2
DESCRIPTION = "schema.json"


def write_files(runs: Sequence[Run], kind: str, out: Path) -> list[dict[str, Any]]:
    """Write the runs' tables to `out`, replacing an earlier export; RequestError if other files are there."""
    make_directory(out)
    for name in (*sorted(f"{table}.{kind}" for table in TABLES), DESCRIPTION):
        if (out / name).exists() and _made_by(out) != "slslab":
            raise RequestError(f"{out} contains a {name} that slslab didn't export.", "choose another --out.")
    _write_description(runs, kind, out)
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


def _made_by(out: Path) -> str | None:
    try:
        description = json.loads((out / DESCRIPTION).read_text())
    except (OSError, ValueError):
        return None
    return str(description.get("made_by")) if isinstance(description, Mapping) else None


def _write_description(runs: Sequence[Run], kind: str, out: Path) -> None:
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
    with writable(out / DESCRIPTION, "choose another --out."), replacing(out / DESCRIPTION) as file:
        file.write(json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n")


def _flat(table: pa.Table) -> pa.Table:
    """Return the table with lists joined by spaces, since CSV has no lists."""
    for number, field in enumerate(table.schema):
        if pa.types.is_list(field.type):
            texts = [" ".join(map(str, entries)) for entries in table.column(number).to_pylist()]
            table = table.set_column(number, field.name, pa.array(texts, pa.string()))
    return table
