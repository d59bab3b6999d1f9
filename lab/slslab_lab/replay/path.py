"""The critical path of a timeline: the entries that make up the makespan, where each entry waited for the one before.

Shortening one of them shortens the run until another path is the longest. Shortening any other entry doesn't.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slslab.predict.environment import NS
from slslab.predict.profiles.profile import to_ns
from slslab.report.formats import percent
from slslab.run.metrics import grouped
from slslab_lab.replay.kernel.timeline import NEVER, Timeline
from slslab_lab.replay.whatif import modelled

NAMED = 3


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the critical path, in ns, with one activity of one worker.

    `op` is a step's, or before a track's first step: `held` (no environment may start yet), `cold start` (up to init),
    `init`, `accept` (up to the handler), `boot` of an instance, and `other`, an invocation without steps. `poll` is the
    time that polling adds between the opening of a gate and the request that finds it.
    """

    worker: int
    phase: str
    op: str
    start: int
    end: int

    @property
    def ns(self) -> int:
        return self.end - self.start


def critical_path(timeline: Timeline) -> tuple[Stretch, ...]:
    """Follow the waits back from the track that ends last to the first acceptance.

    The stretches are in order of time, without gaps: together they are the makespan.
    """
    return tuple(reversed([stretch for stretch in _follow(timeline) if stretch.ns > 0]))


def parts(path: Sequence[Stretch]) -> list[dict[str, Any]]:
    """Return the stretches added up by phase and operation, for a document, the longest first."""
    total_ns, rows = sum(stretch.ns for stretch in path), []
    for (phase, op), stretches in grouped(((stretch.phase, stretch.op), stretch) for stretch in path).items():
        workers: Counter[int] = Counter()
        for stretch in stretches:
            workers[stretch.worker] += stretch.ns
        rows.append(
            {
                "op": op,
                "phase": phase,
                "seconds": modelled(workers.total() / NS).as_document(),
                "share": workers.total() / total_ns,
                "stretches": len(stretches),
                "workers": [{"worker": worker, "seconds": ns / NS} for worker, ns in workers.most_common()],
            }
        )
    return sorted(rows, key=lambda row: (-row["share"], row["phase"], row["op"]))


def describe(path: Sequence[Stretch]) -> str:
    """Describe the longest parts in one sentence, each with its worker if one has more than half of it."""
    shares = []
    for part in parts(path)[:NAMED]:
        most = part["workers"][0]
        owner = "no worker" if most["worker"] < 0 else f"worker {most['worker']}"
        owner = owner if 2 * most["seconds"] > part["seconds"]["value"] else f"{len(part['workers'])} workers"
        shares.append(f"{percent(part['share'])} {part['op']} of {owner}")
    return f"The run's {sum(stretch.ns for stretch in path) / NS:,.3f} s are {', '.join(shares)}."


def _before(timeline: Timeline, index: int, end: int) -> Iterator[Stretch]:
    """Yield, backwards, the stretches between a track's acceptance and its first step (or its end, without steps)."""
    yield Stretch(timeline.program.tracks[index].worker, "other", "other", timeline.calls[index].began, end)
    yield from reversed(head(timeline, index))


def _follow(timeline: Timeline) -> Iterator[Stretch]:
    first = set(np.unique(np.array(timeline.track, np.int64), return_index=True)[1].tolist())
    last = {index: entry for entry, index in enumerate(timeline.track)}
    index = max(range(len(timeline.calls)), key=lambda number: timeline.calls[number].ended)
    entry, end = last.get(index, NEVER), timeline.calls[index].ended
    if entry == NEVER:
        yield from _before(timeline, index, end)
        end = timeline.calls[index].accepted
    while entry >= 0:
        index = timeline.track[entry]
        worker, step, before = timeline.program.tracks[index].worker, timeline.steps[entry], timeline.after[entry]
        yield Stretch(worker, "other", "other", timeline.end[entry], end)
        end = min(end, timeline.end[entry])
        waited = timeline.opened[entry] >= 0
        came = timeline.opened[entry] if waited else timeline.begin[entry]
        asked = max(came, timeline.start[entry])
        yield Stretch(worker, step.phase, step.op, asked, end)
        yield Stretch(worker, "wait", "poll", came, asked)
        end = came
        if not waited and entry in first:
            yield from _before(timeline, index, end)
            end = timeline.calls[index].accepted
        entry = before
    # A gate opened by a track without steps has no entry, so the time before it is called `other`.
    yield Stretch(NEVER, "other", "other", min(call.accepted for call in timeline.calls), end)


def head(timeline: Timeline, index: int) -> tuple[Stretch, ...]:
    """Return the stretches between a track's acceptance and its first step."""
    track, call = timeline.program.tracks[index], timeline.calls[index]
    if track.kind == "instance":
        return (Stretch(track.worker, "init", "boot", call.accepted, call.began),)
    if track.kind == "execution":
        return ()
    functions = timeline.profile.functions
    handler = call.began - to_ns(functions.warm_ms)
    init = handler - call.init_ns
    cold = init - (functions.cold_ns(track.package) if call.cold else 0)
    return (
        Stretch(track.worker, "wait", "held", call.accepted, cold),
        Stretch(track.worker, "init", "cold start", cold, init),
        Stretch(track.worker, "init", "init", init, handler),
        Stretch(track.worker, "other", "accept", handler, call.began),
    )
