"""Rules about order and time: ordered events, spans that add up to the billed time, and barriers."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from slslab.aws.limits import billed_ms
from slslab.run.metrics import BESIDE, grouped
from slslab.run.records import billed_seconds
from slslab.run.run import Run
from slslab_lab.checks.exchange import Exchange
from slslab_lab.checks.messages import step_name, who
from slslab_lab.checks.violation import NotChecked, Violation
from slslab_workers.patterns.messages import Event

# A REPORT line has two decimals, so a duration may be off by half a hundredth.
ROUNDING_MS = 0.01
# The Lambda clock is read about every 100 ms, so a killed function ends between two readings. An environment that was
# reset initialises again inside its invocation; the time between these two phases isn't metered.
READING_MS = 100.0
REPORT = re.compile(
    r"(?<!Billed )Duration: (?P<duration_ms>[\d.]+) ms|Billed Duration: (?P<billed_ms>\d+) ms"
    r"|Init Duration: (?P<init_ms>[\d.]+) ms|Memory Size: (?P<memory_mb>\d+) MB"
)


def check_order(run: Run) -> Iterator[Violation]:
    """Check that events are numbered in the order of their starts, and no cause begins after its effect has ended."""
    before = (0, 0)
    for number, event in enumerate(run.events):
        times = event["start_ns"], event["end_ns"]
        if event["event"] != number or times < before:
            yield Violation.by(event, "order", "The event is out of the order of starts")
        if times[1] < times[0]:
            yield Violation.by(event, "order", "The event ends before it starts")
        before = max(before, times)
        for cause in event["causes"]:
            if not 0 <= cause < len(run.events) or run.events[cause]["start_ns"] > event["end_ns"]:
                yield Violation.by(event, "order", f"Its cause, event {cause}, begins after the event has ended")


def check_overlap(run: Run) -> Iterator[Violation]:
    """Check that a worker's operations in one invocation don't overlap."""
    for events in _by_invocation(run).values():
        for event, following in pairwise(sorted(events, key=lambda e: (e["start_ns"], -e["end_ns"]))):
            # A worker asks its own database first where a peer's database is.
            encloses = event["op"] == "ping" and following["end_ns"] <= event["end_ns"]
            if following["start_ns"] < event["end_ns"] and not encloses:
                sentence = f"{event['op']} has not ended when {following['op']}, event {following['event']}, begins"
                yield Violation.by(event, "overlap", sentence)


def check_span(run: Run) -> Iterator[Violation]:
    """Check that a worker's events lie within their invocation or instance, and that this span was metered."""
    spans = [(record["request_id"], record) for record in run.invocations]
    spans += [(record["id"], record) for record in run.instances]
    metered = grouped(spans)
    for invocation, events in _by_invocation(run).items():
        # Retries of an asynchronous invocation share its id.
        for event in events if invocation in metered else ():
            if not any(
                r["start_ns"] <= event["start_ns"] and event["end_ns"] <= r["end_ns"] for r in metered[invocation]
            ):
                yield Violation.by(event, "span", f"{event['op']} is outside the time of its invocation, {invocation}")
    owners = _owners(run)
    for record in run.invocations:
        wall_ms = (record["end_ns"] - record["start_ns"]) / 1e6
        least_ms, most_ms = wall_ms - record["host_delay_ms"] - READING_MS, wall_ms + ROUNDING_MS
        if record["status"] == "timeout":
            # AWS reports the limit itself, even if a busy host reads the clock late.
            least_ms = 0.0
        if not least_ms <= record["duration_ms"] <= most_ms:
            sentence = (
                f"Invocation {record['request_id']} has a duration of {record['duration_ms']:,} ms but took "
                f"{wall_ms:,.2f} ms, delayed by the host for at most {record['host_delay_ms']:,} ms"
            )
            yield Violation("span", f"{sentence}.", *owners.get(record["request_id"], ()))


def check_billed(run: Run) -> Iterator[Violation]:
    """Check that init and duration are billed, rounded up once, and an instance's begun seconds, at least 60."""
    owners = _owners(run)
    for record in run.invocations:
        worker = owners.get(record["request_id"], ())
        due = billed_ms(record["duration_ms"], record["init_ms"])
        if record["billed_ms"] != due:
            sentence = f"Invocation {record['request_id']} is billed {record['billed_ms']:,} ms but took {due:,} ms"
            yield Violation("billed", f"{sentence}.", *worker)
        for name, printed in _report(record).items():
            if abs(printed - (record[name] or 0.0)) > ROUNDING_MS:
                sentence = (
                    f"The REPORT line of {record['request_id']} has {printed:,} as {name}, its record {record[name]}"
                )
                yield Violation("billed", f"{sentence}.", *worker)
    for instance in run.instances:
        due = billed_seconds(instance["end_ns"] - instance["start_ns"])
        if instance["billed_seconds"] != due:
            sentence = f"Instance {instance['id']} is billed {instance['billed_seconds']:,} s instead of {due:,} s"
            yield Violation("billed", f"{sentence}.", instance["worker"])


def check_barrier(run: Run, exchange: Exchange) -> Iterator[Violation]:
    """Check that no worker uses a step's data or begins the next step before every worker has sent its part."""
    if not exchange.protocol.waits:
        raise NotChecked("workers don't wait (s-asp)" if exchange.protocol.drawn else "no step has a barrier")
    for wait in exchange.protocol.waits:
        sent = [exchange.source(name) for name in wait.until if name in exchange.made]
        if not sent:
            continue
        last = max(sent, key=lambda event: event["start_ns"])
        for number in wait.then:
            event = run.events[number]
            if event["start_ns"] < last["start_ns"]:
                late = who(run, last["worker"], inside=True)
                sentence = (
                    f"{who(run, event['worker'])} passed the barrier of {step_name(wait.step)} before {late} reached "
                    f"it with event {last['event']}"
                )
                yield Violation("barrier", f"{sentence}.", event["worker"], *wait.step, number)


def _by_invocation(run: Run) -> Mapping[str, list[Event]]:
    own = (e for e in run.events if e["worker"] >= 0 and e["op"] not in BESIDE and e["invocation"])
    return grouped((event["invocation"], event) for event in own)


def _owners(run: Run) -> Mapping[str, tuple[int, int, int, int]]:
    """Return worker, epoch, step and last event of each invocation; epoch and step are of its first event in a step."""
    owners = {}
    for invocation, events in _by_invocation(run).items():
        first = next((event for event in events if event["step"] >= 0), events[-1])
        owners[invocation] = first["worker"], first["epoch"], first["step"], events[-1]["event"]
    return owners


def _report(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a REPORT line under the record's names; some may be missing."""
    matches = REPORT.finditer(record.get("report", ""))
    return {name: float(value) for match in matches for name, value in match.groupdict().items() if value is not None}
