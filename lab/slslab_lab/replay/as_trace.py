"""Turn a played timeline into a trace, for code that draws or counts traces: rows of events, and invocations."""

from typing import Any

from slslab_lab.replay.kernel.timeline import Timeline

Row = dict[str, Any]


def as_trace(timeline: Timeline) -> tuple[list[Row], list[Row]]:
    """Return the workers' events, each after its `wait` if it had one, and what ran, in ns of the modelled clock."""
    events: list[Row] = []
    ran: list[Row] = []
    tracks = timeline.program.tracks
    # Events refer to their invocation or instance by this id.
    ids = {number: str(number) for number, track in enumerate(tracks) if track.kind != "execution"}

    def add(number: int, op: str, phase: str, start_ns: int, end_ns: int) -> None:
        track = tracks[number]
        events.append(
            {
                "invocation": ids[number],
                "function": track.name,
                "worker": track.worker,
                "op": op,
                "phase": phase,
                "start_ns": start_ns,
                "end_ns": end_ns,
            }
        )

    for number, identifier in ids.items():
        call, track = timeline.calls[number], tracks[number]
        ran.append({"request_id": identifier, "function": track.name, "start_ns": call.accepted, "end_ns": call.ended})
        add(number, "environment.start", "init", call.accepted, call.began)
    for entry, step in enumerate(timeline.steps):
        if (number := timeline.track[entry]) in ids:
            if timeline.start[entry] > timeline.begin[entry]:
                add(number, step.op, "wait", timeline.begin[entry], timeline.start[entry])
            add(number, step.op, step.phase, timeline.start[entry], timeline.end[entry])
    return events, ran
