"""A replayed timeline as a picture: workers as rows, what they do as bars, waits in grey."""

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from slslab_lab.pages.plots.lines import open_figure, save_figure

if TYPE_CHECKING:
    from slslab_lab.replay.kernel.timeline import Timeline

# Phases of the trace, and the beginning of an invocation.
COLOURS = {
    "cold start": "tab:brown",
    "init": "tab:olive",
    "fetch": "tab:cyan",
    "compute": "tab:blue",
    "synchronise": "tab:orange",
    "update": "tab:green",
    "other": "tab:purple",
    "wait": "0.85",
}
ROWS = 64
NS = 1e9


def draw_timeline(timeline: "Timeline", title: str, path: Path) -> None:
    """Draw the timeline of the first 64 workers, in seconds; simultaneous invocations of a worker overlap.

    A supervisor is the row after the workers. RequestError if the file cannot be drawn or written.
    """
    bars = _bars(timeline)
    workers = sorted({worker for worker, _ in bars})
    figure = open_figure()
    panel = figure.subplots()
    for name, colour in COLOURS.items():
        drawn = False
        for row, worker in enumerate(workers[:ROWS]):
            if spans := bars.get((worker, name)):
                panel.broken_barh(spans, (row - 0.4, 0.8), color=colour, label="" if drawn else name)
                drawn = True
    rows = range(len(workers[:ROWS]))
    panel.set_yticks(rows, [f"worker {workers[row]}" for row in rows], fontsize=9 if len(rows) <= ROWS // 4 else 4)
    panel.invert_yaxis()
    panel.set(xlabel="seconds", xlim=(0, None))
    figure.legend(loc="outside right upper", fontsize="small")
    left_out = f", the first {ROWS} of {len(workers)} workers" if len(workers) > ROWS else ""
    save_figure(figure, f"{title}{left_out}", path)


def _bars(timeline: "Timeline") -> dict[tuple[int, str], list[tuple[float, float]]]:
    """Return begins and lengths, s, of each worker's bars by what they show."""
    first = min((call.accepted for call in timeline.calls), default=0)
    bars: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)

    def add(worker: int, name: str, begin: int, end: int) -> None:
        if end > begin:
            bars[worker, name].append(((begin - first) / NS, (end - begin) / NS))

    tracks = timeline.program.tracks
    for track, call in zip(tracks, timeline.calls, strict=True):
        if track.kind != "execution":
            add(track.worker, "cold start", call.accepted, call.began - call.init_ns)
            add(track.worker, "init", call.began - call.init_ns, call.began)
    for i, step in enumerate(timeline.steps):
        track = tracks[timeline.track[i]]
        if track.kind != "execution":
            add(track.worker, "wait", timeline.begin[i], timeline.start[i])
            phase = step.phase if step.phase in COLOURS else "other"
            add(track.worker, phase, timeline.start[i], timeline.end[i])
    return bars
