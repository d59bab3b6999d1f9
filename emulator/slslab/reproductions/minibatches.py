"""What one minibatch took: the papers call it a *function*, whether it was an invocation or a part of one.

If a function runs one minibatch (SPIRT's `compute_gradients`), the minibatch is the whole billed invocation; if a
worker continues (all others), a minibatch begins where the one before it ended. The first minibatch of an environment
is slower, since networks and buffers are built in it, and is marked."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from slslab.errors import RunError
from slslab.replay.kernel.environment import NS
from slslab.replay.kernel.timeline import Timeline
from slslab.replay.programs.recording import Recording
from slslab.trace.metrics import BESIDE, grouped

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Call:
    """One minibatch of one worker: seconds, and whether it was the first one of its environment."""

    worker: int
    epoch: int
    step: int
    seconds: float
    first: bool


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % confidence interval; without an interval if all samples of a population were taken, or
    one."""

    value: float
    low: float | None
    high: float | None
    samples: int

    def scaled(self, factor: float) -> "Estimate":
        """Return the estimate in another unit."""
        low, high = (None if bound is None else bound * factor for bound in (self.low, self.high))
        return Estimate(self.value * factor, low, high, self.samples)

    def as_document(self) -> dict[str, Any]:
        """Return the estimate for JSON."""
        return {"value": self.value, "low": self.low, "high": self.high, "samples": self.samples}


def estimate(calls: Iterable[Call], batches: int) -> Estimate:
    """Return the mean of an epoch of so many minibatches, without the first of each environment.

    Workers are in lock step, so a sample is a step: the mean of its workers. A sample of a whole finite
    epoch has no error: the interval is Student's, times √(1 - samples / batches). RunError if every minibatch was a
    first one."""
    steps = grouped(((call.epoch, call.step), call.seconds) for call in calls if not call.first)
    if not steps:
        raise RunError("Every minibatch was the first one of its environment.", "record more --batches.")
    return mean_of([fmean(seconds) for seconds in steps.values()], batches)


def mean_of(samples: Sequence[float], population: int) -> Estimate:
    """Return the mean of a finite population from samples of it."""
    count, mean = len(samples), fmean(samples)
    if count >= population or count < 2:
        return Estimate(mean, None, None, count)
    from scipy.stats import t

    quantile = float(t.ppf((1 + CONFIDENCE) / 2, count - 1))
    half = quantile * stdev(samples) / math.sqrt(count) * math.sqrt(1 - count / population)
    return Estimate(mean, mean - half, mean + half, count)


Spans = Mapping[tuple[int, int], tuple[int, int]]


def _calls(worker: int, cold: bool, begin: int, end: int, spans: Spans) -> Iterator[Call]:
    """Yield the minibatches of one invocation or instance, from when it and each of them began and ended, ns."""
    ordered = sorted(spans.items())
    # A function of one minibatch is billed from its beginning to its end.
    if len(ordered) == 1:
        ordered = [(ordered[0][0], (begin, end))]
    before: int | None = None
    for (epoch, step), (started, ended) in ordered:
        since = started if before is None else before
        yield Call(worker, epoch, step, (ended - since) / NS, cold and before is None)
        before = ended


def measured_calls(recording: Recording) -> tuple[Call, ...]:
    """Return minibatches as measured: on the Lambda clock, which stops while the host is busy with others; of
    instances, on the wall clock less that delay."""
    delays: dict[str, dict[tuple[int, int], int]] = defaultdict(lambda: defaultdict(int))
    spans: dict[str, dict[tuple[int, int], tuple[int, int]]] = defaultdict(dict)
    workers = {}
    for event in _training_events(recording):
        place, invocation = (event["epoch"], event["step"]), event["invocation"]
        workers[invocation] = event["worker"]
        known = spans[invocation].get(place, (event["start_ns"], event["end_ns"]))
        spans[invocation][place] = (min(known[0], event["start_ns"]), max(known[1], event["end_ns"]))
        delays[invocation][place] += event["host_delay_ns"]
    records = _records(recording)
    calls = []
    for invocation, places in spans.items():
        record = records[invocation]
        duration_ns = round(record["duration_ms"] * 1e6) if "duration_ms" in record else 0
        for call in _calls(workers[invocation], bool(record.get("cold_start", True)), 0, duration_ns, places):
            whole = len(places) == 1 and duration_ns
            delay = 0 if whole else delays[invocation][call.epoch, call.step] / NS
            calls.append(replace(call, seconds=call.seconds - delay))
    return tuple(calls)


def cpu_calls(recording: Recording) -> tuple[Call, ...]:
    """Return CPU seconds of each minibatch on the recording host: forward, backward, and all that its client does."""
    spent: dict[tuple[str, int, int, int], int] = defaultdict(int)
    for event in _training_events(recording):
        key = (event["invocation"], event["worker"], event["epoch"], event["step"])
        spent[key] += event["cpu_ns"] + event["cpu_before_ns"]
    places = grouped((invocation, (epoch, step)) for invocation, _, epoch, step in spent)
    records = _records(recording)
    return tuple(
        Call(
            worker,
            epoch,
            step,
            cpu_ns / NS,
            bool(records[invocation].get("cold_start", True)) and min(places[invocation]) == (epoch, step),
        )
        for (invocation, worker, epoch, step), cpu_ns in spent.items()
    )


def played_calls(timeline: Timeline, recording: Recording) -> tuple[Call, ...]:
    """Return minibatches as modelled by playing a recorded program."""
    records = _records(recording)
    spans: dict[int, dict[tuple[int, int], tuple[int, int]]] = defaultdict(dict)
    origin: dict[int, str] = {}
    for entry, step in enumerate(timeline.steps):
        if step.event < 0:
            continue
        event, track = recording.events[step.event], timeline.track[entry]
        if event["step"] < 0 or not 0 <= event["worker"] < recording.plan.workers:
            continue
        origin[track] = event["invocation"]
        place = (event["epoch"], event["step"])
        begin, end = timeline.begin[entry], timeline.end[entry]
        known = spans[track].get(place, (begin, end))
        spans[track][place] = (min(known[0], begin), max(known[1], end))
    calls: list[Call] = []
    for track, places in spans.items():
        call, record = timeline.calls[track], records[origin[track]]
        worker, cold = timeline.program.tracks[track].worker, bool(record.get("cold_start", True))
        calls += _calls(worker, cold, call.began, call.ended, places)
    return tuple(calls)


def peak_memory_mb(recording: Recording) -> int:
    """Return the most memory, MB, that an invocation with minibatches used (*Max Memory Used*)."""
    training = {event["invocation"] for event in _training_events(recording)}
    return max(int(record["max_memory_mb"]) for record in recording.invocations if record["request_id"] in training)


def _training_events(recording: Recording) -> Iterable[Mapping[str, Any]]:
    """Yield events of workers within a step; a supervisor's rank is beyond theirs."""
    for event in recording.events:
        if 0 <= event["worker"] < recording.plan.workers and event["step"] >= 0 and event["op"] not in BESIDE:
            yield event


def _records(recording: Recording) -> dict[str, Mapping[str, Any]]:
    """Return metered records by id; instances have neither duration nor cold start."""
    return {record["request_id"]: record for record in recording.invocations} | {
        record["id"]: record for record in recording.instances
    }
