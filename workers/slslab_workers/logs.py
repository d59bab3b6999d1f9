"""The authors' log traffic: for every line a worker gets its whole log from S3, appends the line, and puts it back.

How many lines a step has is the released code's (protocol reference 1.5, chapters 3 to 5). Assumed, because the
reference does not tell them: after what in a step a line is written, what it says, and that it is LINE_BYTES long.
All lines being equally long, a pattern knows the bytes of every request.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from slslab_workers.architecture import Option
from slslab_workers.communication import Activity, Part, Workload
from slslab_workers.keys import log_key
from slslab_workers.objects import Absent, Objects
from slslab_workers.plan import Plan

Lines = Iterator[tuple[Part, ...]]
LoggedStep = Callable[[int, Lines], tuple[Part, ...]]
# The requests' phase in the trace. None of them is part of the training protocol.
PHASE = "log"
LINE_BYTES = 100

LOG_TRAFFIC = Option(
    "log-traffic",
    bool,
    False,
    "Every line of a worker's log gets the whole log from S3 and puts it back, as the authors' code does. These "
    "requests are billed, and counted under overheads.",
    released=True,
)


class Log:
    """One worker's log in the run's bucket; without the option it has no lines and makes no requests."""

    def __init__(self, plan: Plan, rank: int, objects: Objects) -> None:
        self._objects = objects
        self._key = log_key(plan, rank) if plan.options.get(LOG_TRAFFIC.name, LOG_TRAFFIC.default) else None
        self._since = time.monotonic()

    def append(self, text: str) -> None:
        """One more line: when, epoch and step, what was done, and in how many seconds since the line before.

        Of a text that is too long for the line the end is left out.
        """
        if self._key is None:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        tracer, seconds = self._objects.tracer, time.monotonic() - self._since
        line = f"{now}Z epoch {tracer.epoch} step {tracer.step}: {seconds:.3f} s, {text}".encode()
        try:
            log = self._objects.get(self._key, PHASE).body
        except Absent:
            log = bytearray()
        log += line[: LINE_BYTES - 1].ljust(LINE_BYTES - 1) + b"\n"
        self._objects.put(self._key, log, PHASE)
        self._since = time.monotonic()


def logged_steps(workload: Workload, step: LoggedStep, turns: int = 1) -> tuple[tuple[Part, ...], ...]:
    """What a worker does in each step, as a pattern's role has it; without log traffic so many steps take turns.

    `step` makes those of one step, by its number in the run, and takes from `lines` the requests of each line of the
    log. With the traffic no step is like another, since the log grows.
    """
    if not workload.options.get(LOG_TRAFFIC.name, LOG_TRAFFIC.default):
        return tuple(step(number, itertools.repeat(())) for number in range(turns))
    lines = map(_requests, itertools.count())
    return tuple(step(number, lines) for number in range(workload.steps))


def _requests(line: int) -> tuple[Part, ...]:
    """Those of a line before which the log has so many."""
    return (
        Activity("object.get", PHASE, bytes=line * LINE_BYTES),
        Activity("object.put", PHASE, bytes=(line + 1) * LINE_BYTES),
    )
