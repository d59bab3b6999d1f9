"""What trackers of experiments are told of a run: its parameters, its versions, and its figures with their units."""

from typing import Any

from slslab import __version__
from slslab.exports.finished import Finished
from slslab.metrics import rows, span_seconds


def parameters(run: Finished) -> dict[str, str]:
    """The plan, its options flat as `options.NAME`."""
    plan = dict(run.document["plan"])
    plan |= {f"options.{name}": value for name, value in plan.pop("options", {}).items()}
    return {name: str(value) for name, value in plan.items() if value is not None}


def versions(run: Finished) -> dict[str, str]:
    """What the run ran on: this program, torch, and the parts of the stack."""
    document = run.document
    found: dict[str, Any] = {"slslab": __version__, "torch": document["torch"], **document["stack"]}
    return {f"version.{name}": str(value) for name, value in found.items()}


def figures(run: Finished) -> dict[str, float]:
    """The run's figures: how long, how much memory, how many bytes, what it cost; their names end in their units."""
    document, cost = run.document, run.document["cost"]
    seconds = document["seconds"]
    found = {
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
    return {name: float(value) for name, value in found.items() if value is not None}


def curves(run: Finished) -> dict[str, list[tuple[int, float, int]]]:
    """Loss and accuracy as (epochs trained, value, when it was: ns since 1970), None left out."""
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
