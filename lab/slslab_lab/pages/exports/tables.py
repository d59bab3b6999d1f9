"""Runs as tables with columns that state their units and meaning."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from slslab.report.summaries import replayed
from slslab.run.metrics import PHASES
from slslab.run.parquet import COLUMNS, to_arrow
from slslab.run.run import Run
from slslab_lab.pages.exports.finished import epoch_ends_ns, figures

Row = Mapping[str, Any]
TEXT, INTEGER, NUMBER, FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
RUN = "run", TEXT, "", "id of the run"
WORKER = "worker", INTEGER, "", "rank; -1 where it is not known"
Specification = tuple[tuple[str, pa.DataType, str, str], ...]


@dataclass(frozen=True)
class Table:
    """A kind of table: the meaning of its rows, and its columns as (name, type, unit, meaning)."""

    about: str
    columns: Specification

    def schema(self) -> pa.Schema:
        """Return the Arrow schema; units and meanings are metadata of the fields."""
        return pa.schema(
            [
                pa.field(name, kind, metadata={"unit": unit, "description": text})
                for name, kind, unit, text in self.columns
            ],
            metadata={"description": self.about},
        )


def _unit(column: str) -> str:
    return "ns" if column.endswith("_ns") else "B" if column == "bytes" else ""


LINES: Specification = (
    RUN,
    ("item", TEXT, "", "what was used"),
    ("quantity", NUMBER, "unit", "how much"),
    ("unit", TEXT, "", "of quantity"),
    ("price", NUMBER, "currency/unit", "null for what the price book leaves out"),
    ("amount", NUMBER, "currency", "quantity × price; null for what the price book leaves out"),
    ("amount_exact", TEXT, "currency", "the same with all its decimals"),
    ("currency", TEXT, "", ""),
    ("price_status", TEXT, "", "how well the price is known: documented or assumed"),
    ("price_book", TEXT, "", ""),
)


TABLES: Mapping[str, Table] = {
    "runs": Table(
        "one row per run",
        (
            RUN,
            ("status", TEXT, "", "done, failed or interrupted"),
            ("architecture", TEXT, "", "communication pattern"),
            ("model", TEXT, "", ""),
            ("dataset", TEXT, "", ""),
            ("workers", INTEGER, "", "number of workers"),
            ("batch_size", INTEGER, "images", "per minibatch and worker"),
            ("batches", INTEGER, "", "minibatches per worker and epoch"),
            ("epochs", INTEGER, "", "epochs of the plan"),
            ("epochs_trained", INTEGER, "", "epochs that were trained"),
            ("updates", INTEGER, "", "updates of rank 0's model"),
            ("accuracy", NUMBER, "share", "test accuracy after the last epoch, 0 to 1"),
            ("memory_mb", INTEGER, "MB", "memory size of the training functions"),
            ("peak_memory_mb", INTEGER, "MB", "greatest Max Memory Used, measured"),
            ("seed", INTEGER, "", ""),
            ("measured_s", NUMBER, "s", "wall time of the command on this host"),
            ("span_s", NUMBER, "s", "wall time from the first invocation's acceptance to the last one's end"),
            ("modelled_s", NUMBER, "s", "the replayed trace on Lambda, modelled; null for a run that is not modelled"),
            ("modelled_low_s", NUMBER, "s", "lower end of its 80 % range; null for a run without ranges"),
            ("modelled_high_s", NUMBER, "s", "upper end of its 80 % range"),
            ("billed_s", NUMBER, "s", "sum of the billed durations, on the Lambda clock"),
            ("gb_seconds", NUMBER, "GB s", "billed, 1 GB = 1024 MB"),
            ("invocations", INTEGER, "", "metered invocations"),
            ("cold_starts", INTEGER, "", "invocations that began with init"),
            ("bill", NUMBER, "currency", "total of the bill on Lambda, modelled; null for a run that is not modelled"),
            ("bill_low", NUMBER, "currency", "lower end of its 80 % range; null for a run without ranges"),
            ("bill_high", NUMBER, "currency", "upper end of its 80 % range"),
            ("cost", NUMBER, "currency", "what the usage of the host that ran it would cost"),
            ("currency", TEXT, "", "of bill and cost"),
            ("price_book", TEXT, "", "prices of bill and cost"),
            ("oversubscribed", FLAG, "", "whether the host was too busy for its waits to be valid"),
            ("torch", TEXT, "", "version"),
        ),
    ),
    "epochs": Table(
        "one row per epoch that was trained",
        (
            RUN,
            ("epoch", INTEGER, "", "from 0, as in the table events"),
            ("loss", NUMBER, "nat", "mean training loss of all workers' minibatches"),
            ("accuracy", NUMBER, "share", "test accuracy after the epoch, 0 to 1"),
            ("updates", INTEGER, "", "updates of rank 0's model in the epoch; null if the trace does not have it"),
            ("end_s", NUMBER, "s", "end of the epoch's last event of a worker, since the trace's first event"),
        ),
    ),
    "invocations": Table(
        "one row per metered invocation, with the figures of its REPORT line",
        (
            RUN,
            ("request_id", TEXT, "", "Lambda's request id; retries of an event share it"),
            WORKER,
            ("function", TEXT, "", ""),
            ("version", TEXT, "", ""),
            ("environment", TEXT, "", "execution environment"),
            ("status", TEXT, "", "success, error or timeout"),
            ("error_type", TEXT, "", "null after a success"),
            ("invocation_type", TEXT, "", "RequestResponse or Event"),
            ("cold_start", FLAG, "", ""),
            ("template", TEXT, "", "modules forked into the environment; its memory then differs from Lambda's"),
            ("architecture", TEXT, "", "x86_64 or arm64"),
            ("memory_mb", INTEGER, "MB", "Memory Size"),
            ("ephemeral_mb", INTEGER, "MB", "size of /tmp"),
            ("cpu_share", NUMBER, "vCPU", "memory size / 1769 MB"),
            ("init_cpu_share", NUMBER, "vCPU", "of a first init; null in older recordings"),
            ("quota_period_ms", INTEGER, "ms", "period of the CPU quota; null stands for 100"),
            ("duration_ms", NUMBER, "ms", "Duration, on the Lambda clock"),
            ("init_ms", NUMBER, "ms", "Init Duration; null where the environment was warm"),
            ("billed_ms", INTEGER, "ms", "Billed Duration"),
            ("max_memory_mb", INTEGER, "MB", "Max Memory Used"),
            ("cgroup_peak_mb", INTEGER, "MB", "the control group's own peak, with all that is charged to it"),
            ("cpu_ms", NUMBER, "ms", "CPU time, init's included"),
            ("init_cpu_ms", NUMBER, "ms", "CPU time of init; null where the environment was warm"),
            ("host_delay_ms", NUMBER, "ms", "waiting for this host's processors, which the Lambda clock leaves out"),
            ("uncertain_ms", NUMBER, "ms", "how much of the durations may be waits that this host made longer"),
            ("started_at", TEXT, "UTC", "ISO 8601"),
            ("start_ns", INTEGER, "ns", "on the trace's clock"),
            ("end_ns", INTEGER, "ns", "on the trace's clock"),
        ),
    ),
    "instances": Table(
        "one row per metered instance",
        (
            RUN,
            ("id", TEXT, "", "as on EC2"),
            WORKER,
            ("type", TEXT, "", "EC2 instance type, by which it is billed"),
            ("device", TEXT, "", "what it computed on here"),
            ("status", TEXT, "", "success, error or ended"),
            ("exit_code", INTEGER, "", "negative: a signal"),
            ("billed_seconds", INTEGER, "s", "whole seconds, 60 at least"),
            ("peak_memory_mb", INTEGER, "MB", "resident"),
            ("cpu_seconds", NUMBER, "s", "CPU time"),
            ("host_delay_ms", NUMBER, "ms", "waiting for this host's processors"),
            ("started_at", TEXT, "UTC", "ISO 8601"),
            ("start_ns", INTEGER, "ns", "on the trace's clock"),
            ("end_ns", INTEGER, "ns", "on the trace's clock"),
        ),
    ),
    "phases": Table(
        "one row per worker and phase",
        (
            RUN,
            WORKER,
            ("phase", TEXT, "", ", ".join(PHASES)),
            ("seconds", NUMBER, "s", "on the Lambda clock; of instances wall time"),
        ),
    ),
    "bill": Table("one row per line of the bill on Lambda, modelled; none of a run that is not modelled", LINES),
    "cost": Table("one row per line of what the usage of the host that ran it would cost", LINES),
    "counts": Table(
        "one row per operation, in the training protocol and its overheads",
        (
            RUN,
            ("part", TEXT, "", "protocol: what the architecture's closed form predicts; overhead: everything else"),
            ("operation", TEXT, "", ""),
            ("requests", INTEGER, "", "how many"),
        ),
    ),
    "bytes": Table(
        "one row per part, the training protocol and its overheads",
        (
            RUN,
            ("part", TEXT, "", "protocol or overhead"),
            ("to_stores_bytes", INTEGER, "B", "bodies that were put"),
            ("from_stores_bytes", INTEGER, "B", "bodies that were received"),
        ),
    ),
    "events": Table(
        "the trace, one row per event",
        tuple((field.name, field.type, _unit(field.name), "see docs/trace.md") for field in COLUMNS),
    ),
}  # fmt: skip


def make_tables(runs: Sequence[Run]) -> dict[str, pa.Table]:
    """Return all tables by name; each has the rows of all runs, one run after the other."""
    makers: Mapping[str, Callable[[Run], Iterable[Row]]] = {
        "runs": _runs,
        "epochs": _epochs,
        "invocations": _invocations,
        "instances": lambda run: run.instances,
        "phases": _phases,
        "bill": lambda run: _lines(found["cost"]) if (found := replayed(run.summary())) else (),
        "cost": lambda run: _lines(run.summary()["cost"]),
        "counts": _counts,
        "bytes": _bytes,
    }
    made = {
        name: pa.Table.from_pylist(
            [{"run": run.id, **row} for run in runs for row in make(run)], schema=TABLES[name].schema()
        )
        for name, make in makers.items()
    }
    made["events"] = pa.concat_tables(to_arrow(run.events).cast(TABLES["events"].schema()) for run in runs)
    return made


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
    updates = _updates(run)
    accuracy = document["accuracy"]
    for epoch, (loss, end) in enumerate(zip(document["loss"], epoch_ends_ns(run), strict=True)):
        yield {
            "epoch": epoch,
            "loss": loss,
            "accuracy": accuracy[epoch] if epoch < len(accuracy) else None,
            "updates": updates[epoch] if updates else None,
            "end_s": None if end is None else (end - began) / 1e9,
        }


def _updates(run: Run) -> list[int]:
    """Return updates of rank 0's model in each epoch from the trace; empty if the worker reported another sum."""
    updates = [0] * len(run.summary()["loss"])
    for event in run.events:
        own = event["phase"] == "update" and event["worker"] == 0 and not event["failed"]
        if own and 0 <= event["epoch"] < len(updates):
            updates[event["epoch"]] += 1
    return updates if sum(updates) == run.summary()["updates"] else []


def _invocations(run: Run) -> Iterator[Row]:
    owners = {event["invocation"]: event["worker"] for event in run.events if event["worker"] >= 0}
    for record in run.invocations:
        yield {**record, "worker": owners.get(record["request_id"], -1)}


def _phases(run: Run) -> Iterator[Row]:
    for worker in run.summary()["per_worker"]:
        for phase in PHASES:
            yield {"worker": worker["worker"], "phase": phase, "seconds": worker["phases"][phase]}


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


def _counts(run: Run) -> Iterator[Row]:
    for part, document in (("protocol", run.summary()), ("overhead", run.summary()["overheads"])):
        for operation, requests in document["counts"].items():
            yield {"part": part, "operation": operation, "requests": requests}


def _bytes(run: Run) -> Iterator[Row]:
    for part, document in (("protocol", run.summary()), ("overhead", run.summary()["overheads"])):
        yield {"part": part, "to_stores_bytes": document["bytes"]["in"], "from_stores_bytes": document["bytes"]["out"]}
