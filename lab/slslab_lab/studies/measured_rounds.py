"""Measured rounds of recordings of AllReduce and ScatterReduce: from when the last worker begins to exchange until the
last one has the sum."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from slslab.errors import RunError
from slslab.predict.environment import NS
from slslab.run.metrics import grouped
from slslab.run.run import Run
from slslab_lab.replay.measured import Measured
from slslab_lab.replay.rounds import PHASE, is_exchange
from slslab_lab.studies import MODELS, committed
from slslab_lab.studies.documents import mixed_hosts
from slslab_lab.studies.experiments import BATCHES, experiments, read_all
from slslab_lab.studies.minibatches import Estimate, mean_of
from slslab_workers.channels.polling import POLLING
from slslab_workers.training.released_log import LOG_TRAFFIC
from slslab_workers.training.released_log import PHASE as LOG

PATTERNS = ("allreduce", "scatterreduce")


@dataclass(frozen=True)
class Exchange:
    """The rounds of a recorded run with `workers`, gradients of `size` bytes, this polling and, if `logged`, log
    traffic; `apart` is the mean number of seconds between the first and the last worker's begin."""

    run: str
    pattern: str
    workers: int
    size: int
    polling: str
    logged: bool
    seconds: Estimate
    apart: float
    oversubscribed: bool
    host: Mapping[str, Any] = field(default_factory=dict)


def read_exchanges(directory: Path | None = None) -> tuple[Exchange, ...]:
    """Return the rounds of Table 2's recordings in this directory, by default the project's own, which may be missing.

    RunError if a given directory has no recordings."""
    if directory is None:
        try:
            directory = committed("table2")
        except RunError:
            return ()
    rows = (experiment for experiment in experiments(MODELS) if experiment.architecture in PATTERNS)
    return tuple(map(_exchange, read_all(directory, rows).done.values()))


def measured_rounds(recording: Run) -> tuple[tuple[float, float], ...]:
    """Return the rounds of all steps except the first, which has cold environments: the seconds of each, and how many
    seconds earlier the first worker had begun. RunError without such a step."""
    workers = range(recording.plan.workers)
    events = [e for e in recording.events if e["worker"] in workers and e["step"] >= 0 and not e["failed"]]
    # By step: when each worker began something, and when something ended.
    begins = grouped(
        ((e["epoch"], e["step"]), (e["worker"], e["start_ns"])) for e in events if e["phase"] in (PHASE, LOG)
    )
    ends = grouped(((e["epoch"], e["step"]), e["end_ns"]) for e in events if is_exchange(e["phase"], e["op"]))
    rounds = tuple(_timed(map(min, grouped(begins[step]).values()), max(ends[step])) for step in sorted(ends)[1:])
    if not rounds:
        raise RunError(f"{recording.plan.run} has only one step.", "record more --batches.")
    return rounds


def _timed(begins: Iterable[int], end: int) -> tuple[float, float]:
    first, *_, last = sorted(begins)
    return (end - last) / NS, (last - first) / NS


def _exchange(run: Measured) -> Exchange:
    plan, (seconds, apart) = run.plan, zip(*measured_rounds(run), strict=True)
    return Exchange(
        plan.run,
        plan.architecture,
        plan.workers,
        int(run.document["gradient_bytes"]),
        str(POLLING.of(plan.options)),
        bool(LOG_TRAFFIC.of(plan.options)),
        mean_of(seconds, BATCHES),
        fmean(apart),
        bool(run.document["host"]["oversubscribed"]),
        run.document["host"],
    )


def describe(exchanges: Iterable[Exchange]) -> Iterator[str]:
    """Yield notes about measured rounds for a document."""
    known = tuple(exchanges)
    if not known:
        yield "Nothing was measured: no recording matches a row's model, workers and variant."
        return
    busy = sum(exchange.oversubscribed for exchange in known)
    yield (
        "Measured: rounds of Table 2's recordings, with the emulated object store on the recording host's loopback, "
        "which isn't S3. Compare them with each other, not with published or modelled rounds. A round lasts from when "
        "the last worker begins to exchange until the last one has the sum, on the wall clock; the other workers, the "
        f"first up to {max(exchange.apart for exchange in known):.1f} s earlier in a run's mean, have put theirs by "
        "then. The first step is left out; intervals are 95 % (Student's), over steps; for a ratio of means they "
        "follow from both."
    )
    if busy:
        yield (
            f"{busy} of these {len(known)} runs were oversubscribed: workers shared processors, and their seconds "
            "include waits for them."
        )
    yield from mixed_hosts(exchange.host for exchange in known)
