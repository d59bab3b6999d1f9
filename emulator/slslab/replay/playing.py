"""A track under way, as the kernel keeps it."""

from collections import deque
from dataclasses import dataclass, field

from slslab.replay.environment import Environment
from slslab.replay.program import Step, Track
from slslab.replay.timeline import NEVER


@dataclass(slots=True)
class Playing:
    """A track under way.

    `pending` is what is left of the item at hand; `group` holds the groups of a gathering that are left, `ready` those
    that may run, by the time at which their gate opened. `begin` is when it came to the present step, `listed` when it
    listed last, `pause` how long it pauses after its next poll (s), `last` its latest entry. It goes on at `due`, NEVER
    while it waits: of several entries in the heap only that one counts.
    """

    index: int
    track: Track
    position: int = 0
    pending: deque[Step] = field(default_factory=deque)
    group: dict[int, tuple[Step, ...]] = field(default_factory=dict)
    ready: list[tuple[int, int]] = field(default_factory=list)
    begin: int = NEVER
    listed: int = NEVER
    pause: float = 0.0
    last: int = NEVER
    due: int = 0
    in_line: bool = False
    environment: Environment | None = None
