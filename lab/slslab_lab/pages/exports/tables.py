"""Runs as tables, in CSV or Parquet files.

A table or a column more is an entry of TABLES, and of the function that makes the table's rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from slslab.errors import RequestError, writable
from slslab.report.summaries import replayed
from slslab.run.log import replacing
from slslab.run.parquet import COLUMNS, to_arrow
from slslab.run.run import Run
from slslab_lab.pages.exports.finished import epoch_ends_ns, figures

Row = Mapping[str, Any]
TEXT, INTEGER, NUMBER, FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
LINES = {
    "run": TEXT, "item": TEXT, "quantity": NUMBER, "unit": TEXT, "price": NUMBER, "amount": NUMBER,
    "amount_exact": TEXT, "currency": TEXT, "price_status": TEXT, "price_book": TEXT,
}  # fmt: skip
# The columns of each table; docs/reports.md explains the ones whose names don't say it.
TABLES: Mapping[str, pa.Schema] = {
    "runs": pa.schema({
        "run": TEXT, "status": TEXT, "architecture": TEXT, "model": TEXT, "dataset": TEXT, "workers": INTEGER,
        "batch_size": INTEGER, "batches": INTEGER, "epochs": INTEGER, "epochs_trained": INTEGER, "updates": INTEGER,
        "accuracy": NUMBER, "memory_mb": INTEGER, "peak_memory_mb": INTEGER, "seed": INTEGER, "measured_s": NUMBER,
        "span_s": NUMBER, "modelled_s": NUMBER, "modelled_low_s": NUMBER, "modelled_high_s": NUMBER,
        "billed_s": NUMBER, "gb_seconds": NUMBER, "invocations": INTEGER, "cold_starts": INTEGER, "bill": NUMBER,
        "bill_low": NUMBER, "bill_high": NUMBER, "cost": NUMBER, "currency": TEXT, "price_book": TEXT,
        "oversubscribed": FLAG, "torch": TEXT,
    }),
    "epochs": pa.schema({
        "run": TEXT, "epoch": INTEGER, "loss": NUMBER, "accuracy": NUMBER, "end_s": NUMBER,
    }),
    "invocations": pa.schema({
        "run": TEXT, "request_id": TEXT, "worker": INTEGER, "function": TEXT, "version": TEXT, "environment": TEXT,
        "status": TEXT, "error_type": TEXT, "invocation_type": TEXT, "cold_start": FLAG, "template": TEXT,
        "architecture": TEXT, "memory_mb": INTEGER, "ephemeral_mb": INTEGER, "cpu_share": NUMBER,
        "init_cpu_share": NUMBER, "quota_period_ms": INTEGER, "duration_ms": NUMBER, "init_ms": NUMBER,
        "billed_ms": INTEGER, "max_memory_mb": INTEGER, "cgroup_peak_mb": INTEGER, "cpu_ms": NUMBER,
        "init_cpu_ms": NUMBER, "host_delay_ms": NUMBER, "uncertain_ms": NUMBER, "started_at": TEXT,
        "start_ns": INTEGER, "end_ns": INTEGER,
    }),
    "instances": pa.schema({
        "run": TEXT, "id": TEXT, "worker": INTEGER, "type": TEXT, "device": TEXT, "status": TEXT,
        "exit_code": INTEGER, "billed_seconds": INTEGER, "peak_memory_mb": INTEGER, "cpu_seconds": NUMBER,
        "host_delay_ms": NUMBER, "started_at": TEXT, "start_ns": INTEGER, "end_ns": INTEGER,
    }),
    "bill": pa.schema(LINES),
    "cost": pa.schema(LINES),
    "events": COLUMNS,
}  # fmt: skip


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


def make_tables(runs: Sequence[Run]) -> dict[str, pa.Table]:
    """Return all tables by name; each has the rows of all runs, one run after the other."""
    makers: Mapping[str, Callable[[Run], Iterable[Row]]] = {
        "runs": _runs,
        "epochs": _epochs,
        "invocations": _invocations,
        "instances": lambda run: run.instances,
        "bill": lambda run: _lines(found["cost"]) if (found := replayed(run.summary())) else (),
        "cost": lambda run: _lines(run.summary()["cost"]),
    }
    made = {
        name: pa.Table.from_pylist([{"run": run.id, **row} for run in runs for row in make(run)], schema=TABLES[name])
        for name, make in makers.items()
    }
    return {**made, "events": pa.concat_tables(to_arrow(run.events) for run in runs)}


def _runs(run: Run) -> Iterator[Row]:
    document = run.summary()
    currency, book = document["cost"]["currency"], document["cost"]["book"]
    known = {name.removesuffix(f"_{currency.lower()}"): value for name, value in figures(run).items()}
    yield {
        **known,
        **document,
        **{name: known[name] for name in ("gb_seconds", "cost")},
        "accuracy": (document["accuracy"] or [None])[-1],
        "currency": currency,
        "price_book": book["name"],
        "oversubscribed": document["host"]["oversubscribed"],
    }


def _epochs(run: Run) -> Iterator[Row]:
    document = run.summary()
    began, _ = run.span_ns()
    accuracy = document["accuracy"]
    for epoch, (loss, end) in enumerate(zip(document["loss"], epoch_ends_ns(run), strict=True)):
        yield {
            "epoch": epoch,
            "loss": loss,
            "accuracy": accuracy[epoch] if epoch < len(accuracy) else None,
            "end_s": None if end is None else (end - began) / 1e9,
        }


def _invocations(run: Run) -> Iterator[Row]:
    owners = {event["invocation"]: event["worker"] for event in run.events if event["worker"] >= 0}
    for record in run.invocations:
        yield {**record, "worker": owners.get(record["request_id"], -1)}


def _lines(cost: Mapping[str, Any]) -> Iterator[Row]:
    for line in (*cost["lines"], *cost["not_billed"]):
        amount, price = line.get("amount"), line.get("price")
        yield {
            "item": line["item"],
            "quantity": float(line["quantity"]),
            "unit": line["unit"],
            "price": None if price is None else float(price),
            "amount": None if amount is None else float(amount),
            "amount_exact": amount,
            "currency": cost["currency"],
            "price_status": line.get("status"),
            "price_book": cost["book"]["name"],
        }
