"""The state of a track while the kernel plays it."""

from collections import deque
from dataclasses import dataclass, field

from slslab.replay.kernel.environment import Environment
from slslab.replay.kernel.program import Step, Track
from slslab.replay.kernel.timeline import NEVER


@dataclass(slots=True)
class TrackState:
    """How far a track has been played.

    `pending` holds the rest of the item at hand; `groups` the groups of a gathering that are left, by number, and
    `ready` those whose gate is open, with the time at which it opened. `begin` is when the track came to the present
    step, `listed` when it last listed, `pause` the seconds after its next poll, `last` its latest entry. `due` is when
    it is played next, NEVER while it waits: of its events in the heap only the one at `due` counts. `on_ramp` says
    whether it waits until another environment of its function may start.
    """

    index: int
    track: Track
    position: int = 0
    pending: deque[Step] = field(default_factory=deque)
    groups: dict[int, tuple[Step, ...]] = field(default_factory=dict)
    ready: list[tuple[int, int]] = field(default_factory=list)
    begin: int = NEVER
    listed: int = NEVER
    pause: float = 0.0
    last: int = NEVER
    due: int = 0
    on_ramp: bool = False
    environment: Environment | None = None
