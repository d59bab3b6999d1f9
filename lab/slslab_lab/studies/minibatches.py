"""Times of one minibatch, which the papers call a *function*, whether it was an invocation or a part of one.

If a function runs one minibatch (SPIRT's `compute_gradients`), the minibatch is the whole billed invocation. If a
worker continues (all others), a minibatch begins where the one before it ended. The first minibatch of an environment
is slower, since networks and buffers are built in it, and is marked."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from slslab.errors import RunError
from slslab.predict.environment import NS
from slslab.run.metrics import BESIDE, grouped
from slslab.run.run import Run
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.studies.documents import Estimate

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Call:
    """One minibatch of one worker: its seconds, and whether it was the first of its environment."""

    worker: int
    epoch: int
    step: int
    seconds: float
    first: bool


def estimate(calls: Iterable[Call], batches: int) -> Estimate:
    """Return the mean of an epoch of `batches` minibatches, without the first of each environment.

    Workers are in lock step, so a sample is a step: the mean over its workers. A sample of a whole finite epoch has no
    error: the interval is Student's, times √(1 - samples / batches). RunError if every minibatch was a first one."""
    steps = grouped(((call.epoch, call.step), call.seconds) for call in calls if not call.first)
    if not steps:
        raise RunError("Every minibatch was the first one of its environment.", "record more --batches.")
    return mean_of([fmean(seconds) for seconds in steps.values()], batches)


def mean_of(samples: Sequence[float], population: int) -> Estimate:
    """Return the mean of a finite population from samples of it."""
    count, mean = len(samples), fmean(samples)
    if count >= population or count < 2:
        return Estimate(mean, samples=count)
    from scipy.stats import t

    quantile = float(t.ppf((1 + CONFIDENCE) / 2, count - 1))
    half = quantile * stdev(samples) / math.sqrt(count) * math.sqrt(1 - count / population)
    return Estimate(mean, mean - half, mean + half, count)


def ratio_of(first: Estimate, second: Estimate) -> Estimate:
    """Return the ratio of two means; its interval, in logarithms, follows from their relative errors."""
    value, samples = first.value / second.value, min(first.samples, second.samples)
    errors = [(each.high - each.value) / each.value for each in (first, second) if each.high is not None]
    if not errors:
        return Estimate(value, samples=samples)
    factor = math.exp(math.hypot(*errors))
    return Estimate(value, value / factor, value * factor, samples)


Spans = Mapping[tuple[int, int], tuple[int, int]]


def _calls(worker: int, cold: bool, begin: int, end: int, spans: Spans) -> Iterator[Call]:
    """Yield the minibatches of one invocation or instance, from the start and end of it and of each of them, in ns."""
    ordered = sorted(spans.items())
    # A function of one minibatch is billed from its start to its end.
    if len(ordered) == 1:
        ordered = [(ordered[0][0], (begin, end))]
    before: int | None = None
    for (epoch, step), (started, ended) in ordered:
        since = started if before is None else before
        yield Call(worker, epoch, step, (ended - since) / NS, cold and before is None)
        before = ended


def measured_calls(recording: Run) -> Iterator[Call]:
    """Yield minibatches as measured: on the Lambda clock, which stops while the host is busy with other work; for
    instances, on the wall clock minus that delay."""
    records = _records(recording)
    for invocation, events in grouped((e["invocation"], e) for e in _training_events(recording)).items():
        record, steps = records[invocation], grouped(((e["epoch"], e["step"]), e) for e in events)
        duration_ns = round(record["duration_ms"] * 1e6) if "duration_ms" in record else 0
        spans = {
            when: (min(event["start_ns"] for event in of_step), max(event["end_ns"] for event in of_step))
            for when, of_step in steps.items()
        }
        worker = next(iter(steps.values()))[0]["worker"]
        for call in _calls(worker, _is_cold(record), 0, duration_ns, spans):
            delay_ns = sum(event["host_delay_ns"] for event in steps[call.epoch, call.step])
            # A whole invocation's duration is already on the Lambda clock.
            beside = 0 if len(steps) == 1 and duration_ns else delay_ns / NS
            yield replace(call, seconds=call.seconds - beside)


def played_calls(timeline: Timeline, recording: Run) -> Iterator[Call]:
    """Yield minibatches as modelled by playing a recorded program."""
    records = _records(recording)
    training = {event["event"]: event for event in _training_events(recording)}
    entries = grouped(
        (timeline.track[entry], (training[step.event], entry))
        for entry, step in enumerate(timeline.steps)
        if step.event in training
    )
    for track, played in entries.items():
        call, record = timeline.calls[track], records[played[0][0]["invocation"]]
        steps = grouped(((event["epoch"], event["step"]), entry) for event, entry in played)
        # A track's entries are in the order of its steps.
        spans = {when: (timeline.begin[of_step[0]], timeline.end[of_step[-1]]) for when, of_step in steps.items()}
        yield from _calls(timeline.program.tracks[track].worker, _is_cold(record), call.began, call.ended, spans)


def _training_events(recording: Run) -> Iterable[Mapping[str, Any]]:
    """Yield workers' events within a step; a supervisor's rank is higher than theirs."""
    for event in recording.events:
        if 0 <= event["worker"] < recording.plan.workers and event["step"] >= 0 and event["op"] not in BESIDE:
            yield event


def _is_cold(record: Mapping[str, Any]) -> bool:
    return bool(record.get("cold_start", True))


def _records(recording: Run) -> dict[str, Mapping[str, Any]]:
    """Return metered records by id; instances have neither duration nor cold start."""
    return {record["request_id"]: record for record in recording.invocations} | {
        record["id"]: record for record in recording.instances
    }
