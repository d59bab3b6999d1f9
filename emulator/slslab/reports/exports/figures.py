"""What experiment trackers store of a run: its parameters, its versions, and its figures with their units."""

from typing import Any

from slslab.reports.exports.finished import Finished
from slslab.trace.metrics import rows, span_seconds
from slslab.version import __version__


def parameters(run: Finished) -> dict[str, str]:
    """Return the plan, with its options flat as `options.NAME`."""
    plan = dict(run.document["plan"])
    plan |= {f"options.{name}": value for name, value in plan.pop("options", {}).items()}
    return {name: str(value) for name, value in plan.items() if value is not None}


def versions(run: Finished) -> dict[str, str]:
    """Return what the run ran on: this program, torch, and the parts of the stack."""
    document = run.document
    parts: dict[str, Any] = {"slslab": __version__, "torch": document["torch"], **document["stack"]}
    return {f"version.{name}": str(value) for name, value in parts.items()}


def figures(run: Finished) -> dict[str, float]:
    """Return the run's figures (time, memory, bytes, cost), whose names end in their units."""
    document, cost = run.document, run.document["cost"]
    seconds = document["seconds"]
    values = {
        "measured_s": seconds["measured"],
        "span_s": span_seconds(rows(run.events), run.instances),
        "modelled_s": seconds["modelled"],
        "billed_s": document["billed_seconds"],
        "gb_seconds": document["gb_seconds"],
        "peak_memory_mb": document["peak_memory_mb"],
        "invocations": document["invocations"],
        "cold_starts": document["cold_starts"],
        "to_stores_bytes": document["bytes"]["in"],
        "from_stores_bytes": document["bytes"]["out"],
        f"cost_{cost['currency'].lower()}": cost["total"],
        **{f"phase_{phase}_s": value for phase, value in document["phases"].items()},
    }
    return {name: float(value) for name, value in values.items() if value is not None}


def curves(run: Finished) -> dict[str, list[tuple[int, float, int]]]:
    """Return loss and accuracy as (epochs trained, value, time: ns since 1970), without missing values."""
    _, end = run.span_ns()
    whens = [run.unix_ns(end if when is None else when) for when in run.epoch_ends_ns()]
    return {
        name: [
            (epoch, float(value), when)
            for epoch, (value, when) in enumerate(zip(run.document[name], whens, strict=False), 1)
            if value is not None
        ]
        for name in ("loss", "accuracy")
    }
