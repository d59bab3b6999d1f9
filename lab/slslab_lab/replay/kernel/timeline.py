"""The result of a replay: when each step and each track began and ended."""

from array import array
from dataclasses import dataclass, field

from slslab.predict.environment import Environment
from slslab.predict.profiles.profile import Profile
from slslab_lab.replay.kernel.program import Program, Step

NEVER = -1


@dataclass(slots=True)
class Call:
    """When a track was accepted, began (its handler) and ended, ns; NEVER if it didn't. `init_ns` is a cold start's.

    Invocations with the same `environment` ran in it one after another.
    """

    accepted: int = NEVER
    began: int = NEVER
    ended: int = NEVER
    init_ns: int = 0
    cold: bool = False
    environment: Environment | None = field(default=None, compare=False)


@dataclass
class Timeline:
    """The result of a replay: columns with one entry per step, in the order of playing, and one call per track.

    `begin` is when the track reached the step, `start` when everything it waited for had arrived, `end` its end, all
    ns. `polls` counts requests that found nothing. `after` is the entry that the step waited for longest, -1 for a
    first step. `opened` is when the last gate opened for which the step waited, -1 if it didn't wait.
    """

    program: Program
    profile: Profile
    calls: list[Call]
    track: "array[int]" = field(default_factory=lambda: array("q"))
    steps: list[Step] = field(default_factory=list)
    begin: "array[int]" = field(default_factory=lambda: array("q"))
    start: "array[int]" = field(default_factory=lambda: array("q"))
    end: "array[int]" = field(default_factory=lambda: array("q"))
    polls: "array[int]" = field(default_factory=lambda: array("q"))
    after: "array[int]" = field(default_factory=lambda: array("q"))
    opened: "array[int]" = field(default_factory=lambda: array("q"))

    def add(
        self, track: int, step: Step, begin: int, start: int, end: int, polls: int, after: int, opened: int
    ) -> None:
        """Append an entry."""
        self.steps.append(step)
        self.track.append(track)
        self.begin.append(begin)
        self.start.append(start)
        self.end.append(end)
        self.polls.append(polls)
        self.after.append(after)
        self.opened.append(opened)

    @property
    def end_ns(self) -> int:
        """When the last track ended, ns."""
        return max((call.ended for call in self.calls), default=0)
