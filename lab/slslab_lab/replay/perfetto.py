"""Timelines for Perfetto and Chrome's tracing: JSON in the Trace Event Format, gzipped if the name ends in `.gz`.

Each worker is a process, and its concurrent invocations are its threads. Invocations, instances and executions are
slices; cold start, init, steps by operation, and waits lie inside them. An arrow (a flow) leads from the step that
ended a wait to the step that waited. Times are microseconds, and events are in order of time.

The format is Google's "Trace Event Format" (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from heapq import heappop, heappush
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from slslab.errors import writable
from slslab.run.log import replacing
from slslab.run.run import Run
from slslab_lab.replay.kernel.kernel import TRANSITION
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.path import Stretch, head
from slslab_lab.replay.programs.recording import BESIDE

Event = dict[str, Any]
# A process and a thread.
Place = tuple[int, int]
STATE_MACHINES = 1
NO_WORKER = 2
FLOW = {"name": "message", "cat": "message"}


def write_perfetto(timeline: Timeline, path: Path) -> None:
    """Write a modelled timeline; RequestError if the file can't be written."""
    processes = [
        STATE_MACHINES if track.kind == "execution" else _process(track.worker) for track in timeline.program.tracks
    ]
    places = _place(processes, [(call.accepted, call.ended) for call in timeline.calls])
    profile = timeline.profile
    about = {"status": "modelled", "profile": f"{profile.name} of {profile.date}"}
    _write(path, about, places, _modelled(timeline, places))


def write_measured_perfetto(recording: Run, path: Path) -> None:
    """Write a measured run in the same format: wall time on this host, from its first event."""
    _write(path, {"status": "measured", "run": recording.plan.run}, *_measured(recording))


def _process(worker: int) -> int:
    return NO_WORKER + 1 + worker


def _place(processes: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[Place]:
    """Return each span's place: its process, and the thread there that has been free for longest, or a new one."""
    free: dict[int, list[tuple[int, int]]] = defaultdict(list)
    places: list[Place] = [(process, 0) for process in processes]
    for index in sorted(range(len(spans)), key=lambda number: spans[number]):
        threads, (start, end) = free[processes[index]], spans[index]
        thread = heappop(threads)[1] if threads and threads[0][0] < start else len(threads) + 1
        heappush(threads, (end, thread))
        places[index] = (processes[index], thread)
    return places


def _names(places: Iterable[Place]) -> Iterator[Event]:
    threads = sorted(set(places))
    names = {STATE_MACHINES: "state machines", NO_WORKER: "no worker"}
    for process in sorted({process for process, _ in threads}):
        name = names.get(process, f"worker {process - NO_WORKER - 1}")
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
    for process, thread in threads:
        args = {"name": f"at once: {thread}"}
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": args}


def _slice(place: Place, name: str, phase: str, start: int, end: int, args: Mapping[str, Any]) -> Event:
    return {
        "ph": "X",
        "name": name,
        "cat": phase,
        "pid": place[0],
        "tid": place[1],
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "args": args,
    }


def _flow(kind: str, place: Place, number: int, time: int) -> Event:
    """Return the start (`s`) or end (`f`) of an arrow, inside the slice that covers that time."""
    event = {"ph": kind, **FLOW, "id": number, "pid": place[0], "tid": place[1], "ts": time / 1000}
    return event | {"bp": "e"} if kind == "f" else event


# Kinds of rows of a modelled timeline, in the order of writing rows that begin at the same time.
WHOLE, CALLED, HEAD, WAIT, STEP, LEAVES, COMES = range(7)
# A time; a rank among rows of equal time (0 whole tracks, 1 arrows to them, 2 their heads, 3 entries); the number of a
# track, a head or an entry; the kind; the number of an arrow.
Row = tuple[int, int, int, int, int]


def _modelled(timeline: Timeline, places: Sequence[Place]) -> Iterator[Event]:
    """Yield the slices of a timeline in order of time, and the arrows that begin and end inside them."""
    heads = [(index, part) for index in range(len(places)) for part in head(timeline, index) if part.ns]
    for time, _, number, kind, flow in sorted(_rows(timeline, heads)):
        if kind == CALLED:
            yield _flow("f", places[number], flow, time)
        elif kind == WHOLE:
            call, track = timeline.calls[number], timeline.program.tracks[number]
            about = {"memory_mb": track.memory_mb, "cold": call.cold, "epoch": track.epoch}
            yield _slice(places[number], track.name, track.kind, time, call.ended, about)
        elif kind == HEAD:
            index, part = heads[number]
            yield _slice(places[index], part.op, part.phase, time, part.end, {})
        else:
            place, step = places[timeline.track[number]], timeline.steps[number]
            if kind in (LEAVES, COMES):
                yield _flow("s" if kind == LEAVES else "f", place, flow, time)
            elif kind == WAIT:
                waited = {"for": step.op, "polls": timeline.polls[number]}
                yield _slice(place, "wait", "wait", time, timeline.start[number], waited)
            else:
                args = {name: getattr(step, name) for name in ("epoch", "step", "bytes", "requests", "event")}
                yield _slice(place, step.op, step.phase, time, timeline.end[number], args)


def _rows(timeline: Timeline, heads: Sequence[tuple[int, Stretch]]) -> Iterator[Row]:
    number = len(timeline.steps)
    for index, call in enumerate(timeline.calls):
        yield call.accepted, 0, index, WHOLE, 0
    for place, (_, part) in enumerate(heads):
        yield part.start, 2, place, HEAD, 0
    begun: set[int] = set()
    for entry, (index, begin, start, after) in enumerate(
        zip(timeline.track, timeline.begin, timeline.start, timeline.after, strict=True)
    ):
        if start > begin:
            yield begin, 3, entry, WAIT, 0
        yield start, 3, entry, STEP, 0
        if timeline.opened[entry] >= 0:
            # A poll may start before the step that opens its gate.
            yield timeline.start[after], 3, after, LEAVES, entry
            yield max(start, timeline.start[after]), 3, entry, COMES, entry
        elif index not in begun and after >= 0:
            yield timeline.start[after], 3, after, LEAVES, number + index
            yield timeline.calls[index].accepted, 1, index, CALLED, number + index
        begun.add(index)


class _Span(NamedTuple):
    number: str
    process: int
    name: str
    category: str
    start: int
    end: int
    args: Mapping[str, Any]


def _spans(recording: Run, work: Iterable[Mapping[str, Any]]) -> Iterator[_Span]:
    workers = {event["invocation"]: event["worker"] for event in work}
    accepted = {e["invocation"]: e for e in recording.events if e["op"] == "invoke" and e["worker"] < 0}
    for record in recording.invocations:
        number = record["request_id"]
        span = accepted.get(number, record)
        args = {name: record[name] for name in ("request_id", "memory_mb", "duration_ms", "billed_ms", "cold_start")}
        process = _process(workers.get(number, -1))
        yield _Span(number, process, record["function"], "invocation", span["start_ns"], span["end_ns"], args)
    for one in recording.instances:
        args = {name: one[name] for name in ("id", "device", "billed_seconds")}
        yield _Span(one["id"], _process(one["worker"]), one["type"], "instance", one["start_ns"], one["end_ns"], args)
    for event in recording.events:
        if event["op"] == TRANSITION:
            yield _Span("", STATE_MACHINES, event["resource"], TRANSITION, event["start_ns"], event["end_ns"], {})


def _measured(recording: Run) -> tuple[list[Place], list[Event]]:
    """Return places, and events in order of time; an arrow begins with the cause, and ends once both have begun."""
    events = recording.events
    zero = min((event["start_ns"] for event in events), default=0)
    work = [event for event in events if event["worker"] >= 0 and event["op"] not in BESIDE]
    spans = list(_spans(recording, work))
    places = _place([span.process for span in spans], [(span.start, span.end) for span in spans])
    place_of = {span.number: place for span, place in zip(spans, places, strict=True) if span.number}
    written = [
        _slice(place, span.name, span.category, span.start - zero, span.end - zero, span.args)
        for span, place in zip(spans, places, strict=True)
    ]
    starts = {e["environment"] or e["resource"]: e for e in events if e["op"] == "environment.start"}
    for record in recording.invocations:
        if record["cold_start"] and (init := starts.get(record["environment"])) is not None:
            place = place_of[record["request_id"]]
            written.append(_slice(place, "init", "init", init["start_ns"] - zero, init["end_ns"] - zero, {}))
    for event in work:
        place, start = place_of[event["invocation"]], event["start_ns"] - zero
        args = {name: event[name] for name in ("epoch", "step", "bytes", "requests", "event", "resource", "failed")}
        written.append(_slice(place, event["op"], event["phase"], start, event["end_ns"] - zero, args))
        for number in event["causes"]:
            cause = events[number]
            if cause["worker"] >= 0 and cause["invocation"] != event["invocation"] and cause["op"] not in BESIDE:
                # Each arrow has its own number.
                flow, begun = event["event"] * len(events) + number, cause["start_ns"] - zero
                written.append(_flow("s", place_of[cause["invocation"]], flow, begun))
                written.append(_flow("f", place, flow, max(begun, start)))
    written.sort(key=lambda one: (one["ts"], one["ph"] != "X", -one.get("dur", 0.0), one["ph"] == "f"))
    return places, written


def _write(path: Path, about: Mapping[str, str], places: Sequence[Place], events: Iterable[Event]) -> None:
    encode = json.JSONEncoder(separators=(",", ":")).encode
    with writable(path, "name another file."), ExitStack() as stack:
        file: BinaryIO | gzip.GzipFile = stack.enter_context(replacing(path))
        if path.suffix == ".gz":
            # Without a time and a name, equal timelines give equal files.
            file = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))
        opening = encode({"displayTimeUnit": "ms", "otherData": about})
        file.write(f'{opening[:-1]},"traceEvents":[\n'.encode())
        for number, event in enumerate(chain(_names(places), events)):
            file.write((",\n" if number else "").encode() + encode(event).encode())
        file.write(b"\n]}\n")
