"""The authors' log traffic: for every line a worker gets its whole log from S3, appends the line, and puts it back.

How many lines a step has is the released code's (protocol reference 1.5, chapters 3 to 5). Assumed, because the
reference does not tell them: after what in a step a line is written, what it says, and that it is LINE_BYTES long.
All lines being equally long, a pattern knows the bytes of every request.
"""

import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from slslab_workers.architecture import Option
from slslab_workers.communication import Activity, Workload
from slslab_workers.keys import log_key
from slslab_workers.objects import Absent, Objects
from slslab_workers.plan import Plan

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


def lines(workload: Workload) -> Iterator[tuple[Activity, ...]]:
    """The requests for each line of a worker's log, from the first one on and without end, as a pattern has them.

    Without the option there are none for any line.
    """
    for number in itertools.count():
        yield _line(number) if is_logged(workload) else ()


def is_logged(workload: Workload) -> bool:
    """Whether the workload's options have the log traffic."""
    return bool(workload.options.get(LOG_TRAFFIC.name, LOG_TRAFFIC.default))


def _line(number: int) -> tuple[Activity, ...]:
    return (
        Activity("object.get", PHASE, bytes=number * LINE_BYTES),
        Activity("object.put", PHASE, bytes=(number + 1) * LINE_BYTES),
    )
