"""Timelines for Perfetto and Chrome's tracing: JSON in the Trace Event Format, gzipped if the name ends in `.gz`.

Each worker is a process, and its concurrent invocations are its threads. Invocations, instances and executions are
slices; cold start, init, steps by operation, and waits lie inside them. An arrow (a flow) leads from the step that
ended a wait to the step that waited. Times are microseconds. Events needn't be in order of time.

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
from slslab_lab.replay.path import head

Event = dict[str, Any]
# A process and a thread.
Slot = tuple[int, int]
STATE_MACHINES = 1
NO_WORKER = 2


def write_perfetto(timeline: Timeline, path: Path) -> None:
    """Write a modelled timeline; RequestError if the file can't be written."""
    processes = [
        STATE_MACHINES if track.kind == "execution" else NO_WORKER + 1 + track.worker
        for track in timeline.program.tracks
    ]
    slots = _slots(processes, [(call.accepted, call.ended) for call in timeline.calls])
    about = {"status": "modelled", "profile": f"{timeline.profile.name} of {timeline.profile.date}"}
    encode = json.JSONEncoder(separators=(",", ":")).encode
    with writable(path, "name another file."), ExitStack() as stack:
        file: BinaryIO | gzip.GzipFile = stack.enter_context(replacing(path))
        if path.suffix == ".gz":
            # Without a time and a name, equal timelines give equal files.
            file = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))
        opening = encode({"displayTimeUnit": "ms", "otherData": about})
        file.write(f'{opening[:-1]},"traceEvents":[\n'.encode())
        for number, event in enumerate(chain(_names(slots), _events(timeline, slots))):
            file.write((",\n" if number else "").encode() + encode(event).encode())
        file.write(b"\n]}\n")


def _slots(processes: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[Slot]:
    """Return each span's slot: its process, and the thread there that has been free for longest, or a new one."""
    free: dict[int, list[tuple[int, int]]] = defaultdict(list)
    slots: list[Slot] = [(process, 0) for process in processes]
    for index in sorted(range(len(spans)), key=lambda number: spans[number]):
        threads, (start, end) = free[processes[index]], spans[index]
        thread = heappop(threads)[1] if threads and threads[0][0] < start else len(threads) + 1
        heappush(threads, (end, thread))
        slots[index] = (processes[index], thread)
    return slots


def _names(slots: Iterable[Slot]) -> Iterator[Event]:
    threads = sorted(set(slots))
    names = {STATE_MACHINES: "state machines", NO_WORKER: "no worker"}
    for process in sorted({process for process, _ in threads}):
        name = names.get(process, f"worker {process - NO_WORKER - 1}")
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
    for process, thread in threads:
        args = {"name": f"at once: {thread}"}
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": args}


def _slice(slot: Slot, name: str, phase: str, start: int, end: int, args: Mapping[str, Any]) -> Event:
    return {
        "ph": "X",
        "name": name,
        "cat": phase,
        "pid": slot[0],
        "tid": slot[1],
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "args": args,
    }


def _flow(kind: str, slot: Slot, number: int, time: int) -> Event:
    """Return the start (`s`) or end (`f`) of an arrow, inside the slice that covers that time."""
    event = {"ph": kind, "name": "message", "cat": "message", "id": number, "pid": slot[0], "tid": slot[1]}
    return event | {"ts": time / 1000} | ({"bp": "e"} if kind == "f" else {})


def _events(timeline: Timeline, slots: Sequence[Slot]) -> Iterator[Event]:
    """Yield the slices of a timeline, each before those inside it, and the arrows that begin and end inside them."""
    leaving, called = _arrows(timeline)
    for index, (slot, call) in enumerate(zip(slots, timeline.calls, strict=True)):
        track = timeline.program.tracks[index]
        about = {"memory_mb": track.memory_mb, "cold": call.cold, "epoch": track.epoch}
        yield _slice(slot, track.name, track.kind, call.accepted, call.ended, about)
        if index in called:
            yield _flow("f", slot, called[index], call.accepted)
        for part in head(timeline, index):
            if part.ns:
                yield _slice(slot, part.op, part.phase, part.start, part.end, {})
    for entry, step in enumerate(timeline.steps):
        slot, begin, start = slots[timeline.track[entry]], timeline.begin[entry], timeline.start[entry]
        if start > begin:
            yield _slice(slot, "wait", "wait", begin, start, {"for": step.op, "polls": timeline.polls[entry]})
        args = {name: getattr(step, name) for name in ("epoch", "step", "bytes", "requests", "event")}
        yield _slice(slot, step.op, step.phase, start, timeline.end[entry], args)
        yield from (_flow("s", slot, flow, start) for flow in leaving.get(entry, ()))
        after = timeline.after[entry]
        if timeline.opened[entry] >= 0 and after >= 0:
            # A poll may start before the step that opens its gate.
            yield _flow("f", slot, entry, max(start, timeline.start[after]))


def _arrows(timeline: Timeline) -> tuple[dict[int, list[int]], dict[int, int]]:
    """Return the numbers of the arrows that leave each entry, and of the one that leads to each track."""
    leaving, called = defaultdict[int, list[int]](list), dict[int, int]()
    begun: set[int] = set()
    for entry, (index, after) in enumerate(zip(timeline.track, timeline.after, strict=True)):
        if timeline.opened[entry] >= 0:
            leaving[after].append(entry)
        elif index not in begun and after >= 0:
            called[index] = len(timeline.steps) + index
            leaving[after].append(called[index])
        begun.add(index)
    return leaving, called
