"""The parts of a run that exports use: for experiment trackers, their parameters, versions, and figures with units."""

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from slslab.errors import RequestError
from slslab.installation import __version__
from slslab.report.summaries import replayed
from slslab.run.directory import PLAN, resolve
from slslab.run.metrics import grouped
from slslab.run.run import Run, read_run


def unix_ns(run: Run, monotonic_ns: int) -> int:
    """Return an instant of the trace as nanoseconds since 1970, UTC, to the millisecond; without metered records, in
    nanoseconds since the host booted."""
    metered = next(iter((*run.invocations, *run.instances)), None)
    if metered is None:
        return monotonic_ns
    began = round(datetime.fromisoformat(metered["started_at"]).timestamp() * 1000) * 1_000_000
    return int(began + monotonic_ns - metered["start_ns"])


def epoch_ends_ns(run: Run) -> list[int | None]:
    """Return when each epoch's last worker event ended, in ns on the trace's clock; None without events."""
    ends = grouped((e["epoch"], e["end_ns"]) for e in run.events if e["worker"] >= 0 and e["epoch"] >= 0)
    return [max(ends[epoch], default=None) for epoch in range(len(run.summary()["loss"]))]


def parameters(run: Run) -> dict[str, str]:
    """Return the plan, with its options flat as `options.NAME`."""
    plan = dict(run.summary()["plan"])
    plan |= {f"options.{name}": value for name, value in plan.pop("options", {}).items()}
    return {name: str(value) for name, value in plan.items() if value is not None}


def versions(run: Run) -> dict[str, str]:
    """Return the versions of this program, torch, and the parts of the stack."""
    document = run.summary()
    parts: dict[str, Any] = {"slslab": __version__, "torch": document["torch"], **document["stack"]}
    return {f"version.{name}": str(value) for name, value in parts.items()}


def figures(run: Run) -> dict[str, float]:
    """Return the run's figures with units at the ends of their names; `bill` is modelled, `cost` its host's."""
    document = run.summary()
    cost, seconds, found = document["cost"], document["seconds"], replayed(document)
    ranges = (found or {}).get("ranges", {})
    currency = cost["currency"].lower()
    values = {
        "measured_s": seconds["measured"],
        "span_s": run.span_s,
        "modelled_s": found and found["seconds"],
        **{f"modelled_{end}_s": value for end, value in ranges.get("seconds", {}).items()},
        f"bill_{currency}": found and found["cost"]["total"],
        **{f"bill_{end}_{currency}": value for end, value in ranges.get("cost", {}).items()},
        "billed_s": document["billed_seconds"],
        **{name: document[name] for name in ("gb_seconds", "peak_memory_mb", "invocations", "cold_starts")},
        "to_stores_bytes": document["bytes"]["in"],
        "from_stores_bytes": document["bytes"]["out"],
        f"cost_{currency}": cost["total"],
        **{f"phase_{phase}_s": value for phase, value in document["phases"].items()},
    }
    return {name: float(value) for name, value in values.items() if value is not None}


def curves(run: Run) -> dict[str, list[tuple[int, float, int]]]:
    """Return loss and accuracy as (trained epochs, value, time in ns since 1970), without missing values."""
    _, end = run.span_ns()
    whens = [unix_ns(run, end if when is None else when) for when in epoch_ends_ns(run)]
    return {
        name: [
            (epoch, float(value), when)
            for epoch, (value, when) in enumerate(zip(run.summary()[name], whens, strict=False), 1)
            if value is not None
        ]
        for name in ("loss", "accuracy")
    }


def read_finished(names: Sequence[str]) -> list[Run]:
    """Return the named runs, each once; RequestError for a running one, or two with the same id."""
    finished: dict[Path, Run] = {}
    for name in names:
        directory = resolve(name)
        path = directory.path.resolve()
        if path in finished:
            continue
        run = read_run(directory)
        if run.id in [other.id for other in finished.values()]:
            raise RequestError(f"Two of these runs have the id {run.id}.", "export them separately.")
        if not re.fullmatch(r"(?!\.)[^/']+", run.id):
            raise RequestError(
                f"{run.id!r} can't be used as a file name, as a run's id must.", f"correct {path / PLAN}."
            )
        for part in ("events", "invocations", "instances"):
            getattr(run, part)  # refuse an unreadable run before writing anything
        finished[path] = run
    return list(finished.values())
