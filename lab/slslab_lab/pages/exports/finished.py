"""Finished runs, with everything that an export takes from them: what experiment trackers store is their parameters,
their versions, and their figures with their units."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from slslab.errors import RequestError
from slslab.installation import __version__
from slslab.report.document import read_document
from slslab.report.summaries import replayed
from slslab.run.directory import PLAN, resolve
from slslab.run.log import instances, invocations, load
from slslab.run.metrics import Rows, grouped, span_seconds


@dataclass(frozen=True)
class Finished:
    """A finished run: its directory, document, trace and metered records."""

    path: Path
    document: Mapping[str, Any]
    events: Rows
    invocations: list[dict[str, Any]]
    instances: list[dict[str, Any]]

    @property
    def id(self) -> str:
        """Return the run's id."""
        return str(self.document["run"])

    def unix_ns(self, monotonic_ns: int) -> int:
        """Return an instant of the trace as nanoseconds since 1970, UTC, to the millisecond; without any metered
        record, nanoseconds since the host booted."""
        metered = next(iter((*self.invocations, *self.instances)), None)
        if metered is None:
            return monotonic_ns
        began = round(datetime.fromisoformat(metered["started_at"]).timestamp() * 1000) * 1_000_000
        return int(began + monotonic_ns - metered["start_ns"])

    def epoch_ends_ns(self) -> list[int | None]:
        """Return when each epoch's last event of a worker ended, ns on the trace's clock; None for an epoch without
        events."""
        ends = grouped((e["epoch"], e["end_ns"]) for e in self.events if e["worker"] >= 0 and e["epoch"] >= 0)
        return [max(ends[epoch], default=None) for epoch in range(len(self.document["loss"]))]

    def span_ns(self) -> tuple[int, int]:
        """Return when the trace's first event began and its last one ended, ns on its clock; zeros without events."""
        starts, ends = ([event[name] for event in self.events] for name in ("start_ns", "end_ns"))
        return min(starts, default=0), max(ends, default=0)


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
    """Return the run's figures (time, memory, bytes, cost), whose names end in their units.

    The bill is Lambda's, modelled; the cost is that of the usage of the host that ran it.
    """
    document, cost = run.document, run.document["cost"]
    seconds, found = document["seconds"], replayed(document)
    ranges = (found or {}).get("ranges", {})
    currency = cost["currency"].lower()
    values = {
        "measured_s": seconds["measured"],
        "span_s": span_seconds(run.events, run.instances),
        "modelled_s": found and found["seconds"],
        **{f"modelled_{end}_s": value for end, value in ranges.get("seconds", {}).items()},
        f"bill_{currency}": found and found["cost"]["total"],
        **{f"bill_{end}_{currency}": value for end, value in ranges.get("cost", {}).items()},
        "billed_s": document["billed_seconds"],
        "gb_seconds": document["gb_seconds"],
        "peak_memory_mb": document["peak_memory_mb"],
        "invocations": document["invocations"],
        "cold_starts": document["cold_starts"],
        "to_stores_bytes": document["bytes"]["in"],
        "from_stores_bytes": document["bytes"]["out"],
        f"cost_{currency}": cost["total"],
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


def read_finished(runs: Sequence[str]) -> list[Finished]:
    """Return the named runs, each once; RequestError for a running one, or two with the same id."""
    finished: dict[Path, Finished] = {}
    ids: set[str] = set()
    for run in runs:
        directory = resolve(run)
        path = directory.path.resolve()
        if path in finished:
            continue
        if directory.service() is not None:
            raise RequestError(
                f"{directory.id} is what `slslab up` recorded, which is not exported.",
                f"`slslab show up --json` has its figures, and {path} its trace and its metered invocations.",
            )
        document = read_document(str(path))
        directory.verify(document)
        if document["run"] in ids:
            raise RequestError(f"Two of these runs have the id {document['run']}.", "export them separately.")
        if not re.fullmatch(r"(?!\.)[^/']+", document["run"]):
            raise RequestError(
                f"{document['run']!r} cannot be the name of a file, as a run's id must.", f"correct {path / PLAN}."
            )
        ids.add(document["run"])
        finished[path] = Finished(path, document, load(path).events, invocations(path), instances(path))
    return list(finished.values())
