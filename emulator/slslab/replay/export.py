"""Timelines for Perfetto and Chrome's tracing: JSON of the Trace Event Format, gzipped if the name ends in `.gz`.

A worker is a process, and those of its invocations that run at once are its threads. Invocations, instances and
executions are slices; within them lie a cold start, init, steps by operation, and waits. An arrow (a flow) leads from
the step that ended a wait to the one that waited. Times are microseconds, and events stand in order of time.

The format is Google's "Trace Event Format" (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from slslab.errors import RequestError
from slslab.replay.kernel import TRANSITION, Timeline
from slslab.replay.path import head
from slslab.replay.recorded import BESIDE, Recording
from slslab.trace import replacing

Event = dict[str, Any]
Recorded = Mapping[str, Any]
# A process and a thread.
Place = tuple[int, int]
STATE_MACHINES = 1
NO_WORKER = 2
FLOW = {"name": "message", "cat": "message"}


def write_perfetto(timeline: Timeline, path: Path) -> None:
    """Write a modelled timeline; RequestError if the file cannot be written."""
    tracks = timeline.program.tracks
    processes = [STATE_MACHINES if track.kind == "execution" else _process(track.worker) for track in tracks]
    places = _place(processes, [(call.accepted, call.ended) for call in timeline.calls])
    profile = timeline.profile
    about = {"status": "modelled", "profile": f"{profile.name} of {profile.date}"}
    _write(path, about, places, _modelled(timeline, places))


def write_measured_perfetto(recording: Recording, path: Path) -> None:
    """Write what was measured of a run in the same form: wall time on this host, from its first event."""
    about = {"status": "measured", "run": recording.plan.run}
    places, events = _measured(recording)
    _write(path, about, places, events)


def _process(worker: int) -> int:
    return NO_WORKER + 1 + worker


def _place(processes: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[Place]:
    """Where each span stands: its process, and there the thread that has been free for longest, or a new one."""
    free: dict[int, list[tuple[int, int]]] = defaultdict(list)
    found: list[Place] = [(process, 0) for process in processes]
    for index in sorted(range(len(spans)), key=lambda number: spans[number]):
        threads, (start, end) = free[processes[index]], spans[index]
        thread = heappop(threads)[1] if threads and threads[0][0] < start else len(threads) + 1
        heappush(threads, (end, thread))
        found[index] = (processes[index], thread)
    return found


def _names(places: Iterable[Place]) -> Iterator[Event]:
    threads = sorted(set(places))
    named = {STATE_MACHINES: "state machines", NO_WORKER: "no worker"}
    for process in sorted({process for process, _ in threads}):
        name = named.get(process, f"worker {process - NO_WORKER - 1}")
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
    """An arrow's beginning (`s`) or end (`f`), in the slice that goes on at that time."""
    event = {"ph": kind, **FLOW, "id": number, "pid": place[0], "tid": place[1], "ts": time / 1000}
    return event | {"bp": "e"} if kind == "f" else event


def _modelled(timeline: Timeline, places: Sequence[Place]) -> Iterator[Event]:
    """The slices of a timeline in order of time, each followed by the arrows that begin or end in it."""
    heads = [(index, part) for index in range(len(places)) for part in head(timeline, index) if part.ns]
    number = len(timeline.steps)
    begin, start, end, after = (
        np.array(column, np.int64) for column in (timeline.begin, timeline.start, timeline.end, timeline.after)
    )
    waits = np.flatnonzero(start > begin)
    # Kinds: whole tracks, what lies before their first steps, waits and steps. Of one entry its wait comes first.
    counts = (len(places), len(heads), len(waits), number)
    kinds = np.repeat(np.arange(4), counts)
    which = np.concatenate([np.arange(counts[0]), np.arange(counts[1]), waits, np.arange(number)])
    accepted = np.array([call.accepted for call in timeline.calls], np.int64)
    begun = np.array([part.start for _, part in heads], np.int64)
    order = np.lexsort((kinds, which, np.minimum(kinds, 2), np.concatenate([accepted, begun, begin[waits], start])))
    waited = (after >= 0) & (end[after] > begin) if number else np.zeros(0, bool)
    leaving: dict[int, list[int]] = defaultdict(list)
    for entry in np.flatnonzero(waited).tolist():
        leaving[timeline.after[entry]].append(entry)
    called = _called(timeline, waited.tolist())
    for index, entry in called.items():
        leaving[entry].append(number + index)
    for kind, one in zip(kinds[order].tolist(), which[order].tolist(), strict=True):
        if kind == 0:
            call, track = timeline.calls[one], timeline.program.tracks[one]
            args = {"track": track.kind, "memory_mb": track.memory_mb, "cold": call.cold, "epoch": track.epoch}
            yield _slice(places[one], track.name, track.kind, call.accepted, call.ended, args)
            if one in called:
                yield _flow("f", places[one], number + one, call.accepted)
        elif kind == 1:
            index, part = heads[one]
            yield _slice(places[index], part.op, part.phase, part.start, part.end, {})
        else:
            place = places[timeline.track[one]]
            step, first = timeline.steps[one], timeline.start[one]
            if kind == 2:
                args = {"for": step.op, "polls": timeline.polls[one]}
                yield _slice(place, "wait", "wait", timeline.begin[one], first, args)
                continue
            args = {name: getattr(step, name) for name in ("epoch", "step", "bytes", "requests", "event")}
            yield _slice(place, step.op, step.phase, first, timeline.end[one], args | {"polls": timeline.polls[one]})
            if waited[one]:
                yield _flow("f", place, one, first)
            for flow in leaving.get(one, ()):
                yield _flow("s", place, flow, first)


def _called(timeline: Timeline, waited: Sequence[bool]) -> dict[int, int]:
    """Of each track that another one's entry brought about, that entry."""
    firsts: dict[int, int] = {}
    for entry, index in enumerate(timeline.track):
        firsts.setdefault(index, entry)
    opened = {index: timeline.after[entry] for index, entry in firsts.items() if not waited[entry]}
    return {index: entry for index, entry in opened.items() if entry >= 0}


@dataclass(frozen=True)
class _Span:
    """An invocation, an instance or a transition as it was recorded."""

    number: str
    process: int
    name: str
    category: str
    start: int
    end: int
    args: Mapping[str, Any]


def _spans(recording: Recording, own: Iterable[Recorded]) -> Iterator[_Span]:
    workers = {event["invocation"]: event["worker"] for event in own}
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


def _measured(recording: Recording) -> tuple[list[Place], list[Event]]:
    """Places, and what happened in order of time; an arrow begins with the cause, and ends once both have begun."""
    events = recording.events
    zero = min((event["start_ns"] for event in events), default=0)
    own = [event for event in events if event["worker"] >= 0 and event["op"] not in BESIDE]
    spans = list(_spans(recording, own))
    places = _place([span.process for span in spans], [(span.start, span.end) for span in spans])
    stands = {span.number: place for span, place in zip(spans, places, strict=True) if span.number}
    found = [
        _slice(place, span.name, span.category, span.start - zero, span.end - zero, span.args)
        for span, place in zip(spans, places, strict=True)
    ]
    starts = {e["environment"] or e["resource"]: e for e in events if e["op"] == "environment.start"}
    for record in recording.invocations:
        if record["cold_start"] and (init := starts.get(record["environment"])) is not None:
            place = stands[record["request_id"]]
            found.append(_slice(place, "init", "init", init["start_ns"] - zero, init["end_ns"] - zero, {}))
    for event in own:
        place = stands[event["invocation"]]
        args = {name: event[name] for name in ("epoch", "step", "bytes", "requests", "event", "resource", "failed")}
        found.append(_slice(place, event["op"], event["phase"], event["start_ns"] - zero, event["end_ns"] - zero, args))
        for cause in event["causes"]:
            made = events[cause]
            if made["worker"] < 0 or made["invocation"] == event["invocation"] or made["op"] in BESIDE:
                continue
            # Each arrow has a number of its own.
            flow, begun = event["event"] * len(events) + cause, max(made["start_ns"], event["start_ns"])
            found.append(_flow("s", stands[made["invocation"]], flow, made["start_ns"] - zero))
            found.append(_flow("f", place, flow, begun - zero))
    found.sort(key=lambda one: (one["ts"], one["ph"] != "X", -one.get("dur", 0.0), one["ph"] == "f"))
    return places, found


def _write(path: Path, about: Mapping[str, str], places: Sequence[Place], events: Iterable[Event]) -> None:
    encode = json.JSONEncoder(separators=(",", ":")).encode
    try:
        with ExitStack() as stack:
            file: BinaryIO | gzip.GzipFile = stack.enter_context(replacing(path))
            if path.suffix == ".gz":
                # Without a time and a name, equal timelines give equal files.
                file = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))
            opening = {"displayTimeUnit": "ms", "otherData": about}
            file.write(f'{encode(opening)[:-1]},"traceEvents":[\n'.encode())
            separator = ""
            for event in chain(_names(places), events):
                file.write(f"{separator}{encode(event)}".encode())
                separator = ",\n"
            file.write(b"\n]}\n")
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}.", "name another file.") from error
