"""When the gates opened for which the entries of a timeline waited."""

from slslab.replay.costs import Cost
from slslab.replay.timeline import Timeline


class Openings:
    """Of a timeline's entries, what each of them waited for.

    `Timeline.after` names the entry that opened the last gate, which a request does before its own end.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._halves: dict[str, int] = {}

    def of(self, entry: int) -> int | None:
        """When what this entry waited for was there, ns; None if it was there when the track came to it."""
        timeline, opener = self._timeline, self._timeline.after[entry]
        gates = set(timeline.steps[entry].awaits)
        if opener < 0 or not gates:
            return None
        track, step = timeline.track[opener], timeline.steps[opener]
        if not gates.isdisjoint(timeline.program.tracks[track].opens):
            opened = timeline.calls[track].ended
        elif not gates.isdisjoint(step.opens):
            opened = timeline.end[opener] - self._half(step.op)
        else:
            return None
        return opened if opened > timeline.begin[entry] else None

    def _half(self, op: str) -> int:
        if op not in self._halves:
            self._halves[op] = Cost.of(self._timeline.profile, op).half if "." in op else 0
        return self._halves[op]
