"""Each worker's activity over time, as bars: a worker has one row, or several for concurrent invocations."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from slslab.run.metrics import BESIDE, PHASES, grouped

# More bars than a screen has pixels for, or than a browser draws at once.
BARS = 4000
ROWS = 64
Event = Mapping[str, Any]


@dataclass(frozen=True)
class Bar:
    """A phase of an invocation, in ns of the trace's clock; it contains `events` events."""

    row: str
    function: str
    phase: str
    start_ns: int
    end_ns: int
    events: int


@dataclass(frozen=True)
class Timeline:
    """Bars of rows, from `start_ns` on. `thinned` says how events became bars; empty if each event is one.

    `left_out` counts rows beyond the first 64."""

    rows: tuple[str, ...]
    bars: tuple[Bar, ...]
    start_ns: int
    end_ns: int
    thinned: str
    left_out: int


@dataclass(frozen=True)
class _Span:
    worker: int
    function: str
    start_ns: int
    end_ns: int
    events: Sequence[Event]


def build_timeline(
    events: Sequence[Event], invocations: Sequence[Event] = (), instances: Sequence[Event] = (), limit: int = BARS
) -> Timeline | None:
    """Return the timeline of a trace, in wall time; None if no worker has events yet.

    Time in an invocation without events is a bar of `other`. With more than `limit` bars, neighbours of one phase are
    merged if the gap between them is less than a 2,000th of the whole time. If that isn't enough, the time is cut into
    equal intervals, each with one bar per phase as long as its share.
    """
    spans = _spans(events, invocations, instances)
    if not spans:
        return None
    rows = _rows(spans)
    shown = dict(list(rows.items())[:ROWS])
    start, end = min(span.start_ns for span in spans), max(span.end_ns for span in spans)
    bars = [bar for name, group in shown.items() for span in group for bar in _bars(name, span)]
    counted, thinned = sum(bar.events for bar in bars), ""
    if len(bars) > limit:
        gap = (end - start) // 2000
        by_row = grouped((bar.row, bar) for bar in bars)
        bars = [bar for group in by_row.values() for bar in merge(group, gap)]
        thinned = (
            f"{counted:,} events are drawn as {len(bars):,} bars: neighbours of one phase with less than "
            f"{_length(gap)} between them are one bar."
        )
    if len(bars) > limit:
        kinds = len({bar.phase for bar in bars})
        width = -(-(end - start) * len(shown) * kinds // limit)
        by_row = grouped((bar.row, bar) for bar in bars)
        bars = [bar for group in by_row.values() for bar in apportion(group, start, width)]
        thinned = (
            f"{counted:,} events are drawn as {len(bars):,} bars: the time is cut into intervals of {_length(width)}. "
            "In each, every phase has one bar as long as its share, regardless of the order of events."
        )
    return Timeline(tuple(shown), tuple(bars), start, end, thinned, len(rows) - len(shown))


def merge(bars: Sequence[Bar], gap_ns: int) -> Iterator[Bar]:
    """Yield the bars of a row in order, merging neighbours of one phase and function that are at most `gap_ns` apart.

    The gap is time of `other`, so bars of `other` that short are dropped."""
    kept: list[Bar] = []
    for bar in bars:
        if bar.phase == "other" and bar.end_ns - bar.start_ns <= gap_ns:
            continue
        last = kept[-1] if kept else None
        same = last is not None and (last.phase, last.function) == (bar.phase, bar.function)
        if last is not None and same and bar.start_ns - last.end_ns <= gap_ns:
            end = max(last.end_ns, bar.end_ns)
            kept[-1] = Bar(bar.row, bar.function, bar.phase, last.start_ns, end, last.events + bar.events)
        else:
            kept.append(bar)
    yield from kept


def apportion(bars: Sequence[Bar], start_ns: int, width_ns: int) -> Iterator[Bar]:
    """Yield a row's bars for intervals of `width_ns`: each phase as long as its share, idle time last."""
    shares: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    events: dict[tuple[int, str], int] = defaultdict(int)
    functions: dict[int, set[str]] = defaultdict(set)
    for bar in bars:
        first, last = ((at - start_ns) // width_ns for at in (bar.start_ns, max(bar.start_ns, bar.end_ns - 1)))
        events[first, bar.phase] += bar.events
        for number in range(first, last + 1):
            begin = start_ns + number * width_ns
            shares[number][bar.phase] += min(bar.end_ns, begin + width_ns) - max(bar.start_ns, begin)
            functions[number].add(bar.function)
    for number, parts in sorted(shares.items()):
        at = start_ns + number * width_ns
        names = functions[number]
        function = next(iter(names)) if len(names) == 1 else f"{len(names)} functions"
        for phase in (phase for phase in PHASES if parts.get(phase)):
            yield Bar(bars[0].row, function, phase, at, at + parts[phase], events[number, phase])
            at += parts[phase]


def _length(ns: int) -> str:
    return f"{ns / 1e9:,.3g} s" if ns >= 1e9 else f"{ns / 1e6:,.3g} ms"


def _spans(events: Sequence[Event], invocations: Sequence[Event], instances: Sequence[Event]) -> list[_Span]:
    """Return invocations and instances by start; one without a record lasts from its first event to its last."""
    inside = grouped((e["invocation"], e) for e in events if e["worker"] >= 0 and e["op"] not in BESIDE)
    starts = {event["invocation"]: event for event in events if event["op"] == "environment.start"}
    ran = {record["request_id"]: record for record in invocations} | {each["id"]: each for each in instances}
    spans = []
    for identifier in dict.fromkeys((*inside, *ran)):
        members = sorted(inside[identifier], key=itemgetter("start_ns", "end_ns"))
        last_ns = max((event["end_ns"] for event in members), default=0)
        record = ran.get(identifier) or {**members[0], "end_ns": last_ns}
        first = members[0] if members else {"worker": -1, "function": "", **record}
        begin = record["start_ns"]
        if begun := starts.get(identifier):
            members.insert(0, begun)
            begin = min(begin, begun["start_ns"])
        function = record.get("function") or first["function"]
        spans.append(_Span(first["worker"], function, begin, record["end_ns"], members))
    return sorted(spans, key=lambda span: (span.worker, span.start_ns))


def _rows(spans: Sequence[_Span]) -> dict[str, list[_Span]]:
    """Return the spans of each row; a worker has a row for each of its concurrent invocations."""
    free: dict[int, list[int]] = defaultdict(list)
    rows: dict[tuple[int, int], list[_Span]] = defaultdict(list)
    for span in spans:
        ends = free[span.worker]
        lane = next((number for number, end in enumerate(ends) if end <= span.start_ns), len(ends))
        ends[lane:] = [span.end_ns, *ends[lane + 1 :]]
        rows[span.worker, lane].append(span)
    return {_name(worker, lane): members for (worker, lane), members in sorted(rows.items())}


def _name(worker: int, lane: int) -> str:
    name = "unknown" if worker < 0 else f"worker {worker}"
    return f"{name} · {lane + 1}" if lane else name


def _bars(row: str, span: _Span) -> Iterator[Bar]:
    """Yield a span's events as bars, and `other` for the time between them; overlaps belong to the earlier event."""
    at = span.start_ns
    for event in span.events:
        start, end = max(at, event["start_ns"]), event["end_ns"]
        if start > at:
            yield Bar(row, span.function, "other", at, start, 0)
        if end > start:
            phase = event["phase"] if event["phase"] in PHASES else "other"
            yield Bar(row, span.function, phase, start, end, 1)
        at = max(start, end)
    if span.end_ns > at:
        yield Bar(row, span.function, "other", at, span.end_ns, 0)
