"""Rows that the terminal and the pages both show of a run's document."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

Document = Mapping[str, Any]
MISSING = "–"
# As a REPORT line names its figures, and as the document does.
REPORTED = (
    ("Duration, ms", "duration_ms"),
    ("Init Duration, ms", "init_ms"),
    ("Billed Duration, ms", "billed_ms"),
    ("Max Memory Used, MB", "max_memory_mb"),
)


def report_rows(reports: Document) -> Iterator[tuple[str, ...]]:
    """Yield each figure of the REPORT lines that any invocation has: its name, minimum, median and maximum."""
    for label, name in REPORTED:
        if reports[name] is not None:
            yield label, *(f"{reports[name][key]:,.2f}" for key in ("min", "median", "max"))


def count_rows(document: Document) -> list[tuple[str, str, str]]:
    """Return each operation with its requests in the training protocol and its overheads."""
    counts, overheads = document["counts"], document["overheads"]["counts"]
    names = sorted({*counts, *overheads})
    return [(name, f"{counts.get(name, 0):,}", f"{overheads.get(name, 0):,}") for name in names]


def byte_rows(document: Document) -> list[tuple[str, str, str]]:
    """Return bytes to and from stores, in the training protocol and its overheads."""
    return [
        (label, f"{document['bytes'][key]:,}", f"{document['overheads']['bytes'][key]:,}")
        for key, label in (("in", "bytes to stores"), ("out", "bytes from stores"))
    ]


def handler_seconds(worker: Document) -> float:
    """Return the seconds of a worker's handlers: all phases but init, which comes before them."""
    return float(sum(worker["phases"].values()) - worker["phases"]["init"])


def beside_modelled(document: Document) -> Iterator[tuple[Document, tuple[float | None, ...]]]:
    """Yield each worker with the seconds of its handlers, measured and modelled, and its billed ones likewise."""
    modelled = {worker["worker"]: worker for worker in document["modelled"]["per_worker"]}
    for worker in document["per_worker"]:
        other = modelled.get(worker["worker"], {"seconds": None, "billed_seconds": None})
        yield worker, (handler_seconds(worker), other["seconds"], worker["billed_seconds"], other["billed_seconds"])


def alone_note(alone: Document) -> str:
    """Return what a reader must know of CPU seconds that were measured alone."""
    if alone["status"] != "measured":
        return f"CPU seconds were not measured alone, so replay takes the run's own. {alone['reason']}"
    count = sum(kind["count"] for kind in alone["kinds"])
    note = f"CPU seconds of replay are of {count:,} steps measured alone, in {alone['seconds']:,.1f} s before the run."
    if not alone["quiet"]:
        note += f" NOT QUIET: others loaded the host; quiet ones would be up to {alone['probe_ratio']:,.2f} times less."
    return note


def seconds(value: float | None) -> str:
    """Return seconds with three decimals."""
    return MISSING if value is None else f"{value:,.3f}"


def quantity(text: str) -> str:
    """Return a quantity of a bill, with six decimals unless it is a whole number."""
    number = Decimal(text)
    return f"{number:,}" if number == number.to_integral_value() else f"{number:,.6f}"
