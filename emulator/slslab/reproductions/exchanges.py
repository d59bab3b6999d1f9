"""Rounds as they were measured: the exchanges of the steps in recordings of AllReduce and ScatterReduce.

A round is from when the last worker begins to exchange to when the last one has the sum, so that waiting for slower
workers is no part of it; what the others exchanged before that is none either. It is wall time of the recording host,
with the object store that it had."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from slslab.errors import RunError
from slslab.replay.environment import NS
from slslab.replay.measured import Measured
from slslab.replay.recording import Recording
from slslab.replay.rounds import PHASE, is_exchange
from slslab.reproductions import MODELS
from slslab.reproductions.calls import Estimate, mean_of
from slslab.reproductions.experiments import BATCHES, committed, experiments, read_all
from slslab_workers.logs import LOG_TRAFFIC
from slslab_workers.logs import PHASE as LOG
from slslab_workers.polling import POLLING

PATTERNS = ("allreduce", "scatterreduce")


@dataclass(frozen=True)
class Timed:
    """One round: seconds, and how long before it the first worker had begun."""

    seconds: float
    apart: float


@dataclass(frozen=True)
class Exchange:
    """The rounds of a recorded run: of so many workers, gradients of `size` bytes, with this polling and, if `logged`,
    log traffic; `apart` is the mean of how many seconds lay between the first worker's begin and the last one's."""

    run: str
    pattern: str
    workers: int
    size: int
    polling: str
    logged: bool
    seconds: Estimate
    apart: float
    oversubscribed: bool

    def as_document(self) -> dict[str, Any]:
        """What a row's document has of it."""
        return {"run": self.run, "apart_seconds": self.apart, "oversubscribed": self.oversubscribed}


def read_exchanges(directory: Path | None = None) -> tuple[Exchange, ...]:
    """The rounds of Table 2's recordings in here, by default the project's own; none if it has none.

    RunError if there are none in the directory that is named."""
    if directory is None:
        try:
            directory = committed()
        except RunError:
            return ()
    wanted = (one for one in experiments(MODELS) if one.architecture in PATTERNS)
    return tuple(map(_exchange, read_all(directory, wanted).done.values()))


def measured_rounds(recording: Recording) -> tuple[Timed, ...]:
    """Those of all steps but the first, in which environments are cold. RunError if there is none."""
    begins: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    ends: dict[tuple[int, int], int] = {}
    for event in recording.events:
        if not 0 <= event["worker"] < recording.plan.workers or event["step"] < 0 or event["failed"]:
            continue
        place, worker = (event["epoch"], event["step"]), event["worker"]
        if event["phase"] in (PHASE, LOG):
            begins[place][worker] = min(begins[place].get(worker, event["start_ns"]), event["start_ns"])
        if is_exchange(event["phase"], event["op"]):
            ends[place] = max(ends.get(place, 0), event["end_ns"])
    found = tuple(_timed(begins[place].values(), ends[place]) for place in sorted(ends)[1:])
    if not found:
        raise RunError(f"{recording.plan.run} has no step but its first.", "record more --batches.")
    return found


def _timed(begins: Iterable[int], end: int) -> Timed:
    first, *_, last = sorted(begins)
    return Timed((end - last) / NS, (last - first) / NS)


def _exchange(one: Measured) -> Exchange:
    plan, rounds = one.plan, measured_rounds(one.recording)
    return Exchange(
        plan.run,
        plan.architecture,
        plan.workers,
        int(one.document["gradient_bytes"]),
        str(plan.options.get(POLLING.name, POLLING.default)),
        bool(plan.options.get(LOG_TRAFFIC.name, LOG_TRAFFIC.default)),
        mean_of([each.seconds for each in rounds], BATCHES),
        fmean(each.apart for each in rounds),
        bool(one.document["host"]["oversubscribed"]),
    )


def describe(exchanges: Iterable[Exchange]) -> Iterator[str]:
    """What must be known of measured rounds, for the notes of a document."""
    known = tuple(exchanges)
    if not known:
        yield "Nothing is measured: there is no recording of a row's model, workers and variant."
        return
    busy = sum(one.oversubscribed for one in known)
    yield (
        "Measured: rounds of Table 2's recordings, with the emulated object store on the recording host's loopback, "
        "which is not S3: compare them with each other, and not with what is published or modelled. A round is from "
        "when the last worker begins to exchange to when the last one has the sum, on the wall clock; the others, of "
        f"whom the first began up to {max(one.apart for one in known):.1f} s earlier in a run's mean, have put theirs "
        "by then. The first step is left out, intervals are of 95 %, Student's, by steps; that of a ratio of means "
        "follows from both."
    )
    if busy:
        yield (
            f"{busy} of these {len(known)} runs were oversubscribed: workers shared processors, and their seconds hold "
            "waits for these."
        )
