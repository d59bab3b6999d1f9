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
from typing import Any, BinaryIO

from slslab.errors import writable
from slslab.run.log import replacing
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.path import Stretch, head

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
