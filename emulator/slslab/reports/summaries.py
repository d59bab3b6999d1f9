"""What the terminal and the pages both show of a run's document: its headline, and rows of tables."""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from slslab.errors import counted
from slslab.reports.formats import significant

Document = Mapping[str, Any]
# What a profile's name has after its region.
DATE = re.compile(r"-\d{4}(-\d{2})?$")
MISSING = "–"
# The bill is Lambda's; what the usage of the host that ran it would cost is named so.
HOST_PRICED = "this host's seconds, priced"
# A saving below this share is not spoken of.
NOTEWORTHY = 0.02
# As a REPORT line names its figures, and as the document does.
REPORTED = (
    ("Duration, ms", "duration_ms"),
    ("Init Duration, ms", "init_ms"),
    ("Billed Duration, ms", "billed_ms"),
    ("Max Memory Used, MB", "max_memory_mb"),
)


def replayed(document: Document) -> Document | None:
    """Return the run on AWS Lambda, modelled; None if it is not modelled."""
    found: Document = document.get("lambda") or {}
    return found if found.get("status") == "modelled" else None


def headline(document: Document, name: str = "") -> str:
    """Return the sentence that a reader came for: what the run takes and costs on AWS, or why that is not known.

    Among several runs it begins with the `name` of this one. It is empty for what `slslab up` recorded, which has no
    model.
    """
    if "lambda" not in document:
        return ""
    found = replayed(document)
    where = f"{name} on AWS" if name else "On AWS"
    if not document.get("instances"):
        where += " Lambda"
    if found is None:
        sentence = f"{where}: not modelled. {document['lambda']['reason']}"
    else:
        sentence = f"{where} ({region(found)}, modelled): {', '.join(modelled_figures(found))}"
    return f"{sentence} [oversubscribed]" if document.get("host", {}).get("oversubscribed") else sentence


def advice(document: Document) -> str:
    """Return how much of the billed time is waiting, and which memory size would be cheaper; empty if not modelled."""
    found = replayed(document)
    if found is None:
        return ""
    sentence = f"{_percent(found['waiting_share'])} of the billed time is waiting"
    own = own_size(document)
    best = min(found.get("memory_sizes", ()), key=lambda size: float(size["cost"]), default=None)
    if own is None or best is None:
        return f"{sentence}."
    cheaper = 1 - float(best["cost"]) / float(own["cost"])
    if cheaper < NOTEWORTHY:
        return f"{sentence}; no other memory size would be {_percent(NOTEWORTHY)} cheaper."
    slower = best["seconds"] / own["seconds"] - 1
    speed = f"{_percent(abs(slower))} {'slower' if slower >= 0 else 'faster'}"
    return f"{sentence}; {best['memory_mb']:,} MB would be {_percent(cheaper)} cheaper and {speed}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def own_size(document: Document) -> Document | None:
    """Return the run's own memory size among those that were played; None if there is none, as of instances."""
    sizes = (replayed(document) or {}).get("memory_sizes", ())
    return next((size for size in sizes if size["memory_mb"] == document["memory_mb"]), None)


def build_note(torch: str | None) -> str:
    """Return on which build of PyTorch a measured peak memory depends, as the end of a clause; empty without it."""
    if torch is None:
        return ""
    other = "a CUDA build takes about twice as much" if torch.endswith("+cpu") else "a CPU build takes about half"
    return f" with torch {torch} ({other})"


def region(found: Document) -> str:
    """Return the region that a run was modelled in: its profile's name without the date."""
    return DATE.sub("", str(found["profile"]["name"]).removeprefix("aws-"))


def modelled_figures(found: Document) -> tuple[str, str]:
    """Return the seconds and the cost of a modelled run, each with its stated error."""
    error = found["error"] or {}
    return (
        f"{significant(found['seconds'], 3)} s{plus_minus(error.get('seconds'))}",
        f"{amount(found['cost'], 3)}{plus_minus(error.get('billed_seconds'))}",
    )


def plus_minus(deviation: Document | None) -> str:
    """Return the stated error of a modelled figure, to be put behind it; empty if none was stated."""
    return f" ± {100 * deviation['mean']:.0f} %" if deviation else ""


def error_note(*found: Document | None) -> str:
    """Return what the errors of these modelled runs are; empty if none is modelled."""
    stated = {one["error"] is not None for one in found if one is not None}
    notes = {
        True: "±: mean absolute error of the replay and of its profile of AWS (docs/replay.md).",
        False: "Without ±: the error was not stated when it was recorded.",
    }
    return " ".join(note for known, note in notes.items() if known in stated)


def bills(documents: Sequence[Document]) -> tuple[str, list[Document | None]]:
    """Return a title and the bill of each run, None for one that is not modelled.

    If none of them is, what their usage of the hosts that ran them would cost stands in its place.
    """
    found = [replayed(document) for document in documents]
    if any(found):
        return "Bill, modelled", [one and one["cost"] for one in found]
    of_runs = any("lambda" in document for document in documents)
    return HOST_PRICED.capitalize() if of_runs else "Bill", [document["cost"] for document in documents]


def amount(cost: Document, digits: int = 4) -> str:
    """Return the total of a bill with its currency and so many significant digits."""
    number = significant(float(cost["total"]), digits)
    return f"${number}" if cost["currency"] == "USD" else f"{number} {cost['currency']}"


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
    """Return bytes sent to stores or peers and received from them, in the training protocol and its overheads."""
    return [
        (label, f"{document['bytes'][key]:,}", f"{document['overheads']['bytes'][key]:,}")
        for key, label in (("in", "bytes sent"), ("out", "bytes received"))
    ]


def fault_rows(document: Document) -> Iterator[tuple[str, str, str, str]]:
    """Yield each fault of a run's plan: number and kind, how often it happened, where first, and for how long in all it
    held workers up, s."""
    for fault in document["faults"]:
        place = [f"{name} {fault[name]}" for name in ("worker", "epoch", "step") if fault["times"] and fault[name] >= 0]
        where = ", ".join([*place, fault["phase"]]) if place else f"function {fault['function']}"
        where = where if fault["times"] else "did not happen"
        yield f"{fault['number']} {fault['kind']}", f"{fault['times']:,}", where, f"{fault['held_up_seconds']:,.3f}"


def peak_limit_mb(document: Document) -> int | None:
    """Return the memory size of the function that used most, MB; None for instances, and where it is not known."""
    if document.get("instances"):
        return None
    limit: int | None = document.get("peak_memory_limit_mb", document.get("memory_mb"))
    return limit


def cpu_share_enforced(document: Document) -> bool | None:
    """Return whether functions had no more than Lambda's CPU share; None where none ran, and where it is not known."""
    enforced: bool | None = document["host"]["cpu_share_enforced"] if document.get("invocations") else None
    return enforced


def handler_seconds(worker: Document) -> float:
    """Return the seconds of a worker's handlers: all phases but init, which comes before them."""
    return float(sum(worker["phases"].values()) - worker["phases"]["init"])


def beside_modelled(document: Document) -> Iterator[tuple[Document, tuple[float | None, ...]]]:
    """Yield each worker with the seconds of its handlers and its billed ones: modelled, then measured."""
    modelled = {worker["worker"]: worker for worker in document["lambda"]["per_worker"]}
    for worker in document["per_worker"]:
        other = modelled.get(worker["worker"], {"seconds": None, "billed_seconds": None})
        yield worker, (other["seconds"], other["billed_seconds"], handler_seconds(worker), worker["billed_seconds"])


def alone_note(alone: Document) -> str:
    """Return what a reader must know of CPU seconds that were measured alone."""
    if alone["status"] != "measured":
        return f"CPU seconds were not measured alone, so replay takes the run's own. {alone['reason']}"
    steps = counted(sum(kind["count"] for kind in alone["kinds"]), "step")
    note = f"CPU seconds of replay are of {steps} measured alone, in {alone['seconds']:,.1f} s before the run."
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
